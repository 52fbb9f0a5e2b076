"""Real vLLM on the CPU in whole runs: adapters, two models at once, sessions, needles, a judge;
what an engine tells Prometheus; and kill -9 of its process."""

import json
import os
import random
import re
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import ray
from safetensors.numpy import save_file

from memray_eval.config.loading import load_config
from memray_eval.config.sections import ClusterConfig
from memray_eval.execution.ray import cluster
from memray_eval.models.adapters import CONFIG
from memray_eval.models.embedded_model import resolve_model
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.build import embedded_job, finish, run_command, wait_until, write_lines
from tests.clusters.observing import again_and_again
from tests.conftest import HANG_S, REPOSITORY
from tests.e2e.conftest import CommandRun
from tests.processes.killing import (
    IN_FLIGHT,
    METRICS,
    ROUNDS,
    books,
    counted,
    evaluating,
    finish_if_ended,
    run_folder,
    running,
    wait_for,
    workers,
)
from tests.servers.process import serving_process

pytestmark = pytest.mark.night
QUERIES = ("What is the capital of France?", "Name a colour.", "What do bees make?")


def random_adapter(folder: Path, rank: int) -> str:
    """An adapter of the embedded model that changes each layer's queries and values at random."""
    base = json.loads((Path(resolve_model("embedded")) / "config.json").read_text())
    width, draw = base["hidden_size"], np.random.default_rng(rank)
    values = width // base["num_attention_heads"] * base["num_key_value_heads"]
    weights = {}
    for layer in range(base["num_hidden_layers"]):
        for name, out in (("q_proj", width), ("v_proj", values)):
            of = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{of}.lora_A.weight"] = draw.normal(0, 0.05, (rank, width)).astype("f4")
            weights[f"{of}.lora_B.weight"] = draw.normal(0, 0.2, (out, rank)).astype("f4")
    folder.mkdir()
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    (folder / CONFIG).write_text(json.dumps(config | {"target_modules": ["q_proj", "v_proj"]}))
    return str(folder)


def answers(tmp_path: Path, adapters: dict[str, str | None]) -> dict[str, list[str]]:
    """What each candidate says to the queries, in one run of its own."""
    rows = [{"id": str(number), "query": query} for number, query in enumerate(QUERIES)]
    sampling = {"temperature": 0.0, "max_tokens": 8}
    job = embedded_job(
        tmp_path / "out",
        dataset=str(write_lines(tmp_path / "queries.jsonl", rows)),
        suite="chat",
        candidates=[
            {"name": name, "model": "embedded", "lora": lora, "sampling": sampling}
            for name, lora in adapters.items()
        ],
        metrics=[],
        engine={"device": "cpu", "kv_cache_gib": 1, "max_model_len": 512},
    )
    texts: dict[str, list[str]] = {name: [] for name in adapters}
    for record in sorted(finish(job).folder.each(), key=lambda record: record.sample.id):
        assert record.response is not None
        assert record.response.error is None
        texts[record.candidate.name].append(record.response.text)
    return texts


def test_base_and_adapters_answer_from_one_engine_each_as_itself(tmp_path: Path) -> None:
    first, second = random_adapter(tmp_path / "one", 4), random_adapter(tmp_path / "two", 16)
    together = answers(tmp_path, {"base": None, "one": first, "two": second})
    print(together)
    assert len({tuple(texts) for texts in together.values()}) == 3
    # In one step with adapters, the base has its own weights
    assert answers(tmp_path, {"base": None})["base"] == together["base"]


def engines_below(parent: int) -> int:
    """How many vLLM engines a process has started that are up now. What one of them starts has its
    name at first."""
    try:
        children = psutil.Process(parent).children(recursive=True)
        engines = {child.pid for child in children if "EngineCore" in " ".join(child.cmdline())}
        return sum(child.pid in engines and child.ppid() not in engines for child in children)
    except psutil.Error:  # one of them has just ended
        return 0


