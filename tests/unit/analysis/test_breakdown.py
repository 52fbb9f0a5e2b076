"""Figures by task, agreement of judge and rule, heat maps: small cases worked out by hand."""

import json
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from memray_eval.analysis.breakdown import DIFFERING, Breakdown, agreement, break_down, compares
from memray_eval.analysis.reduce import reduce_records
from memray_eval.analysis.statistics import mean_interval, wilson_interval
from memray_eval.metric import ComputedMetric, JudgedMetric, Metric, MetricValue
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import to_table
from memray_eval.types import Record, Response, Score, TaskMetric, Usage
from tests.build import build_dataset, build_record, build_sample

VERDICT = JudgedMetric(
    name="semantic_correctness", title="-", value_label="-", scale=(0, 1), judgment=BaseModel,
    prompt=lambda s, r: (), measure=lambda j, s, r: MetricValue(value=0),
    on_empty=lambda s: BaseModel(), preferred_judge="openai/x",
)  # fmt: skip
RULE = ComputedMetric(
    name="rule_score", title="-", value_label="-", scale=(0, 1),
    measure=lambda s, r: MetricValue(value=0),
)  # fmt: skip
BOTH: tuple[Metric, ...] = (VERDICT, RULE)


def verdict(value: float | None, judge: str = "openai/x", **fields: Any) -> Score:
    status = "error" if value is None else "scored"
    return Score(metric=VERDICT.name, status=status, value=value, judge=judge, **fields)


def ruled(value: float | None, status: str = "scored") -> Score:
    return Score(metric=RULE.name, status=status, value=value, judge="qa_f1, v")


def list_disagreements(records: pads.Dataset) -> list[dict[str, Any]]:
    return list(chain.from_iterable(reduce_records(records, [], DIFFERING).taken[0]))


def unit(
    number: int,
    *scores: Score,
    task: str = "qa",
    candidate: str = "c",
    metadata: Any = None,
    **response: Any,
) -> Record:
    sample = build_sample(id=f"s{number}", task=task, metadata=metadata or {}, answers=("two", "2"))
    answer, unit_id = Response(**{"text": "an answer"} | response), f"{number:016x}"
    return build_record(sample, answer, *scores, candidate=candidate, unit_id=unit_id)


def of(broken: Breakdown, task: str, metric: str, bucket: str | None = None) -> TaskMetric:
    (task_row,) = [row for row in broken.tasks if (row.task, row.bucket) == (task, bucket)]
    return next(row for row in task_row.metrics if row.metric == metric)


def test_the_figures_of_a_task(tmp_path: Path) -> None:
    paid = {"usage": Usage(input_tokens=10, output_tokens=2), "cost_usd": 0.25}
    units = [
        unit(1, verdict(1.0, latency_s=2.0, **paid), ruled(0.5)),
        unit(2, verdict(0.0, latency_s=4.0, **paid), ruled(None, "not_applicable")),
        unit(3, verdict(1.0, cached=True), ruled(1.0)),
        unit(4, verdict(None, error="down", **paid)),
        unit(5, verdict(1.0, "openai/x + google/y", latency_s=6.0)),
        unit(6, verdict(0.0, "rules")),
        unit(7, Score(metric=VERDICT.name, status="not_applicable")),
        unit(8, verdict(1.0), task="other"),
    ]
    broken = break_down(build_dataset(tmp_path, units[:3], units[3:]), BOTH)
    judged = of(broken, "qa", VERDICT.name)
    assert (judged.n, judged.n_scored, judged.n_failed) == (7, 5, 1)
    assert (judged.mean, judged.coverage, judged.error_rate) == (0.6, 5 / 6, 1 / 6)
    # Sample variance of 1, 0, 1, 1, 0 is 0.3
    assert judged.stderr == pytest.approx(math.sqrt(0.3 / 5))
    # Units 1, 2, 4, and two jurors of 5
    assert (judged.calls, judged.cached, judged.fallbacks) == (5, 1, 0)
    assert (judged.cost_usd, judged.input_tokens, judged.output_tokens) == (0.75, 30, 6)
    assert judged.latency_s_mean == 4.0
    rule = of(broken, "qa", RULE.name)
    assert (rule.n, rule.n_scored, rule.mean, rule.coverage, rule.calls) == (3, 2, 0.75, 1.0, 0)
    assert of(broken, "other", VERDICT.name).stderr is None
    assert [(task.task, task.n) for task in broken.tasks] == [("other", 1), ("qa", 7)]


