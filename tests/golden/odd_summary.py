"""A made-up summary of all that is out of the ordinary: the stored runs have none of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from memray_eval.metric import MetricColumns, summarise
from memray_eval.metrics import all_metrics
from memray_eval.types import (
    Agreement,
    Cause,
    GenerationSummary,
    HeatMap,
    MacroSummary,
    MetricSummary,
    PromptCacheUse,
    Summary,
    TaskMetric,
    TaskSummary,
)

GENERATION = GenerationSummary(
    candidate="gemma", model="gemma3:4b", n=12, n_failed=1, prompt_tokens=10, output_tokens=20,
    output_tokens_per_s=5.0, ttft_s_mean=0.25, ttft_s_p95=0.5, duration_s_mean=1.0,
    finish_reasons={"stop": 7, "length": 3}, cached_tokens=7, cache_hit_rate=0.7, truncated=1,
    thinking=2, prompt_forms={"chat": 1, "plain": 1}, uncounted=2,
    no_answer={"limit": 3, "refusal": 1}, answered=7, asked_again=2, answered_then=1,
)  # fmt: skip


def columns(name: str, values: list[float], **parts: list[float]) -> dict[str, np.ndarray]:
    nothing = dict.fromkeys(all_metrics()[name].columns, np.zeros(len(values)))
    by_part = {"value": values, **parts}
    return nothing | {part: np.array(figures, float) for part, figures in by_part.items()}


def metric(
    name: str, counts: Mapping[str, int], judges: Mapping[str, int], *values: float, **parts: Any
) -> MetricSummary:
    of_metric = MetricColumns("gemma", counts, judges, columns(name, list(values), **parts))
    return summarise(all_metrics()[name], of_metric)


def task_metric(name: str, mean: float | None, **fields: Any) -> TaskMetric:
    empty = dict.fromkeys(
        ("n_failed", "calls", "cached", "fallbacks", "cost_usd", "input_tokens", "output_tokens"), 0
    )
    rest = {"n": 4, "n_scored": 4, "stderr": None, "coverage": 1.0, "error_rate": 0.0}
    named = {"metric": name, "mean": mean, "latency_s_mean": None}
    return TaskMetric.model_validate(empty | rest | named | fields)


AGREED = Agreement(n=4, both=2, neither=1, only_judge=1, only_rule=0, share=0.75, kappa=0.5)
SAME = Agreement(n=1, both=1, neither=0, only_judge=0, only_rule=0, share=1.0, kappa=None)
TASKS = (
    TaskSummary(
        candidate="gemma", task="hotpotqa", bucket=None, n=4, agreement=AGREED,
        metrics=(
            task_metric("semantic_correctness", 0.75, n_failed=1, coverage=0.8, calls=5,
                        cost_usd=0.0125, fallbacks=2),
            task_metric("rule_score", 0.5),
            task_metric("coherence", 4.5, n_scored=3, estimates=1),
        ),
    ),
    TaskSummary(
        candidate="gemma", task="hotpotqa", bucket="0-4k", n=1, agreement=SAME,
        metrics=(
            task_metric("semantic_correctness", 1.0, calls=1, unpriced_calls=1, estimates=4),
            task_metric("rule_score", 0.6249),
        ),
    ),
    TaskSummary(
        candidate="gemma", task="lcc", bucket=None, n=10,
        metrics=(task_metric("rule_score", None, coverage=0.0, n_failed=10),
                 task_metric("coherence", None)),
    ),
)  # fmt: skip
MEANS = {"semantic_correctness": 0.75, "rule_score": 0.5, "coherence": 4.5}
MACROS = (
    MacroSummary(
        candidate="gemma", n=14, means=MEANS, n_tasks=dict.fromkeys(MEANS, 1), agreement=AGREED
    ),
    MacroSummary(candidate="without tasks", n=4, means={}, n_tasks={}, agreement=AGREED),
)
HEAT = HeatMap(
    candidate="gemma", metric="coherence", scale=(1, 5), lengths=(4096, 131072),
    depths=(0, 33.333, 100), values=((5.0, 3.0), (None, 1.0), (4.9, 2.0)),
    n=((3, 3), (0, 2), (3, 3)), without_depth=(2.0, None), n_without_depth=(3, 0),
)  # fmt: skip


def odd_summary() -> Summary:
    mixed = {"openai/gpt-4o": 3, "string_match": 2}
    safe = metric("safety", {"not_applicable": 3}, {})
    metrics = (
        metric(
            "groundedness", {"scored": 2, "abstained": 1}, {"a/b": 2}, 1, 0,
            claims=[9, 3], grounded=[9, 0], hallucinated=[0, 3], evidence=[9, 3], unverified=[3, 0],
        ),
        metric("coherence", {"scored": 100}, {"rules": 100},
               *[5.0] * 35, *[4.0] * 42, *[3.0] * 18, *[2.0] * 4, 1.0),
        metric("relevance", {"scored": 2, "error": 2, "not_applicable": 3},
               {"rules": 1, "openai/gpt-4o": 1}, 1.0, 0.5),
        metric("helpfulness", {"scored": 1}, {"rules": 1}, 3.0),
        safe.model_copy(update={"reason": "rules cannot tell: so it is"}),
        metric("semantic_correctness", {"scored": 5}, mixed, *[1.0] * 5),
        metric("empathy", {"scored": 12}, {"fake/m": 9, "zero": 2, "default": 1}, *[4.0] * 12),
    )  # fmt: skip
    causes = [
        Cause(cause=f"cause {n}", n_units=9 - n, example=f"cause {n}; it said: x", unit_id=f"u{n}")
        for n in range(7)
    ]
    replaced = [
        Cause(cause=cause, n_units=n, example=cause, unit_id="u")
        for cause, n in (("Unavailable: h refused the connection", 3), ("Malformed: no verdict", 1))
    ]
    cache = PromptCacheUse(
        input_tokens=200_000, cached_input_tokens=168_000, cache_write_tokens=9_000, saved_usd=0.7
    )
    return Summary(
        run_id="r", suite="memory", n_samples=12, n_invalid=2, n_units=12, n_failed_units=9,
        generation_s=4.0, evaluation_s=1.0, total_s=6.5, candidates=(GENERATION,), metrics=metrics,
        notes=("an estimate", "a note of many words, " + "word " * 90), causes=tuple(causes),
        replaced=tuple(replaced), prompt_cache=cache, tasks=TASKS, macro=MACROS, n_disagreements=1,
        heat_maps=(HEAT,),
    )  # fmt: skip
