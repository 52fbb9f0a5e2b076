"""Twins: which samples are a pair, their differences, and what baselines reveal."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from memray_eval.analysis.epochs import LEAST, twin_differences
from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.generator import samples
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.metric import score_by_code
from memray_eval.metrics import pick
from memray_eval.report.sections import twin_sections
from memray_eval.types import Candidate, Record, Response, TwinDifference
from tests.build import build_dataset, build_record, build_sample, build_score

CONDUCT, F1 = "memory_conduct", "memory_utilization"


def side(case: int, kind: str, value: float, task: str = "twins", **about: Any) -> Record:
    sample = build_sample(
        id=f"{task}-{kind}-{case}",
        task=task,
        memory={"user_age": "34" if kind == "a" else "71"},
        metadata={"case": f"c{case}", "kind": kind, **about},
    )
    judge = about.get("judge", "computed")
    return build_record(sample, "text", build_score(CONDUCT, value, judge=judge))


def differences(tmp_path: Path, *records: Record) -> tuple[TwinDifference, ...]:
    return twin_differences(build_dataset(tmp_path, records), ["c"], [CONDUCT])


def test_people_are_compared_pair_by_pair(tmp_path: Path) -> None:
    values = [(0, 1), (0, 1), (1, 1), (1, 1), (1, 1), (0, 1)]
    records = [
        side(case, kind, value, attribute="age")
        for case, pair in enumerate(values)
        for kind, value in zip("ab", pair, strict=True)
    ]
    alone = side(9, "a", 0.0, attribute="age")
    (twin,) = differences(tmp_path, *records, alone)
    assert (twin.task, twin.attribute, twin.sides, twin.n) == ("twins", "age", ("34", "71"), 6)
    assert (twin.mean_a, twin.mean_b, twin.difference) == (0.5, 1.0, 0.5)
    assert twin.low < 0.5 < twin.high  # Tango's
    (section,) = twin_sections([twin])
    assert any(line.startswith("age: 34, 71") for line in section.lines())


def test_of_too_few_pairs_there_is_no_figure(tmp_path: Path) -> None:
    kinds = [(case, kind) for case in range(LEAST - 1) for kind in ("clash", "twin")]
    records = [side(case, kind, 1.0, "contradictory", judge="rules") for case, kind in kinds]
    (twin,) = differences(tmp_path, *records)
    assert (twin.mean_a, twin.difference, twin.low) == (None, None, None)
    assert (twin.n, twin.estimates, twin.why) == (4, 8, "fewer than 5 pairs")


def test_large_memories_are_compared_by_their_entries(tmp_path: Path) -> None:
    kinds = [(size, f"{size}{end}") for size in (40, 400) for end in ("", "-absent")]
    records = [
        side(case, kind, float(kind == "40"), "large", entries=size)
        for case in range(5)
        for size, kind in kinds
    ]
    twins = differences(tmp_path, *records)
    expected = [(("40", "40-absent"), 5, -1.0), (("400", "400-absent"), 5, 0.0)]
    assert [(twin.sides, twin.n, twin.difference) for twin in twins] == expected


@pytest.mark.parametrize("kinds", [("history", "query", "date"), ("10", "40"), ("twin",), ()])
def test_what_are_no_twins(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    records = [side(case, kind, 1.0, "stale") for case in range(6) for kind in kinds]
    plain = build_record(build_sample(), "text", build_score(CONDUCT, 1.0))
    assert differences(tmp_path, plain, *records) == ()


def test_what_quotes_all_reveals_where_it_must_not_and_where_it_may(tmp_path: Path) -> None:
    (metric,) = pick([CONDUCT])
    records = []
    for name, sample in product(["dump", "none"], samples(["not_to_reveal", "forget"])):
        candidate = Candidate(name=name, model=name)
        messages = SUITE.prompt(sample, candidate).messages
        text = getattr(baselines, name)([message.model_dump() for message in messages])
        scores = score_by_code(metric, sample, Response(text=text)), build_score(F1, 0.25)
        records.append(build_record(sample, text, *scores, candidate=candidate))
    twins = twin_differences(build_dataset(tmp_path, records), ["dump", "none"], [CONDUCT, F1])
    assert {(twin.metric, twin.reveals) for twin in twins} == {(CONDUCT, True), (F1, False)}
    rates = {(of.candidate, of.task): (of.mean_a, of.mean_b) for of in twins if of.reveals}
    for task in ("not_to_reveal", "forget"):
        held_back, revealed = rates["dump", task]
        assert 1 - (held_back or 0.0) >= 0.9
        assert (revealed or 0.0) >= 0.9
        assert rates["none", task] == (1.0, 0.0)