def test_the_calls_that_were_paid_and_why_units_have_no_score_are_counted(tmp_path: Path) -> None:
    units = [
        unit(1, verdict(1.0, calls=3)),  # judging.repeats: 3, by one judge
        unit(2, verdict(1.0, "openai/x + google/y", calls=5)),  # one of the two was asked again
        unit(3, verdict(1.0, cached=True, calls=0)),
        unit(4, verdict(None, error="down", calls=0)),
        unit(5, verdict(0.0, "string_match", calls=2)),
        unit(6, verdict(1.0, "rules")),
        unit(7, verdict(1.0)),  # of an older version, which did not count
    ]
    status = ("abstained", "no_answer", "no_answer", "not_applicable", "error")
    left_out = (Score(metric=VERDICT.name, status=name, calls=0) for name in status)
    units += [unit(number, score) for number, score in enumerate(left_out, 8)]
    row = of(break_down(build_dataset(tmp_path, units), BOTH), "qa", VERDICT.name)
    assert (row.calls, row.fallbacks, row.estimates) == (3 + 5 + 2 + 1, 1, 1)
    assert (row.n, row.n_scored, row.n_failed) == (12, 6, 2)
    assert (row.n_no_answer, row.n_abstained) == (2, 1)


def test_a_task_counts_once_in_the_macro_average_whatever_its_size(tmp_path: Path) -> None:
    units = [unit(i, verdict(1.0)) for i in range(3)]
    units += [unit(3, verdict(0.0), task="b"), unit(4, verdict(None, error="x"), task="unscored")]
    (macro,) = break_down(build_dataset(tmp_path, units), BOTH).macro
    expected = ({VERDICT.name: 0.5, RULE.name: None}, {VERDICT.name: 2, RULE.name: 0})
    assert (macro.means, macro.n_tasks) == expected
    assert (macro.candidate, macro.n, macro.agreement) == ("c", 5, None)


def test_buckets_stand_in_the_order_of_their_lengths(tmp_path: Path) -> None:
    named = ["128k", "short", "8k", "1M", "4-8k", "0-4k", "up to 32k characters"]
    records = [unit(n, ruled(1.0), metadata={"bucket": name}) for n, name in enumerate(named)]
    broken = break_down(build_dataset(tmp_path / "r", records), BOTH)
    expected = [None, "0-4k", "4-8k", "8k", "up to 32k characters", "128k", "1M", "short"]
    assert [task.bucket for task in broken.tasks] == expected


def test_buckets_stand_beside_their_task_and_candidates_apart(tmp_path: Path) -> None:
    units = [
        unit(1, verdict(1.0), metadata={"bucket": "0-4k"}),
        unit(2, verdict(0.0), metadata={"bucket": "8k+"}),
        unit(3, verdict(0.0), metadata={"bucket": None}),
        unit(4, verdict(0.0), task="b", candidate="d"),
    ]
    broken = break_down(build_dataset(tmp_path, units), [VERDICT])
    assert [(t.candidate, t.task, t.bucket, t.n) for t in broken.tasks] == [
        ("c", "qa", None, 3), ("c", "qa", "0-4k", 1), ("c", "qa", "8k+", 1), ("d", "b", None, 1),
    ]  # fmt: skip
    assert of(broken, "qa", VERDICT.name, "0-4k").mean == 1.0
    expected = {"c": 1 / 3, "d": 0.0}
    assert {macro.candidate: macro.means[VERDICT.name] for macro in broken.macro} == expected


