from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pytest
from pydantic import ValidationError

from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.generator import (
    SPLITS,
    TASKS,
    Case,
    load_cases,
    samples,
)
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.datasets.parsing import parse_sample
from memray_eval.metrics.assistant.memory_conduct import measure
from memray_eval.text_processing.sample_text import memory_entries
from memray_eval.types import Candidate, Response, Sample

CANDIDATE = Candidate(name="c", model="m")
ALL = tuple(samples(TASKS, [40]))
CASE = load_cases()[0].model_dump()


def of(task: str, kind: str = "") -> list[Sample]:
    return [
        sample
        for sample in ALL
        if sample.task == task and (not kind or sample.metadata["kind"] == kind)
    ]


def conduct(name: str, samples: list[Sample]) -> float:
    """The share of samples in which a baseline does what is expected."""

    def answer(sample: Sample) -> Response:
        messages = [message.model_dump() for message in SUITE.prompt(sample, CANDIDATE).messages]
        return Response(text=getattr(baselines, name)(messages))

    return fmean(measure(sample, answer(sample)).value for sample in samples)


def test_every_split_has_sixty_samples_that_are_valid() -> None:
    counts = Counter(sample.task for sample in ALL)
    assert set(counts) == set(TASKS)
    assert min(counts[name] for name in SPLITS) >= 60
    assert Counter(sample.language for sample in of("languages")) == dict.fromkeys(
        ("de", "es", "zh", "ar", "hi"), 6
    )
    assert len({sample.id for sample in ALL}) == len(ALL)
    for sample in ALL:
        fields = sample.model_dump(mode="json", exclude_defaults=True)
        assert parse_sample(fields, "") == sample


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["dump", "all_but_last", "key_words"])
def test_no_script_wins_a_split(task: str, name: str) -> None:
    assert conduct(name, of(task)) <= 0.55


def test_whoever_quotes_all_reveals() -> None:
    assert conduct("dump", of("not_to_reveal", "bystander")) <= 0.1
    assert conduct("dump", of("not_to_reveal", "twin")) >= 0.9


def test_a_place_in_memory_gives_nothing_away() -> None:
    places: dict[str, list[float]] = {"required": [], "forbidden": []}
    last_is_forbidden = []
    for sample in ALL:
        keys = [key for key, _ in memory_entries(sample)]
        for role, listed in (
            ("required", sample.required_keys),
            ("forbidden", sample.forbidden_keys),
        ):
            places[role] += [keys.index(key) / (len(keys) - 1) for key in listed]
        if sample.task != "large":  # nearly all is forbidden there
            last_is_forbidden.append(keys[-1] in sample.forbidden_keys)
    assert all(0.45 <= fmean(values) <= 0.55 for values in places.values())
    assert 0.35 <= fmean(last_is_forbidden) <= 0.65


def test_a_seed_makes_the_same_and_a_part_the_same_of_it() -> None:
    again = {sample.id: sample for sample in samples(["twins", "large"], [40])}
    assert again == {sample.id: sample for sample in ALL if sample.task in ("twins", "large")}
    other = list(samples(["large"], [40], seed=1))
    assert other != of("large")


@pytest.mark.parametrize("size", [40, 400])
def test_a_large_memory_has_its_size(size: int) -> None:
    for sample in samples(["large"], [size]):
        assert len(sample.memory) == size
        assert len(sample.required_keys) <= 0.15 * size
        assert set(sample.required_keys) <= set(sample.memory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"deciding": "nothing"}, "deciding: 'nothing' is not one of required"),
        ({"marks": ("quinine",)}, "are not in"),
        (
            {"earlier": {"value": CASE["required"][CASE["deciding"]], "marks": CASE["marks"]}},
            "earlier.value: equals the present one",
        ),
        ({"secret": {**CASE["secret"], "key": "nothing"}}, "secret.key: 'nothing' is not one of"),
    ],
)
def test_a_case_that_cannot_be(change: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Case.model_validate({**CASE, **change})
