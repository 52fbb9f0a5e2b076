"""What is said before a run, against what the provider counted after it."""

from pathlib import Path

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.estimate import Estimate, estimate_lines
from memray_eval.execution.runs import estimate_of
from tests.build import finish, judging_job, write_responses
from tests.servers.process import serving_process

pytestmark = pytest.mark.night

METRICS = ("helpfulness", "empathy", "safety", "memory_utilization", "conversational_continuity")
UNITS, REQUESTS_PER_MIN = 100, 1000


def priced(config: RunConfig, folder: Path, **changes: object) -> RunConfig:
    """The job with a price for its judge: a dollar for a thousand tokens in, two out."""
    models = folder / "judges.yaml"
    models.write_text("models: {openai/local: {input_usd: 1000, output_usd: 2000}}")
    judging = config.judging.model_copy(update={"models": str(models), **changes})
    return config.model_copy(update={"judging": judging})


def test_calls_tokens_dollars_and_time_are_said_within_a_fifth(tmp_path: Path) -> None:
    with serving_process(
        latency_s=0.2, requests_per_min=REQUESTS_PER_MIN, count_tokens=True
    ) as server:
        limits = {"openai/local": {"requests_per_min": REQUESTS_PER_MIN}}
        data, out = write_responses(tmp_path, UNITS), tmp_path / "out"
        config = judging_job(data, out, server.base_url, METRICS, limits=limits)
        config = priced(config, tmp_path)
        # What the local provider's have, about
        assumptions = config.assumptions.model_copy(update={"verdict_tokens": 65.0})
        config = config.model_copy(update={"assumptions": assumptions})
        before = estimate_of(config)
        assert server.stats()["n_requests"] == 0
        done = finish(config)
        stats = server.stats()
    spent = sum(score.cost_usd for record in done.folder.each() for score in record.scores)
    judging_s = next(stage.seconds for stage in before.stages if stage.stage == "judge")
    pairs = {
        "calls": (before.calls, stats["n_answered"]),
        "input tokens": (sum(judge.input_tokens for judge in before.judges), stats["input_tokens"]),
        "output tokens": (sum(of.output_tokens for of in before.judges), stats["output_tokens"]),
        "dollars": (before.usd, spent),
        "judging, seconds": (judging_s, stats["last_arrival_s"] - stats["first_arrival_s"]),
    }
    print(pairs)
    for what, (estimated, real) in pairs.items():
        assert estimated == pytest.approx(real, rel=0.2), what
    assert before.calls == UNITS * len(METRICS)
    assert before.bottleneck == f"judge: openai/local, {REQUESTS_PER_MIN:,} requests/min"
    assert any("openai/local: 500 calls" in line for line in estimate_lines(before))
    assert stats["n_429"] == 0


def test_a_run_that_may_cost_much_is_not_started_without_a_budget_or_a_yes(tmp_path: Path) -> None:
    estimates: list[Estimate] = []
    data, out = write_responses(tmp_path, 3), tmp_path / "out"
    config = judging_job(data, out, "http://127.0.0.1:9/v1", METRICS)
    config = priced(config, tmp_path, tries=1)
    dear = config.model_copy(update={"dataset": str(write_responses(tmp_path, 40))})
    with pytest.raises(ConfigError, match=r"set one \(--budget-usd, budget.usd\), or agree"):
        finish(dear, agree=lambda before: bool(estimates.append(before)))
    assert estimates[0].usd > 10
    assert not (tmp_path / "out").exists()
    # Cheap: nobody is asked
    assert finish(config).summary.n_failed_units == 3