def test_two_models_are_served_at_the_same_time_and_all_units_are_scored(tmp_path: Path) -> None:
    other, n_samples, most = tmp_path / "other-model", 6, 0
    other.symlink_to(resolve_model("embedded"))
    models = {"one": "embedded", "other": str(other)}
    sampling = {"temperature": 0.0, "max_tokens": 16}
    job = embedded_job(
        tmp_path / "out",
        candidates=[
            {"name": name, "model": model, "sampling": sampling} for name, model in models.items()
        ],
        metrics=["completeness_score", "memory_utilization"],
        judge="rules",
        engine={"kv_cache_gib": 1, "max_model_len": 2048},
        engines={str(other): {"max_num_seqs": 4}},
        cluster={"num_cpus": 4, "models_at_once": 2},
        limit=n_samples,
    )
    (tmp_path / "job.yaml").write_text(job.model_dump_json())
    words = ("memray_eval", "run", str(tmp_path / "job.yaml"))
    with running(*words, log=tmp_path / "log") as process:
        while process.poll() is None:
            most = max(most, engines_below(process.pid))
            time.sleep(0.5)
        assert process.returncode == 0
    assert most == 2, "the engines were not up together"
    records = list(run_folder(tmp_path).each())
    assert {(record.candidate.name, record.sample.id) for record in records} == {
        (name, record.sample.id) for name in models for record in records
    }
    assert len(records) == 2 * n_samples
    assert all(score.status == "scored" for record in records for score in record.scores)


ABOUT = "I am Ann, I live in Graz with my dog Bruno, and I work nights as a nurse. " * 25
TURNS = [ABOUT, "I slept four hours again.", "And when I am at work?", "What is my dog called?"]
# As blocks of a prefix cache are 128 tokens on a CPU, short prompts find less
LEAST_SHARE = 0.8


