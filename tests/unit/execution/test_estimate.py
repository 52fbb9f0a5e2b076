"""What a run would take, on this machine and on a cluster's file: the arithmetic, what binds, and
what the command refuses."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from memray_eval.cli import main
from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.estimate import (
    EMBED_CPU_S,
    STARTUP_S,
    WRITE_CPU_S,
    Estimate,
    parse_node_prices,
    parse_sample_count,
)
from memray_eval.execution.estimate_judges import CALL_CPU_S
from memray_eval.execution.estimate_text import estimate_lines
from memray_eval.execution.executors import duration_text
from memray_eval.execution.prepare.estimates import estimate_of
from memray_eval.execution.ray.cluster_spec import ClusterSpec, NodeGroup
from tests.bench.prompt_cache import samples
from tests.build import JUDGE, judging_job, write_lines, write_responses
from tests.conftest import REPOSITORY, SAMPLES

METRICS = ("empathy", "safety")
OFFER = ClusterSpec(
    where="c.yaml",
    kind="RayCluster",
    groups=(
        NodeGroup(name="head", cpus=0, min_nodes=1, max_nodes=1, is_head=True),
        NodeGroup(name="cpus", cpus=4, min_nodes=1, max_nodes=4),
        NodeGroup(
            name="gpus",
            cpus=16,
            gpus=2,
            accelerator_type="L4",
            min_nodes=0,
            max_nodes=3,
            is_spot=True,
        ),
    ),
)
MINUTE_S = 60.7  # a minute's calls are spread over so long: judges/limits/rate_pacer.py


def judging(tmp_path: Path, **settings: Any) -> RunConfig:
    """Ten responses, two judged metrics, no limit known."""
    return judging_job(
        write_responses(tmp_path, 10),
        tmp_path,
        "http://127.0.0.1:9/v1",
        METRICS,
        latency_s=3.0,
        **settings,
    )


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
        judging(tmp_path, limits={JUDGE: limits}, max_in_flight=100),
        samples=1_000_000,
        cluster_spec=OFFER,
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
            "the CPUs of 4 judge actors": calls * CALL_CPU_S / 4,
            "2 CPUs that fold and write": 1_000_000 * WRITE_CPU_S / 2,
        }
    )
    assert [bound.seconds for bound in estimate.bounds] == sorted(
        seconds(estimate).values(), reverse=True
    )
    assert estimate.bottleneck == f"judge: {JUDGE}, 6 calls in flight of 3 s"
    assert "limits.concurrency" in estimate.bounds[0].change
    assert estimate.wall_s == pytest.approx(STARTUP_S["given"] + calls * 3.0 / 6)
    assert judge.bound_by == "6 calls in flight of 3 s"


def test_calls_in_flight_that_follow_from_a_limit_are_no_bound_of_their_own(tmp_path: Path) -> None:
    firm = {JUDGE: {"requests_per_min": 500}}
    assert not any(
        "in flight" in what for what in seconds(estimate_of(judging(tmp_path, limits=firm)))
    )
    assert any(
        "in flight" in what
        for what in seconds(estimate_of(judging(tmp_path, limits=firm, max_in_flight=8)))
    )
    assert any("in flight" in what for what in seconds(estimate_of(judging(tmp_path))))


def test_a_baseline_asks_no_model() -> None:
    server = {"backend": "openai", "base_url": "http://127.0.0.1:9/v1"}
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
    assert [stage.stage for stage in baselines.stages] == ["embed", "write"]


@pytest.mark.parametrize(
    ("baseline", "metrics", "lines"),
    [
        ("embedding_retrieval", ["memory_conduct"], ["a: x", "b: yy"]),
        ("none", ["memory_conduct"], []),
        ("none", ["memory_utilization"], ["You asked.", "S", "Your a: x", "Your b: yy"]),
    ],
)
def test_what_the_embedding_model_takes(
    tmp_path: Path, baseline: str, metrics: list[str], lines: list[str]
) -> None:
    rows = [{"id": name, "query": "S", "memory": {"a": "x", "b": "yy"}} for name in "ab"]
    keys = {"candidates": [{"baseline": baseline}], "metrics": metrics, "judge": "rules"}
    dataset = str(write_lines(tmp_path / "rows.jsonl", rows))
    estimate = estimate_of(
        RunConfig.model_validate({"suite": "memory", "dataset": dataset, **keys})
    )
    found = [bound for bound in estimate.bounds if bound.stage == "embed"]
    assert len(found) == bool(lines) == sum(stage.stage == "embed" for stage in estimate.stages)
    for bound in found:
        cores = float(bound.what.split()[0])
        assert bound.seconds * cores >= 2 * sum(map(len, lines)) * EMBED_CPU_S * 0.9


def test_more_samples_are_more_of_the_same(tmp_path: Path) -> None:
    """Prompts are built for those that are there."""
    config = judging(tmp_path)
    few, many = estimate_of(config), estimate_of(config, samples=10 * 50_000)
    assert (few.units, many.units) == (10, 500_000)
    assert (many.calls, many.judges[0].input_tokens) == (
        50_000 * few.calls,
        50_000 * few.judges[0].input_tokens,
    )
    assert "prompts built for 10 of 500,000 units; a token is 4 characters" in many.assumptions


def test_engines_are_as_many_as_configured_and_fit() -> None:
    estimate = estimate_of(generating(replicas=4), samples=60_000, cluster_spec=OFFER)
    tokens = 60_000 * 100  # half of max_tokens each
    assert estimate.output_tokens == pytest.approx(tokens, rel=0.01)
    assert estimate.stages[0].seconds == pytest.approx(tokens / (4 * 1000), rel=0.01)
    assert estimate.bottleneck == "generate: 4 engines of 1,000 tokens/s"
    assert estimate.bounds[0].change == "engine.replicas: 2 more fit"
    assert estimate.cluster is not None
    assert {use.group.name: use.nodes for use in estimate.cluster.groups} == {
        "head": 1,
        "cpus": 1,
        "gpus": 2,
    }
    assert (
        estimate_of(generating(replicas=6, metrics=["memory_conduct"]), cluster_spec=OFFER)
        .bounds[0]
        .change
        == "larger groups of nodes: no further engine fits"
    )


@pytest.mark.parametrize(
    ("assumed", "of"),
    [
        ({"engine_tokens_per_s": 1000}, "of 1,000 tokens/s"),
        ({"engine": {"prefill_tokens_per_s": 1e9, "step_s": 0.1}}, "that answer 256 calls at once"),
    ],
)
def test_the_engines_of_a_judge_take_their_time(assumed: dict[str, Any], of: str) -> None:
    job = generating(
        judge="embedded:org/j",
        metrics=["empathy"],
        engines={"org/j": {"replicas": 2}},
        assumptions={"verdict_tokens": 200, **assumed},
    )
    estimate = estimate_of(job, samples=1_000_000, cluster_spec=OFFER)
    (judge,) = estimate.judges
    steps = {"of 1,000 tokens/s": 200 / 1000, "that answer 256 calls at once": 200 * 0.1 / 256}
    assert seconds(estimate)[f"embedded:org/j, 2 engines {of}"] == judge.seconds
    assert judge.seconds == pytest.approx(1_000_000 / 2 * steps[of], rel=0.02)
    assert judge.bound_by == f"2 engines {of}"
    assert any("an engine " in line for line in estimate.assumptions)


def test_of_more_engines_than_fit_only_those_that_do_are_counted() -> None:
    estimate = estimate_of(generating(replicas=40), samples=60_000, cluster_spec=OFFER)
    assert estimate.stages[0].seconds == pytest.approx(60_000 * 100 / (6 * 1000), rel=0.01)
    assert estimate.cluster is not None
    assert estimate.cluster.problems == ("engine.replicas is 40, and 6 fit (m)",)
    assert "  PROBLEM: engine.replicas is 40, and 6 fit (m)" in estimate_lines(estimate)


def test_of_a_range_of_engines_the_least_is_counted_and_the_range_told() -> None:
    ranging, fixed = (
        estimate_of(generating(replicas=replicas), samples=60_000, cluster_spec=OFFER)
        for replicas in ({"min": 2, "max": 8}, 2)
    )
    assert (ranging.wall_s, ranging.bottleneck) == (fixed.wall_s, fixed.bottleneck)
    (line,) = [line for line in estimate_lines(ranging) if "engines of m" in line]
    assert "2 of 1 GPU each (the least of engine.replicas, which lets them grow to 8)" in line


def test_the_driver_bounds_small_batches_of_many_engines() -> None:
    job = generating(replicas=2)

    def driver_s(**engine: int) -> float:
        changed = job.model_copy(update={"engine": job.engine.model_copy(update=engine)})
        found = seconds(estimate_of(changed, samples=1_000_000))
        (driver,) = (each for what, each in found.items() if what.startswith("the driver"))
        return driver

    assert driver_s(batch_size=16) == pytest.approx(driver_s(batch_size=128) + 656, rel=0.01)
    assert driver_s(replicas=64) == pytest.approx(driver_s(replicas=64, batch_size=128))


def test_models_that_answer_one_after_the_other_take_the_sum() -> None:
    pair = [{"name": name, "model": name, "sampling": {"max_tokens": 200}} for name in "ab"]
    in_turn, together = (
        estimate_of(
            generating(candidates=pair, cluster={"models_at_once": at_once}),
            samples=60_000,
            cluster_spec=OFFER,
        )
        for at_once in (1, 2)
    )
    alone_s = 60_000 * 100 / 1000
    assert in_turn.stages[0].seconds == pytest.approx(2 * alone_s, rel=0.01)
    assert together.stages[0].seconds == pytest.approx(alone_s, rel=0.01)
    assert (
        in_turn.bottleneck
        == "generate: 2 rounds of models, the longest with 1 engine of 1,000 tokens/s"
    )
    assert (in_turn.startup_s, together.startup_s) == (2 * STARTUP_S["vllm"], STARTUP_S["vllm"])


def test_node_hours_and_what_they_cost() -> None:
    config = generating(replicas=4)
    estimate = estimate_of(
        config,
        samples=60_000,
        cluster_spec=OFFER,
        node_usd_per_hour={"gpus": 2.0, "cpus": 0.5, "head": 0.25},
    )
    assert estimate.cluster is not None
    hours = estimate.wall_s / 3600
    assert [use.node_hours for use in estimate.cluster.groups] == pytest.approx(
        [hours, hours, 2 * hours]
    )
    assert [use.usd for use in estimate.cluster.groups] == pytest.approx(
        [0.25 * hours, 0.5 * hours, 4.0 * hours]
    )
    assert estimate.cluster.usd == pytest.approx(4.75 * hours)
    assert f"  nodes cost ${4.75 * hours:,.2f}; judges $0.00" in estimate_lines(estimate)


def test_prices_of_the_config_hold_where_the_call_gives_no_other() -> None:
    config = generating(
        assumptions={
            "engine_tokens_per_s": 1000,
            "node_usd_per_hour": {"head": 1, "cpus": 1, "gpus": 1},
        }
    )
    estimate = estimate_of(config, cluster_spec=OFFER, node_usd_per_hour={"gpus": 3.0})
    assert estimate.cluster is not None
    assert estimate.cluster.usd == pytest.approx(5.0 * estimate.wall_s / 3600)


def test_no_price_is_invented() -> None:
    config = generating()
    unpriced = estimate_of(config, cluster_spec=OFFER)
    assert unpriced.cluster is not None
    assert unpriced.cluster.usd is None
    assert (
        "  nodes cost unknown (no price of a node-hour was given); judges $0.00"
        in estimate_lines(unpriced)
    )
    some = estimate_of(config, samples=60_000, cluster_spec=OFFER, node_usd_per_hour={"gpus": 2.0})
    assert some.cluster is not None
    assert some.cluster.usd is None
    assert any("for the groups with a price" in line for line in estimate_lines(some))
    with pytest.raises(
        ConfigError,
        match=r"a node price for 'gpu', which c\.yaml does not have; it has head, cpus, gpus",
    ):
        estimate_of(config, cluster_spec=OFFER, node_usd_per_hour={"gpu": 2.0})


def slowly_judged(phases: str) -> RunConfig:
    """An hour of judging for every three minutes of generating, about."""
    return generating(
        judge=JUDGE,
        metrics=METRICS,
        judging={
            "base_urls": {"openai": "http://127.0.0.1:9/v1"},
            "limits": {JUDGE: {"requests_per_min": 60}},
        },
        cluster={"phases": phases},
    )


def test_what_binds_what_would_next_and_that_gpus_wait_is_said() -> None:
    judged = slowly_judged("together")
    estimate = estimate_of(judged, samples=60_000, cluster_spec=OFFER)
    lines = list(estimate_lines(estimate))
    start = lines.index("  phases: together (cluster.phases says so)")
    assert lines[start - 1] == f"  bottleneck: judge: {JUDGE}, 60 requests/min"
    assert (
        lines[start + 1]
        == f"  binds: {JUDGE}, 60 requests/min: {estimate.calls * MINUTE_S / 60 / 3600:,.1f} h"
    )
    assert lines[start + 2].startswith(
        "    to change that: a higher limit from the provider; fewer metrics"
    )
    assert (
        lines[start + 3] == "    GPUs would be done in 100 min; they are held to the end, unless "
        "cluster.phases is apart"
    )
    assert lines[start + 4] == "  next: 1 engine of 1,000 tokens/s: 100 min"
    assert any(line.startswith("    gpus: 1 x (16 CPUs, 2 L4; 0 to 3 spot): ") for line in lines)


@pytest.mark.parametrize("phases", ["together", "apart"])
def test_node_hours_of_both_orders_of_phases(phases: str) -> None:
    estimate = estimate_of(slowly_judged(phases), samples=60_000, cluster_spec=OFFER)
    alone = {stage.stage: stage.seconds for stage in estimate.stages}
    start_s, generate_s, judge_s = STARTUP_S["vllm"], alone["generate"], alone["judge"]
    together, apart = estimate.phase_uses
    assert together.wall_s == pytest.approx(start_s + judge_s)
    assert together.gpu_node_hours == pytest.approx(together.wall_s / 3600)
    assert apart.wall_s == pytest.approx(start_s + generate_s + STARTUP_S["given"] + judge_s)
    assert apart.gpu_node_hours == pytest.approx((start_s + generate_s) / 3600)
    assert apart.cpu_node_hours == pytest.approx(apart.wall_s / 3600)
    assert apart.gpu_node_hours < together.gpu_node_hours / 10
    # What the run would do is what its nodes and its length are counted by
    used = together if phases == "together" else apart
    assert (estimate.phase_order, estimate.wall_s) == (used.order, used.wall_s)
    assert estimate.cluster is not None
    hours = {use.group.name: use.node_hours for use in estimate.cluster.groups}
    assert hours["gpus"] == pytest.approx(used.gpu_node_hours)
    assert hours["cpus"] == pytest.approx(used.cpu_node_hours)
    assert (
        f"  phases apart: {duration_text(apart.wall_s)}, {apart.gpu_node_hours:,.1f} node-hours "
        f"with GPUs and {apart.cpu_node_hours:,.1f} without"
    ) in estimate_lines(estimate)


def test_a_budget_that_does_not_suffice_is_said(tmp_path: Path) -> None:
    table = tmp_path / "judges.yaml"
    table.write_text(f"models: {{{JUDGE}: {{input_usd: 1000, output_usd: 2000}}}}")
    config = judging(tmp_path, models=str(table))
    usd = estimate_of(config).usd
    assert usd > 0
    for budget, is_said in ((usd / 4, True), (2 * usd, False)):
        limited = config.model_copy(
            update={"budget": config.budget.model_copy(update={"usd": budget})}
        )
        lines = [
            line
            for line in estimate_lines(estimate_of(limited))
            if "the budget would stop it at" in line
        ]
        assert lines == (
            [f"  the budget would stop it at 25.0%: budget.usd is {budget:g}"] if is_said else []
        )


def test_metrics_that_nobody_would_score_are_said(tmp_path: Path) -> None:
    criteria = {"suite": "healthbench", "dataset": str(REPOSITORY / "dataset/criteria")}
    estimate = estimate_of(generating(**criteria), cluster_spec=OFFER)
    assert (estimate.calls, len(estimate.warnings)) == (0, 1)
    assert estimate.warnings[0].startswith("not scored, and not in the estimate: criteria (")
    assert not estimate_of(judging(tmp_path)).warnings


def test_the_speed_of_a_small_model_on_cpus_is_said_to_be_that() -> None:
    config = generating()
    assert not any(
        "small model" in line for line in estimate_of(config, cluster_spec=OFFER).assumptions
    )
    silent = config.model_copy(
        update={"assumptions": RunConfig.model_fields["assumptions"].default}
    )
    assert any(
        "small model" in line for line in estimate_of(silent, cluster_spec=OFFER).assumptions
    )


@pytest.mark.parametrize(
    ("text", "count"), [("1e6", 1_000_000), ("1_000_000", 1_000_000), ("7", 7), ("2.5e3", 2500)]
)
def test_numbers_of_samples(text: str, count: int) -> None:
    assert parse_sample_count(text) == count


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "many", "", "inf", "nan", "1e-3"])
def test_what_is_no_number_of_samples(text: str) -> None:
    with pytest.raises(ConfigError, match="write a whole number from 1 on, such as"):
        parse_sample_count(text)


@pytest.mark.parametrize("text", ["cpus", "cpus=", "=1", "cpus=-1", "cpus=inf", "cpus=dear"])
def test_what_is_no_price(text: str) -> None:
    assert parse_node_prices(["a=1", "b=0.5"]) == {"a": 1.0, "b": 0.5}
    with pytest.raises(ConfigError, match="write GROUP=USD"):
        parse_node_prices([text])


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(
            sys,
            "argv",
            ["memray-eval", "estimate", str(REPOSITORY / "cluster" / "job.yaml"), *words],
        )
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


RAYJOB = str(REPOSITORY / "cluster" / "kuberay" / "rayjob.yaml")


def test_the_readme_s_worked_example_is_what_the_command_prints(  # type: ignore[no-untyped-def]
    cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    readme = (REPOSITORY / "cluster" / "README.md").read_text("utf-8")
    shown = readme.split("memray-eval estimate cluster/job.yaml ")[1]
    typed = shown.split("\n\n")[0].replace("\\\n", " ")
    words = shlex.split(typed.replace("cluster/kuberay/rayjob.yaml", RAYJOB))
    code, out, _ = cli(*words, "--json")
    assert code == 0
    bounds = [f"{bound['seconds']:,.0f} s " for bound in json.loads(out)["bounds"]]
    assert re.findall(r"= +([\d,]+ s )", shown.split("\n\n")[1]) == bounds[:4]


def test_a_million_samples_on_our_own_manifest(cli) -> None:  # type: ignore[no-untyped-def]
    options = (
        "--judge",
        "rules",
        "--samples",
        "1e6",
        "--cluster",
        RAYJOB,
        "--node-usd",
        "gpu-1=1",
        "--json",
    )
    code, out, _ = cli(*options)
    assert code == 0
    estimate = json.loads(out)
    assert estimate["units"] == 1_000_000
    assert estimate["bounds"][0]["stage"] == "generate"
    uses = {use["group"]["name"]: use for use in estimate["cluster"]["groups"]}
    assert uses["gpu-1"]["usd"] == pytest.approx(uses["gpu-1"]["node_hours"])
    assert (uses["gpu-1"]["nodes"], uses["gpu-8"]["nodes"]) == (
        estimate["cluster"]["engines"][0]["replicas"],
        0,
    )
    assert estimate["cluster"]["problems"] == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--samples", "0"], "--samples 0: write a whole number"),
        (["--samples", "-3"], "write a whole number"),
        (["--cluster", "absent.yaml"], "cannot read the cluster's file absent.yaml"),
        (["--cluster", str(REPOSITORY / "cluster" / "job.yaml")], "holds no cluster"),
        (["--cluster", RAYJOB, "--node-usd", "nodes=1"], "a node price for 'nodes'"),
        (["--node-usd", "cpu=1"], "name its file with --cluster"),
        (
            [
                "--cluster",
                RAYJOB,
                "--set",
                "engine.tensor_parallel=16",
                "--set",
                "engine.accelerator_type=H100",
            ],
            "needs 16 GPUs and 16 CPUs (accelerator_type H100) on one node, and no node of",
        ),
        (
            ["--cluster", RAYJOB, "--set", "engine.accelerator_type=V100"],
            "gpu-1: 1 GPUs (L4) and ",
        ),
    ],
)
def test_what_the_command_refuses(cli, words: list[str], message: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = cli("--judge", "rules", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_what_a_prompt_cache_can_hold_is_said_with_the_cost_with_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
    dataset = samples(tmp_path, 2, 5000)
    served = {"model": "m", "backend": "openai", "base_url": "http://127.0.0.1:9/v1"}
    seen = ("groundedness", "memory_utilization")

    def estimate_with(**judging: Any) -> Estimate:
        config = {
            "dataset": str(dataset),
            "out": str(tmp_path),
            "candidates": [{"name": name, **served} for name in ("a", "b")],
            "metrics": seen,
            "judge": "anthropic/claude-opus-4-5",
            "judging": judging,
        }
        return estimate_of(RunConfig.model_validate(config))

    (judge,) = estimate_with(repeats=3).judges
    assert judge.calls == 2 * 2 * 2 * 3
    assert judge.cached_usd is not None
    # The first of the 12 calls on a memory writes what the others read
    assert 0.70 < judge.cacheable_tokens / judge.input_tokens < 11 / 12
    verdicts = judge.output_tokens * 25.0 / 1e6
    assert judge.usd == pytest.approx(judge.input_tokens * 5.0 / 1e6 + verdicts)
    assert judge.cached_usd < 0.6 * judge.usd
    text = "\n".join(estimate_lines(estimate_with(repeats=3)))
    share = judge.cacheable_tokens / judge.input_tokens
    assert (
        f"{share:.0%} of its input can come from its prompt cache: ${judge.cached_usd:,.2f}" in text
    )
    (first,) = estimate_with(repeats=3, layout="rubric_first").judges
    assert (first.cacheable_tokens, first.cached_usd, first.usd) == (0, None, judge.usd)
    assert "prompt cache" not in "\n".join(estimate_lines(estimate_with(layout="rubric_first")))