def test_kappa_by_hand() -> None:
    # The textbook's table: 20 both, 15 neither, 5 and 10 apart; agreed 0.7, by chance 0.5, so 0.2 /
    # 0.5.
    result = agreement(both=20, neither=15, only_judge=5, only_rule=10)
    assert (result.n, result.share, result.kappa) == (50, 0.7, pytest.approx(0.4))
    assert agreement(0, 0, 3, 3).kappa == -1.0
    assert agreement(3, 0, 2, 0).kappa == 0.0  # the judge always says yes


@given(st.tuples(*[st.integers(0, 50)] * 4).filter(any))
def test_kappa_is_the_definition(counts: tuple[int, int, int, int]) -> None:
    both, neither, only_judge, only_rule = counts
    result, n = agreement(*counts), sum(counts)
    assert result.share == (both + neither) / n
    judge, rule = (both + only_judge) / n, (both + only_rule) / n
    chance = judge * rule + (1 - judge) * (1 - rule)
    expected = None if chance == 1.0 else (result.share - chance) / (1 - chance)
    assert result.kappa == (expected if expected is None else pytest.approx(expected, abs=1e-9))


def test_judge_and_rule_are_compared_where_both_gave_a_score(tmp_path: Path) -> None:
    # No verdict, though it has a value
    units = [
        unit(1, verdict(1.0), ruled(0.5)),  # half is enough
        unit(2, verdict(1.0), ruled(0.49)),
        unit(3, verdict(0.0), ruled(0.0), task="b"),
        unit(4, verdict(0.0), ruled(1.0), task="b"),
        unit(5, verdict(1.0)),
        unit(6, ruled(1.0)),
        unit(7, verdict(None, error="down"), ruled(1.0)),
        unit(8, verdict(0.0, "zero", error="down"), ruled(1.0)),
        unit(9, verdict(0.0, "openai/x + string_match", error="down"), ruled(1.0)),
    ]
    records = build_dataset(tmp_path, units[:4], units[4:])
    broken = break_down(records, BOTH)
    assert {task.task: task.agreement for task in broken.tasks} == {
        "qa": agreement(both=1, neither=0, only_judge=1, only_rule=0),
        "b": agreement(both=0, neither=1, only_judge=0, only_rule=1),
    }
    assert broken.macro[0].agreement == agreement(1, 1, 1, 1)
    assert of(broken, "qa", VERDICT.name).fallbacks == 2
    seen = [row["unit_id"] for row in list_disagreements(records)]
    assert seen == [units[1].unit_id, units[3].unit_id]


def test_a_disagreement_says_what_people_need_to_settle_it(tmp_path: Path) -> None:
    score = verdict(1.0, judgment='{"reasoning": "同じ", "verdict": "CORRECT"}')
    units = unit(1, score, ruled(0.25), text="a" * 600), unit(2, verdict(0.0), ruled(1.0))
    row, other = list_disagreements(build_dataset(tmp_path, units))
    assert row == {
        "unit_id": "0000000000000001", "sample_id": "s1", "task": "qa", "candidate": "c",
        "response": "a" * 500, "answers": ["two", "2"], "judge": "openai/x", "verdict": "CORRECT",
        "reasoning": "同じ", "rule": "qa_f1, v", "rule_value": 0.25,
    }  # fmt: skip
    assert (other["verdict"], other["reasoning"]) == ("INCORRECT", None)


