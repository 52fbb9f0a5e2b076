"""What a run would take: the arithmetic, what binds, what is not estimated, and what the command
refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import Assumptions, Budget, ClusterConfig
from memray_eval.execution.estimate import STARTUP_S, Estimate, estimate_lines
from memray_eval.execution.runs import estimate_of
from tests.build import JUDGE, judging_job, write_lines, write_long_memories, write_responses
from tests.conftest import REPOSITORY, SAMPLES, Call

URL, METRICS = "http://127.0.0.1:9/v1", ("empathy", "safety")
GIVEN = {"suite": "chat", "candidates": [{"name": "m", "model": "m", "backend": "given"}]}
EMBEDDING = "embedding of texts (embedding.model is local)"
MINUTE_S = 60.7  # a minute's calls are spread over so long: judges/limits/rate_pacer.py


def judging(tmp_path: Path, **settings: Any) -> RunConfig:
    """Ten responses, two judged metrics, no limit known."""
    dataset = write_responses(tmp_path, 10)
    return judging_job(dataset, tmp_path, URL, METRICS, latency_s=3.0, **settings)


def generating(replicas: int | dict[str, int] = 1, **changes: Any) -> RunConfig:
    """The 120 shipped samples for one model on GPUs, no judge."""
    data = {
        "dataset": str(SAMPLES),
        "candidates": [{"name": "a", "model": "m", "sampling": {"max_tokens": 200}}],
        "judge": "rules",
        "engine": {"device": "gpu", "replicas": replicas},
        "assumptions": {"engine_tokens_per_s": 1000, "output_share": 0.5},
    }
    return RunConfig.model_validate(data | changes)


def seconds(estimate: Estimate) -> dict[str, float]:
    return {bound.what: bound.seconds for bound in estimate.bounds}


def test_each_limit_makes_its_seconds_and_the_slowest_binds(tmp_path: Path) -> None:
    limits = {"requests_per_min": 500, "tokens_per_min": 1e6, "concurrency": 6}
    estimate = estimate_of(
        judging(tmp_path, limits={JUDGE: limits}, max_in_flight=100), samples=1_000_000
    )
    calls, (judge,) = 2_000_000, estimate.judges
    assert (estimate.units, estimate.calls, judge.calls) == (1_000_000, calls, calls)
    assert seconds(estimate) == pytest.approx(
        {
            f"{JUDGE}, 500 requests/min": calls * MINUTE_S / 500,
            f"{JUDGE}, 1,000,000 tokens/min": (judge.input_tokens + judge.output_tokens)
            * MINUTE_S
            / 1e6,
            f"{JUDGE}, 6 calls in flight of 3 s": calls * 3.0 / 6,
        }
    )
    assert [bound.seconds for bound in estimate.bounds] == sorted(
        seconds(estimate).values(), reverse=True
    )
    assert estimate.bottleneck == f"judge: {JUDGE}, 6 calls in flight of 3 s"
    assert estimate.wall_s == pytest.approx(STARTUP_S["given"] + calls * 3.0 / 6)
    assert judge.bound_by == "6 calls in flight of 3 s"


def test_calls_in_flight_that_follow_from_a_limit_are_no_bound_of_their_own(tmp_path: Path) -> None:
    firm = {"limits": {JUDGE: {"requests_per_min": 500}}}
    for settings, is_bound in (({}, True), (firm, False), ({**firm, "max_in_flight": 8}, True)):
        bounds = seconds(estimate_of(judging(tmp_path, **settings)))
        assert any("in flight" in what for what in bounds) == is_bound


def test_a_baseline_asks_no_model() -> None:
    server = {"backend": "openai", "base_url": URL}
    model = {"name": "a", "model": "m", "sampling": {"max_tokens": 200}, **server}
    alone, beside, baselines = (
        estimate_of(generating(suite="memory", candidates=candidates))
        for candidates in (
            [model],
            [model, {"baseline": "dump"}],
            [{"baseline": "dump"}, {"baseline": "none"}],
        )
    )
    assert (beside.units, alone.units) == (240, 120)
    assert beside.prompt_tokens == pytest.approx(alone.prompt_tokens, rel=0.05)
    assert beside.output_tokens == alone.output_tokens == 120 * 100
    assert seconds(beside).keys() == seconds(alone).keys()
    assert (baselines.prompt_tokens, baselines.output_tokens) == (0, 0)
    assert baselines.stages == ()
    assert baselines.bottleneck == "no limit"


@pytest.mark.parametrize(
    ("baseline", "metrics", "is_embedded"),
    [
        ("embedding_retrieval", ["memory_conduct"], True),
        ("none", ["memory_conduct"], False),
        ("none", ["memory_utilization"], True),
    ],
)
def test_what_takes_time_and_is_not_estimated_is_said(
    tmp_path: Path, baseline: str, metrics: list[str], is_embedded: bool
) -> None:
    rows = [{"id": name, "query": "S", "memory": {"a": "x", "b": "yy"}} for name in "ab"]
    keys = {"candidates": [{"baseline": baseline}], "metrics": metrics, "suite": "memory"}
    dataset = str(write_lines(tmp_path / "rows.jsonl", rows))
    estimate = estimate_of(generating(dataset=dataset, **keys))
    lines = list(estimate_lines(estimate))
    assert estimate.not_estimated == ((EMBEDDING,) if is_embedded else ())
    assert (f"  not estimated: {EMBEDDING}" in lines) == is_embedded
    assert f"$0.00, {'time not estimated' if is_embedded else '12 s'} (an estimate" in lines[0]
    assert f"  bottleneck: no limit{' (of what is estimated)' * is_embedded}" in lines


def test_the_thinking_of_a_judge_is_not_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    dataset, judges = str(write_responses(tmp_path, 10)), ["openai/gpt-4o"]
    for thinking in ((), ("anthropic/claude-opus-5-5",)):
        keys = {"dataset": dataset, "metrics": ["politeness"], "judge": [*judges, *thinking]}
        estimated = estimate_of(RunConfig.model_validate(GIVEN | keys))
        expected = [f"the thinking of {name}, which is billed as output" for name in thinking]
        assert [*estimated.not_estimated] == expected


@pytest.mark.parametrize("own", [{}, {"emotion": {"joy": 1.0}}, {"traits": {"openness": 0.5}}])
@pytest.mark.parametrize("reads", [("judge", "judge"), ("judge", "given"), ("off", "judge")])
def test_a_judge_of_affect_is_asked_once_for_each_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: tuple[str, str], own: dict[str, Any]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    rows = [{"id": f"{number}", "query": "S", "memory": {"a": "x"}, **own} for number in range(30)]
    affect = {"emotion": reads[0], "traits": reads[1], "judge": "openai/gpt-4o", "enabled": True}
    keys = {"candidates": [{"baseline": "dump"}, {"baseline": "none"}], "epochs": 2}
    keys |= {"dataset": str(write_lines(tmp_path / "rows.jsonl", rows)), "affect": affect}
    estimated = estimate_of(generating(suite="memory", metrics=["safety"], **keys))
    readers = {"emotion": reads[0], "traits": reads[1]}
    n_asked = sum(readers[what] == "judge" and what not in own for what in readers)
    assert estimated.calls == 30 * n_asked
    assert all(judge.input_tokens > 30 * n_asked * 100 for judge in estimated.judges)


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_rows_are_spread_over_a_file_of_any_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    texts = ["Short."] * 300 + ["A long answer of many words. " * 300] * 700
    rows = [{"id": f"{n}", "query": "Q?", "response": text} for n, text in enumerate(texts)]
    path = tmp_path / f"rows.{kind}"
    lines = "\n".join(map(json.dumps, rows))
    path.write_text(json.dumps(rows) if kind == "json" else lines)
    keys = {"dataset": str(path), "metrics": ["politeness"], "judge": "openai/gpt-4o"}
    (judge,) = estimate_of(RunConfig.model_validate(GIVEN | keys)).judges
    rubric = judge.input_tokens - sum(map(len, texts)) / 4
    assert 0 < rubric < 1000 * 3000


def test_engines_whose_speed_nobody_measured_are_not_estimated() -> None:
    measured = generating(replicas=4, judge="embedded:org/j", metrics=["empathy"])
    unknown = measured.model_copy(update={"assumptions": Assumptions()})
    estimated, silent = (estimate_of(job, samples=60_000) for job in (measured, unknown))
    assert not estimated.not_estimated
    assert estimated.stages[0].seconds == pytest.approx(60_000 * 100 / (4 * 1000), rel=0.01)
    assert estimated.stages[0].what == "4 engines of 1,000 tokens/s"
    (line,) = silent.not_estimated
    assert "assumptions.engine_tokens_per_s" in line
    assert [stage.stage for stage in silent.stages] == ["judge"]
    assert not any("engine" in bound.what for bound in silent.bounds)
    assert "at least " in next(estimate_lines(silent))
    assert "at least " not in next(estimate_lines(estimated))


@pytest.mark.parametrize("own", [True, False])
def test_prompts_are_cut_to_the_window_as_in_the_run(tmp_path: Path, own: bool) -> None:
    row = {"task": "qasper", "query": "What?", "context": "x" * 80_000, "answers": ["x"]}
    rows = [{"id": f"{number}", **row} for number in range(16)]
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps({"max_position_embeddings": 9000}))
    model = {"name": "a", "model": str(tmp_path / "m"), "sampling": {"max_tokens": 16}}
    job = generating(
        suite="longbench",
        dataset=str(write_lines(tmp_path / "rows.jsonl", rows)),
        candidates=[model],
        engine={"device": "gpu", "max_model_len": None if own else 5000},
    )
    assert estimate_of(job).prompt_tokens == 16 * ((9000 if own else 5000) - 16)


def test_more_samples_are_more_of_the_same(tmp_path: Path) -> None:
    """Prompts are built for those that are there."""
    few, many = (estimate_of(judging(tmp_path), samples=n) for n in (None, 10 * 50_000))
    assert (few.units, many.units) == (10, 500_000)
    assert many.calls == 50_000 * few.calls
    assert round(many.judges[0].input_tokens / 50_000) == few.judges[0].input_tokens  # whole ones
    assert "prompts built for 10 of 500,000 answers; a token is 4 characters" in many.assumptions


def test_the_engines_of_a_judge_take_their_time() -> None:
    job = generating(
        judge="embedded:org/j",
        metrics=["empathy"],
        engines={"org/j": {"replicas": 2}},
        assumptions={"verdict_tokens": 200, "engine_tokens_per_s": 10},
    )
    estimate = estimate_of(job, samples=1_000_000)
    (judge,) = estimate.judges
    assert seconds(estimate)["embedded:org/j, 2 engines of 10 tokens/s"] == judge.seconds
    assert judge.seconds == pytest.approx(1_000_000 / 2 * 200 / 10)
    assert judge.bound_by == "2 engines of 10 tokens/s"
    assert any("an engine " in line for line in estimate.assumptions)


def test_phases_apart_add_up() -> None:
    limits = {JUDGE: {"requests_per_min": 60}}
    local = {"base_urls": {"openai": URL}, "limits": limits}
    judged = generating(judge=JUDGE, metrics=METRICS, judging=local)
    together, apart = (
        estimate_of(judged.model_copy(update={"cluster": ClusterConfig(phases=phases)}))
        for phases in ("together", "apart")
    )
    generate_s, judge_s = (stage.seconds for stage in apart.stages)
    assert min(generate_s, judge_s) > 0
    assert together.wall_s == STARTUP_S["vllm"] + max(generate_s, judge_s)
    assert apart.wall_s == STARTUP_S["vllm"] + STARTUP_S["given"] + generate_s + judge_s
    assert "  phases: apart (cluster.phases says so)" in estimate_lines(apart)


def test_models_that_answer_one_after_the_other_take_the_sum() -> None:
    pair = [{"name": name, "model": name, "sampling": {"max_tokens": 200}} for name in "ab"]
    in_turn, together = (
        estimate_of(
            generating(candidates=pair, cluster={"models_at_once": at_once}), samples=60_000
        )
        for at_once in (1, 2)
    )
    alone_s = 60_000 * 100 / 1000
    assert in_turn.stages[0].seconds == pytest.approx(2 * alone_s, rel=0.01)
    assert together.stages[0].seconds == pytest.approx(alone_s, rel=0.01)
    seen = in_turn.bottleneck
    assert seen == "generate: 2 rounds of models, the longest with 1 engine of 1,000 tokens/s"
    assert (in_turn.startup_s, together.startup_s) == (2 * STARTUP_S["vllm"], STARTUP_S["vllm"])


def test_a_budget_that_does_not_suffice_is_said(tmp_path: Path) -> None:
    table = tmp_path / "judges.yaml"
    table.write_text(f"models: {{{JUDGE}: {{input_usd: 1000, output_usd: 2000}}}}")
    config = judging(tmp_path, models=str(table))
    usd = estimate_of(config).usd
    assert usd > 0
    for budget, is_said in ((usd / 4, True), (2 * usd, False)):
        limited = config.model_copy(update={"budget": Budget(usd=budget)})
        lines = [line for line in estimate_lines(estimate_of(limited)) if "would stop it" in line]
        line = f"  the budget would stop it at 25.0%: budget.usd is {budget:g}"
        assert lines == [line] * is_said


def test_metrics_that_nobody_would_score_are_said(tmp_path: Path) -> None:
    criteria = {"suite": "healthbench", "dataset": str(REPOSITORY / "dataset/criteria")}
    estimate = estimate_of(generating(**criteria))
    assert (estimate.calls, len(estimate.warnings)) == (0, 1)
    assert estimate.warnings[0].startswith("not scored, and not in the estimate: criteria (")
    assert not estimate_of(judging(tmp_path)).warnings


CLUSTER_JOB = ("estimate", str(REPOSITORY / "cluster" / "job.yaml"))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *[("1e6", 1_000_000), ("1_000_000", 1_000_000), ("7", 7), ("2.5e3", 2500)],
        *((text, None) for text in ("0", "-5", "1.5", "many", "", "inf", "nan", "1e-3")),
    ],
)
def test_numbers_of_samples(cli: Call, text: str, count: int | None) -> None:
    code, out, err = cli(*CLUSTER_JOB, "--judge", "rules", f"--samples={text}", "--json")
    if count is None:
        assert (code, out) == (2, "")
        assert f"--samples {text}: write a whole number from 1 on, such as" in err
    else:
        assert (code, json.loads(out)["units"]) == (0, count)


def test_what_a_prompt_cache_can_hold_is_said_with_the_cost_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    keys = {
        "dataset": str(write_long_memories(tmp_path, 2, 5000)),
        "candidates": [
            {"name": name, "model": "m", "backend": "openai", "base_url": URL} for name in "ab"
        ],
        "metrics": ["groundedness", "memory_utilization"],
        "judging": {"repeats": 3},
    }
    estimate, no_floor = (
        estimate_of(generating(judge=f"anthropic/claude-opus-{version}", **keys))
        for version in ("4-5", "5-5")
    )
    (judge,) = estimate.judges
    assert judge.calls == 2 * 2 * 2 * 3
    # The first of the 12 calls on a memory writes what the others read
    assert 0.70 < judge.cacheable_tokens / judge.input_tokens < 11 / 12
    verdicts = judge.output_tokens * 25.0 / 1e6
    assert judge.usd == pytest.approx(judge.input_tokens * 5.0 / 1e6 + verdicts)
    assert judge.cached_usd < 0.6 * judge.usd
    share = judge.cacheable_tokens / judge.input_tokens
    sentence = f"{share:.0%} of its input can come from its prompt cache: ${judge.cached_usd:,.2f}"
    assert sentence in "\n".join(estimate_lines(estimate))
    assert (no_floor.judges[0].cacheable_tokens, no_floor.judges[0].cached_usd) == (0, None)
    assert "prompt cache" not in "\n".join(estimate_lines(no_floor))
