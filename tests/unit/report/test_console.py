"""The console summary has seed 000's sections, names and decimals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from memray_eval.analysis.where import length_label
from memray_eval.metric import NEEDS_JUDGE, ComputedMetric, MetricColumns, MetricValue, summarise
from memray_eval.metrics import all_metrics
from memray_eval.report.brief import render_brief
from memray_eval.report.console import metric_lines, render
from memray_eval.report.html.view_model import metric_rows
from memray_eval.report.tables import judge_label
from memray_eval.types import (
    Agreement,
    Cause,
    GenerationSummary,
    HeatMap,
    MacroSummary,
    PromptCacheUse,
    Summary,
    TaskMetric,
    TaskSummary,
)

GENERATION = GenerationSummary(
    candidate="gemma", model="gemma3:4b", n=2, n_failed=0, prompt_tokens=10, output_tokens=20,
    output_tokens_per_s=5.0,
    ttft_s_mean=0.25, ttft_s_p95=0.5, duration_s_mean=1.0, finish_reasons={"stop": 2},
)  # fmt: skip


JUDGES = {"relevance": "minilm"}


def summary() -> Summary:
    columns = {
        "memory_utilization": {"tp": [4, 0], "fp": [0, 2], "fn": [0, 2], "value": [1, 0]},
        "groundedness": {
            "claims": [9, 1],
            "grounded": [9, 0],
            "hallucinated": [0, 1],
            "value": [1, 0],
        },
        "relevance": {"value": [0.5, 0.75], "cosine": [0.5, 0.75]},
    }
    metrics = tuple(
        summarise(
            all_metrics()[name],
            MetricColumns(
                "gemma",
                {"scored": 2},
                {JUDGES.get(name, "rules"): 2},
                {part: np.array(v, dtype=float) for part, v in figures.items()},
            ),
        )
        for name, figures in columns.items()
    )
    return Summary(
        run_id="r", suite="memory", n_samples=2, n_invalid=0, n_units=2, n_failed_units=0,
        generation_s=4.0, evaluation_s=1.0,
        total_s=6.5, candidates=(GENERATION,), metrics=metrics, notes=("an estimate",),
    )  # fmt: skip


def test_why_units_failed_stands_below_their_number() -> None:
    causes = [
        Cause(cause=f"cause {n}", n_units=9 - n, example=f"cause {n}; it said: x", unit_id=f"u{n}")
        for n in range(7)
    ]
    failed = summary().model_copy(update={"n_failed_units": 2, "causes": (*causes,)})
    lines = render(failed).splitlines()
    at = lines.index("Failed Units: 2 of 2")
    assert lines[at + 1 : at + 3] == ["  9 x cause 0", "    such as unit u0: cause 0; it said: x"]
    assert lines[at + 11] == "  and 2 other causes; summary.json lists them"


def test_answers_without_token_counts_are_told() -> None:
    uncounted = summary().model_copy(
        update={"candidates": (GENERATION.model_copy(update={"uncounted": 2}),)}
    )
    assert "ended by: 2 stop; tokens unknown of 2 answers\n" in render(uncounted)


@pytest.mark.parametrize(
    ("parts", "console", "page"),
    [
        (
            {"evidence": [9, 3], "unverified": [3, 0]},
            "; 3 of 12 pieces of evidence unverified (not found), trust 75%",
            "2 scored, 3 of 12 quotes unverified",
        ),
        ({"evidence": [9, 3]}, "2 of 2 scored; judged by", "2 scored"),
    ],
)
def test_evidence_that_was_not_found_is_told(
    parts: dict[str, list[float]], console: str, page: str
) -> None:
    columns = {
        "claims": [9, 3],
        "grounded": [9, 0],
        "hallucinated": [0, 3],
        "value": [1, 0],
        **parts,
    }
    outcomes = MetricColumns(
        "gemma",
        {"scored": 2},
        {"a/b": 2},
        {part: np.array(v, dtype=float) for part, v in columns.items()},
    )
    metric = summarise(all_metrics()["groundedness"], outcomes)
    assert console in "\n".join(metric_lines(metric))
    (row,) = metric_rows(summary().model_copy(update={"metrics": (metric,)}))
    assert row.counts == page


def test_a_rubric_metric_has_its_distribution_with_bars() -> None:
    metric = ComputedMetric(
        name="coherence",
        title="COHERENCE",
        value_label="Coherence",
        scale=(1, 5),
        integer_scale=True,
        measure=lambda s, r: MetricValue(value=1),
    )
    values = np.array([5.0] * 35 + [4.0] * 42 + [3.0] * 18 + [2.0] * 4 + [1.0])
    lines = list(
        metric_lines(
            summarise(
                metric, MetricColumns("c", {"scored": 100}, {"rules": 100}, {"value": values})
            )
        )
    )
    assert "  Average Coherence: 4.06/5.00  estimate  (higher is better)" in lines
    assert "  Median Coherence:  4/5  estimate" in lines
    assert "  Std Deviation:     0.88  estimate" in lines
    assert "  Total Samples:     100" in lines
    assert "  Score Distribution (estimate):" in lines
    assert "    Score 5:  35 ( 35.0%) ███████" in lines
    assert "    Score 4:  42 ( 42.0%) ████████" in lines
    assert "    Score 2:   4 (  4.0%)" in lines


def test_what_failed_is_said_beside_the_mean() -> None:
    outcomes = MetricColumns(
        "c",
        {"scored": 1, "error": 2, "abstained": 1, "not_applicable": 3},
        {"a": 1},
        {"value": np.array([1.0])},
    )
    lines = list(metric_lines(summarise(all_metrics()["relevance"], outcomes)))
    assert (
        lines[-1]
        == "  Coverage: 1 of 4 scored; 2 failed; 1 abstained; 3 not applicable; judged by a"
    )


def task_metric(name: str, mean: float | None, **fields: Any) -> TaskMetric:
    empty = dict.fromkeys(
        ("n_failed", "calls", "cached", "fallbacks", "cost_usd", "input_tokens", "output_tokens"), 0
    )
    rest = {
        "n": 4,
        "n_scored": 4,
        "stderr": None,
        "coverage": 1.0,
        "error_rate": 0.0,
        "latency_s_mean": None,
    }
    return TaskMetric.model_validate({**empty, **rest, "metric": name, "mean": mean, **fields})


AGREED = Agreement(n=4, both=2, neither=1, only_judge=1, only_rule=0, share=0.75, kappa=0.5)
SAME = Agreement(n=1, both=1, neither=0, only_judge=0, only_rule=0, share=1.0, kappa=None)
FORMS = {"chat": 1, "plain": 1}
TASKS = (
    TaskSummary(
        candidate="gemma", task="hotpotqa", bucket=None, n=4, agreement=AGREED,
        metrics=(
            task_metric("semantic_correctness", 0.75, n_failed=1, coverage=0.8, calls=5,
            cost_usd=0.0125, fallbacks=2),
            task_metric("rule_score", 0.5),
            task_metric("coherence", 4.5),
        ),
    ),
    TaskSummary(
        candidate="gemma", task="hotpotqa", bucket="0-4k", n=1, agreement=SAME,
        metrics=(task_metric("semantic_correctness", 1.0, calls=1), task_metric("rule_score",
        0.6249)),
    ),
    TaskSummary(
        candidate="gemma", task="lcc", bucket=None, n=10,
        metrics=(task_metric("rule_score", None, coverage=0.0, n_failed=10),
        task_metric("coherence", None)),
    ),
)  # fmt: skip
MEANS = {"semantic_correctness": 0.75, "rule_score": 0.5, "coherence": 4.5}
MACRO = MacroSummary(
    candidate="gemma", n=14, means=MEANS, n_tasks=dict.fromkeys(MEANS, 1), agreement=AGREED
)
HEAT = HeatMap(
    candidate="gemma", metric="semantic_correctness", scale=(0, 1), lengths=(4096, 131072),
    depths=(0, 33.333, 100),
    values=((1.0, 0.5), (None, 0.0), (0.99, 0.2)), n=((3, 3), (0, 2), (3, 3)),
    without_depth=(0.25, None), n_without_depth=(3, 0),
)  # fmt: skip


def below(text: str, title: str) -> list[str]:
    """The lines of a titled section."""
    lines = text.splitlines()
    start = lines.index(title) + 2
    return lines[start : lines.index("", start)]


def with_verdicts(judges: Mapping[str, int], **fields: Any) -> Summary:
    """A summary with a table by task, whose verdicts these judges gave."""
    n = sum(judges.values())
    values = {part: np.zeros(n) for part in all_metrics()["semantic_correctness"].columns} | {
        "value": np.ones(n)
    }
    verdicts = summarise(
        all_metrics()["semantic_correctness"], MetricColumns("gemma", {"scored": n}, judges, values)
    )
    whole = summary()
    tables = {
        "metrics": (*whole.metrics, verdicts),
        "tasks": TASKS,
        "macro": (MACRO,),
        "n_disagreements": 1,
        **fields,
    }
    return whole.model_copy(update=tables)


def test_a_run_with_tasks_has_a_table_a_candidate() -> None:
    text = render(with_verdicts({"openai/gpt-4o": 3, "string_match": 2}))
    assert "\n".join(below(text, "TASKS - gemma")) + "\n" == EXPECTED_TASKS
    others = text[text.index("task      coherence") :].splitlines()
    assert others[:5] == [
        "task      coherence", "hotpotqa     4.5000", "  0-4k            " "" "" "-",
        "lcc               -", "macro        4.5000",
    ]  # fmt: skip
    assert (
        "Fallbacks: 2 scores are a rule's, because the judge failed; agreement leaves them out."
        in text
    )
    assert (
        "gpt-4o and rule disagree on 1 unit, listed in disagreements.jsonl of the run folder"
        in text
    )
    assert (
        "  Coverage: 5 of 5 scored, 2 by string match; judged by openai/gpt-4o 3, string_match 2"
        in text
    )
    assert "  Correct:         100.0%  2 of 5 by string match  (higher is better)" in text


@pytest.mark.parametrize(
    ("judges", "label"),
    [
        ({"rules": 2}, "estimate"),
        ({"rules+minilm": 2, "rules (empty response)": 1}, "estimate"),
        ({"openai/gpt-4o": 1, "rules (empty response)": 1}, "gpt-4o"),
        ({"openai/gpt-4o + google/gemini": 2, "zero": 1}, "jury"),
        ({"openai/gpt-4o": 1, "google/gemini": 2}, "judges"),
        ({"openai/a-model-with-a-very-long-name": 1}, "a-model-with-a-ver"),
        ({"zero": 1}, "judge"),
    ],
)
def test_the_column_of_verdicts_is_named_after_who_judged(
    judges: dict[str, int], label: str
) -> None:
    judged = with_verdicts(judges)
    assert judge_label(judged, "gemma") == judge_label(judged) == label
    assert judge_label(judged, "another") == "judge"
    assert f"{label}, rule: mean x 100;" in render(judged)


def test_an_estimate_is_marked_in_every_line_of_a_table_by_task() -> None:
    estimated = TASKS[0].model_copy(
        update={
            "metrics": (
                task_metric("semantic_correctness", 0.75, estimates=4),
                task_metric("rule_score", 0.5),
                task_metric("coherence", 4.5, n_scored=3, estimates=1),
            )
        }
    )
    lines = render(with_verdicts({"rules": 4}, tasks=(estimated,))).splitlines()
    rows = [line for line in lines if line.startswith(("hotpotqa", "macro"))]
    assert [row.endswith("  estimate") for row in rows] == [True, True, False, False]
    assert [row.endswith("  4.5000 estimate for 1 of 3") for row in rows] == [
        False,
        False,
        True,
        True,
    ]
    assert (
        "Estimate and rule disagree on 1 unit, listed in disagreements.jsonl of the run folder"
        in lines
    )


def test_a_metric_that_needs_a_judge_is_in_the_notes_alone() -> None:
    outcomes = MetricColumns("c", {"not_applicable": 3}, {}, {"value": np.array([])})
    idle = summarise(all_metrics()["safety"], outcomes).model_copy(update={"reason": NEEDS_JUDGE})
    note = f"not scored: safety; each {NEEDS_JUDGE}."
    found = summary().model_copy(update={"metrics": (idle,), "notes": (note,)})
    assert "SAFETY" not in render(found)
    assert f"Note: {note}" in render(found)
    screen = render_brief(found, "results/r")
    assert screen.count("safety") == 1
    assert not any(line.startswith("safety") for line in screen.splitlines())


@pytest.mark.parametrize(
    ("metric", "worth"),
    [
        ("semantic_correctness", "kappa 0.60 on 1130 labelled answers (EVOUNA,"),
        ("safety", "withdrawn; score it again"),  # a run of before
    ],
)
def test_an_estimate_says_what_it_is_worth(metric: str, worth: str) -> None:
    columns = {part: np.zeros(1) for part in all_metrics()[metric].columns} | {"value": np.ones(1)}
    outcomes = MetricColumns("c", {"scored": 1}, {"rules": 1}, columns)
    lines = list(metric_lines(summarise(all_metrics()[metric], outcomes)))
    assert any("  estimate  (higher is better)" in line for line in lines)
    assert f"  Estimate by rules: {worth}" in lines


def test_some_estimates_among_verdicts_are_counted() -> None:
    outcomes = MetricColumns(
        "c", {"scored": 2}, {"rules": 1, "openai/gpt-4o": 1}, {"value": np.array([1.0, 0.5])}
    )
    lines = list(metric_lines(summarise(all_metrics()["relevance"], outcomes)))
    assert "  Average Relevance: 0.7500  estimate for 1 of 2  (higher is better)" in lines


def test_without_tasks_judge_and_rule_are_compared_in_a_line() -> None:
    macro = MacroSummary(candidate="gemma", n=4, means={}, n_tasks={}, agreement=AGREED)
    text = render(summary().model_copy(update={"macro": (macro,), "n_disagreements": 0}))
    assert below(text, "JUDGE AGAINST RULE - gemma") == [
        "Judge and rule agree on 75.0% of 4 units, kappa 0.50"
    ]
    assert "Judge and rule disagree on 0 units\n" in text


def test_a_run_that_only_generated_has_no_empty_table() -> None:
    tasks = (TaskSummary(candidate="gemma", task="lcc", bucket=None, n=3, metrics=()),)
    macro = (MacroSummary(candidate="gemma", n=3, means={}, n_tasks={}),)
    assert render(summary().model_copy(update={"tasks": tasks, "macro": macro})) == render(
        summary()
    )


def test_the_heat_map_is_a_grid_of_percents() -> None:
    text = render(summary().model_copy(update={"heat_maps": (HEAT,)}))
    assert (
        "\n".join(below(text, "LENGTH BY DEPTH: semantic_correctness - gemma")) + "\n"
        == EXPECTED_HEAT
    )


def test_a_metrics_own_scale_is_its_hundred_percent() -> None:
    five = HEAT.model_copy(
        update={"scale": (1, 5), "values": ((5.0, 1.0), (3.0, 2.0), (None, 4.0))}
    )
    text = render(summary().model_copy(update={"heat_maps": (five,)}))
    assert "      0% █100%    0%\n   33.3% ▒ 50% ░ 25%\n    100%     - ▓ 75%\n" in text


def test_the_largest_heat_map_fits_eighty_columns_and_more_lengths_go_on_below() -> None:
    def heat(n_lengths: int) -> HeatMap:
        lengths, depths = (
            tuple(float(1024 << i) for i in range(n_lengths)),
            tuple(float(5 * i) for i in range(21)),
        )
        return HEAT.model_copy(
            update={
                "lengths": lengths, "depths": depths, "without_depth": (1.0,) * n_lengths,
                "n_without_depth": (1,) * n_lengths,
                "values": ((1.0,) * n_lengths,) * 21, "n": ((1,) * n_lengths,) * 21,
            }
        )  # fmt: skip

    title = "LENGTH BY DEPTH: semantic_correctness - gemma"
    lines = below(render(summary().model_copy(update={"heat_maps": (heat(12),)})), title)
    assert len(lines) == 1 + 1 + 21 + 1
    assert max(map(len, lines)) == 80
    lines = below(render(summary().model_copy(update={"heat_maps": (heat(13),)})), title)
    assert len(lines) == 1 + 2 * (1 + 21 + 1)
    assert max(map(len, lines)) == 80


def test_a_heat_map_without_any_score_is_left_out() -> None:
    nothing = HEAT.model_copy(
        update={"n": ((0, 0),) * 3, "values": ((None, None),) * 3, "n_without_depth": (0, 0)}
    )
    assert render(summary().model_copy(update={"heat_maps": (nothing,)})) == render(summary())


@pytest.mark.parametrize(
    ("length", "label"),
    [
        (512, "512"),
        (4096, "4k"),
        (4000, "4000"),
        (1 << 20, "1M"),
        (128_000, "125k"),
        (100_000, "~98k"),
        (1_500_000, "~1.4M"),
    ],
)
def test_a_length_has_a_short_label(length: float, label: str) -> None:
    assert length_label(length) == label


def test_what_a_prompt_cache_saved_stands_in_the_summary() -> None:
    used = PromptCacheUse(
        input_tokens=200_000,
        cached_input_tokens=168_000,
        cache_write_tokens=9_000,
        saved_usd=0.7447,
    )
    text = render(summary().model_copy(update={"prompt_cache": used}))
    line = "84.0% of 200,000 input tokens were read from it, 9,000 written; it saved $0.7447"
    assert f"\nPrompt Cache of Judges: {line}\n" in text
    implicit = used.model_copy(update={"cache_write_tokens": 0, "saved_usd": -0.5})
    text = render(summary().model_copy(update={"prompt_cache": implicit}))
    assert "were read from it; it saved $-0.5\n" in text


def test_what_is_out_of_the_ordinary_with_prompts_is_said() -> None:
    odd = GENERATION.model_copy(
        update={
            "cached_tokens": 7,
            "cache_hit_rate": 0.7,
            "truncated": 1,
            "thinking": 2,
            "prompt_forms": {"chat": 1, "plain": 1},
        }
    )
    text = render(summary().model_copy(update={"candidates": (odd,)}))
    for line in (
        "Prefix Cache: 7 prompt tokens were in it already, 70.0% of those measured",
        "Truncated: 1 of 2 prompts lost their middle to fit the model",
        "Thinking: 2 of 2 answers held thinking blocks, not judged",
        "Prompt Forms: 1 chat, 1 plain",
    ):
        assert f"\n{line}\n" in text
    ordinary = GENERATION.model_copy(update={"prompt_forms": {"chat": 2}})
    assert "Prompt Forms" not in render(summary().model_copy(update={"candidates": (ordinary,)}))


EXPECTED_TASKS = """\
task       n  gpt-4o   rule   agree  kappa   cover  errors  calls    cost
hotpotqa   4   75.00  50.00   75.0%   0.50   80.0%       1      5  0.0125  2 of 4 by fallback
  0-4k     1  100.00  62.49  100.0%      -  100.0%       0      1       -
lcc       10       -      -       -      -    0.0%      10      0       -
macro     14   75.00  50.00   75.0%   0.50              11      5  0.0125  2 of 4 by fallback
gpt-4o, rule: mean x 100; macro: the mean of the task means. cover: share scored of
the least covered metric. errors, calls, cost ($): over all metrics.
"""

EXPECTED_HEAT = """\
Mean as percent. Columns: length in tokens; rows: depth. 2 to 3 scored a cell
   depth    4k  128k
      0% █100% ▒ 50%
   33.3%     -    0%
    100% █ 99% ░ 20%
no depth ░ 25%     -
"""