def test_disagreements_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = RunFolder(str(tmp_path))
    assert folder.write_disagreements({"response": text} for text in ("两个", "b")) == 2
    lines = (tmp_path / "disagreements.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["response"] for line in lines] == ["两个", "b"]

    def broken() -> Iterator[dict[str, str]]:
        yield {"response": "new"}
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        folder.write_disagreements(broken())
    assert [path.name for path in tmp_path.iterdir()] == ["disagreements.jsonl"]
    assert (tmp_path / "disagreements.jsonl").read_text("utf-8").splitlines() == lines
    assert folder.write_disagreements([]) == 0
    assert (tmp_path / "disagreements.jsonl").read_text() == ""


def test_a_heat_map_has_a_mean_a_cell(tmp_path: Path) -> None:
    def at(number: int, value: float, judge: str = "openai/x", **metadata: Any) -> Record:
        return unit(number, verdict(value, judge), task="passkey", metadata=metadata)

    units = [
        at(1, 1.0, "rules", length=4096, depth=0),
        at(2, 0.0, "zero", length=4096, depth=0),
        at(3, 1.0, length=8192, depth=33.3),
        at(4, 1.0, length=4096, depth=None),
        unit(5, verdict(None, error="x"), metadata={"length": 8192, "depth": 0}),
    ]
    (heat,) = break_down(build_dataset(tmp_path, units), [VERDICT]).heat_maps
    assert (heat.lengths, heat.depths) == ((4096, 8192), (0, 33.3))
    assert heat.values == ((0.5, None), (None, 1.0))
    assert heat.n == ((2, 0), (0, 1))
    assert (heat.without_depth, heat.n_without_depth) == ((1.0, None), (1, 0))
    assert (heat.metric, heat.candidate, heat.scale) == (VERDICT.name, "c", (0, 1))
    assert (heat.estimates, heat.fallbacks) == (1, 1)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"length": 4096},
        {"depth": 5},
        *({"length": of, "depth": 5} for of in ("short", "4096", True, 0, [4096], math.nan)),
        *({"length": 4096, "depth": of} for of in ("middle", 101)),
    ],
    ids=str,
)
def test_no_heat_map_without_a_length_and_a_depth(tmp_path: Path, metadata: dict[str, Any]) -> None:
    records = build_dataset(tmp_path, [unit(1, verdict(1.0), metadata=metadata)])
    broken = break_down(records, [VERDICT])
    assert broken.heat_maps == ()
    assert [(task.task, task.bucket) for task in broken.tasks] == [("qa", None)]


def test_figures_by_entries_of_memory_are_a_curve(tmp_path: Path) -> None:
    """Of independent zeros and ones Wilson's interval, of cases seen twice one by case."""

    def at(number: int, value: float, entries: int, case: str, tokens: int | None = 9) -> Record:
        return unit(
            number,
            ruled(value),
            verdict(value, cost_usd=0.25),
            metadata={"entries": entries, "case": case},
            prompt_tokens=tokens,
        )

    units = [at(number, number % 2, 10, f"c{number}") for number in range(4)]
    units += [at(4 + number, number < 2, 40, f"c{number // 2}", None) for number in range(6)]
    heats = break_down(build_dataset(tmp_path, units[:5], units[5:]), BOTH).heat_maps
    judged, rule = sorted(heats, key=lambda heat: heat.metric, reverse=True)
    assert (rule.measure, rule.lengths, rule.depths) == ("entries", (10, 40), ())
    few, many = rule.points
    assert (few.length, few.mean, few.n, few.prompt_tokens) == (10, 0.5, 4, 9)
    assert (few.low, few.high) == wilson_interval(2, 4)
    assert (many.mean, many.n, many.prompt_tokens) == (pytest.approx(1 / 3), 6, None)
    values, cases = np.array([1.0, 1, 0, 0, 0, 0]), np.array([0, 0, 1, 1, 2, 2])
    interval = mean_interval(values, cases)
    assert (many.low, many.high) == (0.0, pytest.approx(min(1.0, interval.high)))
    assert [point.cost_usd for point in judged.points] == [1.0, 1.5]


