"""The console summary has seed 000's sections, names and decimals."""

from __future__ import annotations

import numpy as np

from memray_eval.metric import ComputedMetric, Measure, Outcomes, summarise
from memray_eval.metrics import all_metrics
from memray_eval.report.console import render, section
from memray_eval.types import GenerationSummary, Summary

GENERATION = GenerationSummary(
    candidate="gemma", model="gemma3:4b", n=2, n_failed=0, prompt_tokens=10, output_tokens=20, output_tokens_per_s=5.0,
    ttft_s_mean=0.25, ttft_s_p95=0.5, duration_s_mean=1.0, finish_reasons={"stop": 2},
)  # fmt: skip


def summary() -> Summary:
    columns = {
        "memory_utilization": {"tp": [4, 0], "fp": [0, 2], "fn": [0, 2], "value": [1, 0]},
        "groundedness": {"claims": [9, 1], "grounded": [9, 0], "hallucinated": [0, 1], "value": [1, 0]},
        "relevance": {"value": [0.5, 0.75], "cosine": [0.5, 0.75]},
    }
    metrics = tuple(
        summarise(
            all_metrics()[name],
            Outcomes("gemma", {"scored": 2}, {"rules": 2}, {part: np.array(v, dtype=float) for part, v in figures.items()}),
        )
        for name, figures in columns.items()
    )
    return Summary(
        run_id="r", suite="memory", n_samples=2, n_invalid=0, n_units=2, n_failed_units=0, generation_s=4.0, evaluation_s=1.0,
        total_s=6.5, candidates=(GENERATION,), metrics=metrics, notes=("an estimate",),
    )  # fmt: skip


def test_the_whole_summary() -> None:
    assert render(summary()) == EXPECTED


def test_it_prints_the_same_from_its_json() -> None:
    assert render(Summary.model_validate_json(summary().model_dump_json())) == EXPECTED


def test_a_rubric_metric_has_its_distribution_with_bars() -> None:
    metric = ComputedMetric(
        name="coherence",
        title="COHERENCE",
        noun="Coherence",
        scale=(1, 5),
        integer_scale=True,
        measure=lambda s, r: Measure(value=1),
    )
    values = np.array([5.0] * 35 + [4.0] * 42 + [3.0] * 18 + [2.0] * 4 + [1.0])
    lines = list(section(summarise(metric, Outcomes("c", {"scored": 100}, {"rules": 100}, {"value": values}))))
    assert "  Average Coherence: 4.06/5.00  (higher is better)" in lines
    assert "  Median Coherence:  4/5" in lines
    assert "  Std Deviation:     0.88" in lines
    assert "    Score 5:  35 ( 35.0%) ███████" in lines
    assert "    Score 4:  42 ( 42.0%) ████████" in lines
    assert "    Score 2:   4 (  4.0%)" in lines


def test_what_failed_is_said_beside_the_mean() -> None:
    outcomes = Outcomes(
        "c", {"scored": 1, "error": 2, "abstained": 1, "not_applicable": 3}, {"a": 1}, {"value": np.array([1.0])}
    )
    lines = list(section(summarise(all_metrics()["relevance"], outcomes)))
    assert lines[-1] == "  Coverage: 1 of 4 scored; 2 failed; 1 abstained; 3 not applicable; judged by a"


EXPECTED = """\
======================================================================
BENCHMARK EVALUATION SUMMARY
======================================================================
Run: r
Suite: memory
Generation Model: gemma (gemma3:4b)
Judge Model: rules (memory_utilization, groundedness, relevance)
Total Samples: 2
Evaluation Time: 1.00s
Avg Eval Time/Sample: 0.50s
Generation: 10 prompt + 20 output tokens, 5.0 tokens/s, first token 0.25s on average; ended by: 2 stop
======================================================================

[1] MEMORY UTILIZATION ACCURACY
----------------------------------------------------------------------
Micro-averaged (recommended):
  Precision:     0.6667
  Recall:        0.6667
  F1 Score:      0.6667
  Total TP:      4
  Total FP:      2
  Total FN:      2
  Invented Keys: 0  (counted apart)

Macro-averaged (for reference):
  Precision: 0.5000
  Recall:    0.5000
  F1 Score:  0.5000

  Coverage: 2 of 2 scored; judged by rules

----------------------------------------------------------------------
[2] GROUNDEDNESS (HALLUCINATION RATE)
----------------------------------------------------------------------
Micro-averaged (recommended):
  Groundedness Score:  0.9000  (higher is better)
  Hallucination Rate:  0.1000  (lower is better)
  Total Claims:        10
  Grounded Claims:     9
  Hallucinated Claims: 1

Macro-averaged (for reference):
  Groundedness Score: 0.5000
  Hallucination Rate: 0.5000

  Coverage: 2 of 2 scored; judged by rules

----------------------------------------------------------------------
[3] RESPONSE RELEVANCE (EMBEDDING SIMILARITY)
----------------------------------------------------------------------
  Average Relevance: 0.6250  (higher is better)
  Median Relevance:  0.6250
  Min Relevance:     0.5000
  Max Relevance:     0.7500
  Std Deviation:     0.1250
  Total Samples:     2

  Coverage: 2 of 2 scored; judged by rules

======================================================================
Generation took 4.00s
Total pipeline time: 6.50s
Note: an estimate
"""