def test_later_turns_of_a_session_find_their_prefix(tmp_path: Path) -> None:
    rows = [
        {"id": f"s{n}", "memory": {"name": f"Ann {n}", "city": "Graz"}, "turns": TURNS}
        for n in range(3)
    ]
    job = embedded_job(
        tmp_path / "out",
        dataset=str(write_lines(tmp_path / "sessions.jsonl", rows)),
        candidates=[{"name": "small", "model": "embedded", "sampling": {"max_tokens": 16}}],
        metrics=["length_appropriateness"],
    )
    (tmp_path / "job.yaml").write_text(job.model_dump_json())
    done = run_command("run", "job.yaml", "--run-id", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    (sessions,) = RunFolder(f"{tmp_path}/out/s").read_summary().sessions
    assert (sessions.n_sessions, sessions.n_turns) == (3, 12)
    assert sessions.later_cached_tokens is not None
    assert sessions.later_cached_tokens / sessions.later_prompt_tokens >= LEAST_SHARE
    assert "of the prompt tokens were in the prefix cache" in " ".join(done.stdout.split())


CHAT_TOKENS = 30  # SmolLM2's system prompt and marks around one user message


def records_below(out: Path) -> list[Record]:
    (path,) = out.glob("*/summary.json")
    return list(RunFolder(str(path.parent)).each())


def test_needles_are_asked_at_their_length_and_mapped(tmp_path: Path) -> None:
    job = str(REPOSITORY / "jobs" / "needles.yaml")
    words = ["--limit", "4", "--out", str(tmp_path), "--set", "tasks=[passkey]", "--run-id", "n"]
    done = run_command("run", job, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    records = records_below(tmp_path)
    assert len(records) == 4
    for record in records:
        assert record.response is not None
        assert record.response.prompt_tokens == record.sample.metadata["tokens"] + CHAT_TOKENS
        assert (record.response.prompt_form, record.response.truncated_tokens) == ("chat", 0)
        assert record.response.cached_tokens is not None
    full = run_command("report", "--full", str(tmp_path / "n"), cwd=tmp_path).stdout
    assert "LENGTH BY DEPTH: rule_score" in full
    assert "passkey" in full


def test_the_embedded_judge_scores_by_guided_json_and_is_stopped_afterwards(
    memory_run: CommandRun, tmp_path: Path
) -> None:
    """The whole LLM path with no key, on responses that the memory run made."""
    options = "--judge embedded --limit 3 --metrics empathy,safety --no-cache --out out"
    done = run_command("evaluate", str(memory_run.folder), *options.split(), cwd=tmp_path)
    # So small a model makes quotes up: of three answers all may be refused, which is code 1
    assert done.returncode in (0, 1), done.stderr[-4000:]
    assert (
        "empathy, safety: judged by a small local model, which proves the plumbing, not the scores."
        in " ".join(done.stdout.split())  # the console wraps notes
    )
    scores = [score for record in records_below(tmp_path / "out") for score in record.scores]
    assert any(score.usage.cached_input_tokens for score in scores)
    for score in scores:
        assert score.status in ("scored", "abstained")
        assert score.judge == "embedded"
        assert score.usage.input_tokens > 100
        assert score.usage.output_tokens > 0
        assert json.loads(score.judgment or "")
    # Of this session: its cache folder holds the model
    ours = os.environ["MEMRAY_EVAL_CACHE"]
    left = [
        " ".join(process.info["cmdline"] or ())
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("MEMRAY_EVAL_CACHE") == ours
    ]
    assert not [line for line in left if "EngineActor" in line or "JudgePort" in line]


_LINE = re.compile(r"^ray_(memray_vllm_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_OWN = re.compile(r'\b(model|replica|run_id|state|prefix)="([^"]*)"')


def test_an_engine_is_on_the_page_of_its_node_for_prometheus(tmp_path: Path) -> None:
    """The largest value of each series, read twice a second. No prompt begins like another, and
    none is put back for want of memory: those series begin with the first that does."""
    n_samples = 24
    job = embedded_job(
        tmp_path,
        candidates=[{"name": "c", "model": "embedded", "sampling": {"max_tokens": 48}}],
        metrics=["completeness_score"],
        engine={"kv_cache_gib": 1, "max_model_len": 2048, "max_num_seqs": 4},
        limit=n_samples,
    )
    largest: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    with cluster.connected(ClusterConfig(num_cpus=2)):
        page = f"http://127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}/metrics"

        def read() -> None:
            # A busy agent answers 500 now and then
            with suppress(OSError), urllib.request.urlopen(page, timeout=HANG_S) as text:
                for name, labels, value in _LINE.findall(text.read().decode()):
                    series = name, frozenset(_OWN.findall(labels))
                    largest[series] = max(float(value), largest.get(series, 0.0))

        def read_tokens() -> float:
            counters = [key for key in [*largest] if key[0] == "memray_vllm_prompt_tokens_total"]
            return sum(largest[key] for key in counters if ("prefix", "miss") in key[1])

        with again_and_again(read, 0.5):
            done = finish(job)
            n_tokens = sum(record.response.prompt_tokens or 0 for record in done.folder.each())
            wait_until(lambda: read_tokens() >= n_tokens, "Ray does not report the last tokens")
    for (name, labels), value in sorted(largest.items(), key=str):
        print(name, dict(sorted(labels)), value)
    assert done.summary.n_failed_units == 0
    by_labels = {
        (name, dict(labels).get("state") or dict(labels).get("prefix")): value
        for (name, labels), value in largest.items()
    }
    assert 0 < by_labels["memray_vllm_kv_cache", None] <= 1
    assert 0 < by_labels["memray_vllm_requests", "running"] <= 4
    assert by_labels["memray_vllm_prompt_tokens_total", "miss"] == n_tokens
    assert by_labels["memray_vllm_ttft_seconds_count", None] == n_samples
    engines = {
        tuple(dict(labels).get(tag) for tag in ("model", "replica", "run_id"))
        for _, labels in largest
    }
    assert len(engines) == 1
    assert all(all(tags) for tags in engines)


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_killed_engine_process_loses_no_unit_and_repeats_no_verdict(
    tmp_path: Path, round_: int
) -> None:
    n_samples, config = 24, tmp_path / "job.yaml"
    with serving_process(latency_s=0.2) as server:
        judging = {"cache": str(tmp_path / "calls.sqlite"), "base_urls.openai": server.base_url}
        judging |= {"actors": 1, "max_in_flight": IN_FLIGHT}
        changes = {"limit": n_samples, "metrics": METRICS, "judge": "openai/local"}
        changes |= {"rows_per_block": 4, "out": str(tmp_path / "out")}
        engine = {"batch_size": 4, "concurrent_batches": 2}
        settings = [f"judging.{name}={value}" for name, value in judging.items()]
        settings += [f"engine.{name}={value}" for name, value in engine.items()]
        settings.append("candidates.0.sampling.max_tokens=48")
        wanted = load_config(REPOSITORY / "jobs" / "quickstart.yaml", changes, settings)
        config.write_text(wanted.model_dump_json())
        units = n_samples * len(wanted.candidates)
        with evaluating(config) as process:
            wait_for(server, random.randint(1, n_samples), process)
            workers(process.pid, "EngineCore")[0].kill()
            code = process.wait(HANG_S)
        went = finish_if_ended(code, config)
        kept = books(run_folder(tmp_path), server)
    counted(f"engine, {went}", kept)
    assert (kept.rows, kept.units, kept.scored) == (units, units, units)
    assert kept.paid_again <= IN_FLIGHT
    assert kept.calls <= units * len(METRICS) + IN_FLIGHT