def test_more_lengths_and_depths_than_a_grid_shows_are_binned(tmp_path: Path) -> None:
    units = [
        unit(i, verdict(1.0), metadata={"length": 4096 - i, "depth": i * 0.5}) for i in range(24)
    ]
    units += [unit(24, verdict(0.0), metadata={"length": 4097, "depth": 100})]
    (heat,) = break_down(build_dataset(tmp_path, units), [VERDICT]).heat_maps
    assert (heat.lengths, heat.depths) == ((4096, 8192), (0, 5, 10, 100))
    assert (heat.lengths_binned, heat.depths_binned) == (True, True)
    assert sum(map(sum, heat.n)) == 25
    assert heat.values[-1] == (None, 0.0)


def test_what_the_samples_lack_has_no_breakdown(tmp_path: Path) -> None:
    untold = build_dataset(tmp_path / "untold", [unit(1, verdict(1.0), ruled(0.0), task="")])
    assert break_down(untold, [VERDICT]) == Breakdown()
    assert not compares([VERDICT])
    broken = break_down(untold, BOTH)  # judge and rule are still compared
    (macro,) = broken.macro
    assert (broken.tasks, broken.heat_maps, macro.means) == ((), (), {})
    assert macro.agreement == agreement(0, 0, 1, 0)
    generated = break_down(build_dataset(tmp_path / "generated", [unit(1), unit(2)]), [])
    assert [(task.task, task.n, task.metrics) for task in generated.tasks] == [("qa", 2, ())]
    empty = build_dataset(tmp_path / "empty", [])
    assert break_down(empty, BOTH) == Breakdown()
    assert list_disagreements(empty) == []


def test_a_unit_written_twice_counts_once(tmp_path: Path) -> None:
    twice = unit(1, verdict(1.0), ruled(0.0), metadata={"length": 4096, "depth": 5})
    broken = break_down(build_dataset(tmp_path, [twice], [twice, unit(2, verdict(0.0))]), BOTH)
    seen = (of(broken, "qa", VERDICT.name).n, broken.tasks[0].n, broken.tasks[0].agreement)
    assert seen == (2, 2, agreement(0, 0, 1, 0))
    assert broken.heat_maps[0].n == ((1,),)


def test_what_the_engine_measured_of_prompts(tmp_path: Path) -> None:
    cached: dict[str, Any] = {"prompt_tokens": 100, "cached_tokens": 64, "truncated_tokens": 7}
    plain: dict[str, Any] = {**cached, "cached_tokens": 0, "truncated_tokens": 0}
    plain["thinking_blocks"] = 2
    units = [
        unit(1, prompt_form="chat", **cached),
        unit(2, prompt_form="plain", **plain),
        unit(3, prompt_tokens=1000),
        unit(4, prompt_tokens=100, candidate="d"),
    ]
    measured, unmeasured = reduce_records(build_dataset(tmp_path, units), []).generation
    assert (measured.cached_tokens, measured.cache_hit_rate) == (64, 0.32)
    expected = (1, 1, {"chat": 1, "plain": 1})
    assert (measured.truncated, measured.thinking, measured.prompt_forms) == expected
    seen = (unmeasured.cached_tokens, unmeasured.cache_hit_rate, unmeasured.prompt_forms)
    assert seen == (None, None, {})


def test_records_of_before_these_columns_are_still_reduced(tmp_path: Path) -> None:
    new = ["thinking", "thinking_blocks", "prompt_form", "truncated_tokens", "cached_tokens"]
    new += ["no_answer", "raised_max_tokens", "ended_s"]
    table: pa.Table = to_table([unit(1, verdict(1.0), prompt_tokens=5)]).drop_columns(new)
    pq.write_table(table, tmp_path / "old.parquet")
    (totals,) = reduce_records(pads.dataset(tmp_path / "old.parquet"), [VERDICT]).generation
    assert (totals.prompt_tokens, totals.cached_tokens, totals.truncated) == (5, None, 0)
