"""An engine: the placement group that it asks for, how it starts (in turn with others of its node,
again where it died), what its steps become for Prometheus, what is asked of it once more."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock, Mock

import pyarrow as pa
import pytest
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import GenerationError, ServiceLost
from memray_eval.execution.plan import Device, fit_engine
from memray_eval.execution.ray import engine_start
from memray_eval.execution.ray.engine import (
    EngineActor,
    VllmEngine,
    _actor_options,
    _on_all_cores,
    engine_environment,
    engine_kwargs,
)
from memray_eval.execution.ray.engine_start import (
    LAST_LINES,
    MOST_STARTS,
    last_lines,
    start_engine,
    turn_on_node,
)
from memray_eval.execution.ray.pipeline import _to_eval_error
from memray_eval.execution.ray.placement_groups import executor_backend, group_of_engine
from memray_eval.execution.ray.reporting import RUN, EngineMetrics
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stages.blocks import collect_engine_answers
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.prompt import ENGINE_SCHEMA, SAMPLING, SECOND, TOKENS
from memray_eval.results.schema import from_table, to_table
from memray_eval.types import Candidate, Record, Sample
from tests.unit.execution.near import Exported

WORKER = {"CPU": 2.0, "GPU": 1.0}
ON_H100 = WORKER | {"accelerator_type:H100": 0.001}


@pytest.mark.parametrize(
    ("config", "device", "bundles", "strategy"),
    [
        ({}, "gpu", (WORKER,), "STRICT_PACK"),
        ({"cpus": 1.5}, "cpu", ({"CPU": 1.5},), "STRICT_PACK"),
        ({"tensor_parallel": 2}, "gpu", (WORKER, WORKER), "STRICT_PACK"),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, "gpu", (WORKER,) * 4, "PACK"),
        (
            {"tensor_parallel": 2, "engine_kwargs": {"distributed_executor_backend": "mp"}},
            "gpu",
            ({"CPU": 4.0, "GPU": 2.0},),
            "STRICT_PACK",
        ),
        ({"tensor_parallel": 16, "nodes": 2}, "gpu", (WORKER,) * 16, "PACK"),
        ({"data_parallel": 8}, "gpu", ({"CPU": 16.0, "GPU": 8.0},), "STRICT_PACK"),
        (
            {"data_parallel": 2, "tensor_parallel": 4, "pipeline_parallel": 2},
            "gpu",
            ({"CPU": 32.0, "GPU": 16.0},),
            "STRICT_PACK",
        ),
        ({"accelerator_type": "H100"}, "gpu", (ON_H100,), "STRICT_PACK"),
    ],
)
def test_an_engine_has_a_bundle_a_worker(
    config: dict[str, Any], device: Device, bundles: tuple[dict[str, float], ...], strategy: str
) -> None:
    engine = EngineConfig.model_validate({"cpus": 2, **config})
    assert group_of_engine(engine, device, "org/model") == (bundles, strategy, "org/model")


@pytest.mark.parametrize(
    ("config", "device", "backend", "variable"),
    [
        ({}, "cpu", "uni", "0"),
        ({"tensor_parallel": 2}, "cpu", None, None),
        ({"data_parallel": 2}, "cpu", None, None),
        ({}, "gpu", None, None),
        ({"engine_kwargs": {"distributed_executor_backend": "mp"}}, "cpu", "mp", None),
    ],
)
def test_one_worker_on_a_cpu_is_the_engines_own_process(
    config: dict[str, Any], device: Device, backend: str | None, variable: str | None
) -> None:
    engine = EngineConfig.model_validate(config)
    assert engine_kwargs(engine, device).get("distributed_executor_backend") == backend
    environment = engine_environment(engine, "org/model", device)
    assert environment.get("VLLM_ENABLE_V1_MULTIPROCESSING") == variable


@pytest.mark.parametrize(
    ("node_cpus", "cores", "engines", "threads"),
    [(8.0, 8, 1, "8"), (8.0, 8, 3, "2"), (4.0, 64, 1, "4"), (64.0, 4, 1, "4"), (1.0, 1, 2, "1")],
)
def test_engines_on_cpus_share_the_cores_of_their_node(
    node_cpus: float, cores: int, engines: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [{"NodeID": name, "Resources": {"CPU": n}} for name, n in (("a", 99), ("b", node_cpus))]
    monkeypatch.setattr(
        ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "b")
    )
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as Ray sets it
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")  # as somebody has chosen
    seen = _on_all_cores(engines, lambda: cast(VllmEngine, dict(os.environ)))  # as torch is loaded
    assert cast(dict[str, str], seen)["OMP_NUM_THREADS"] == threads
    assert cast(dict[str, str], seen)["OMP_WAIT_POLICY"] == "ACTIVE"


def test_the_jobs_variables_reach_the_engines_process() -> None:
    env = {"VLLM_USE_DEEP_GEMM": "0", "VLLM_LOGGING_LEVEL": "DEBUG"}
    engine = EngineConfig.model_validate({"env": env})
    devices: tuple[Device, ...] = ("cpu", "gpu")
    for device in devices:
        options = _actor_options(engine, "org/model", device)
        assert env.items() <= options["runtime_env"]["env_vars"].items()


@pytest.mark.parametrize(
    ("config", "size", "backend"),
    [
        ({}, 1, "uni"),
        ({"tensor_parallel": 16, "nodes": 2}, 1, "ray"),
        ({"data_parallel": 4, "max_num_seqs": 10}, 4, "mp"),
    ],
)
def test_an_engine_of_several_copies_is_let_all_their_prompts(
    config: dict[str, Any], size: int, backend: str
) -> None:
    fitted = fit_engine(EngineConfig.model_validate(config), 1_000, "gpu")
    assert engine_kwargs(fitted, "gpu").get("data_parallel_size") == size
    assert executor_backend(fitted) == backend
    at_once = (fitted.max_num_seqs or 0) * fitted.data_parallel
    assert fitted.rows * (fitted.concurrent_batches or 0) >= at_once


class Died(BaseException):
    """In place of this process's end."""


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this process, as an engine's actor, prints to; its end raises Died."""
    names = {"get_node_id": "node", "get_actor_id": "id", "get_actor_name": "engine"}
    context = Mock(**{f"{name}.return_value": value for name, value in names.items()})
    monkeypatch.setattr(engine_start.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(os, "_exit", Mock(side_effect=Died))
    path = tmp_path / "worker.out"
    path.write_text(":actor_name:Engine\nloading weights\n\nout of memory\n")
    path.with_suffix(".err").write_text("a warning\n")
    monkeypatch.setattr(engine_start, "worker_output_path", lambda: str(path))
    monkeypatch.setattr(engine_start, "TELL_S", 0.0)
    return path


def starts(folder: Path) -> list[Path]:
    return list(folder.glob("*.starts"))


def test_one_that_fails_ends_its_process_and_the_last_one_says_why(output: Path) -> None:
    failing = Mock(side_effect=RuntimeError("Engine core initialization failed.\nSee above"))
    for _ in range(MOST_STARTS - 1):
        with pytest.raises(Died):
            start_engine(failing, "org/m", 2)
    with pytest.raises(GenerationError) as raised:
        start_engine(failing, "org/m", 2)
    assert str(raised.value) == (
        "an engine of org/m failed 3 times: RuntimeError: Engine core initialization failed. See "
        "above\nThe last lines of its log:\n  loading weights\n  out of memory\n  a warning"
    )
    assert starts(output.parent) == []


def test_one_that_is_killed_each_time_is_given_up_before_it_starts_again(output: Path) -> None:
    for _ in range(MOST_STARTS):
        with pytest.raises(Died):  # in place of SIGKILL, which runs nothing of ours
            start_engine(Mock(side_effect=Died), "m", 2)
    with pytest.raises(GenerationError, match=r"died 3 times while it started\nThe last lines of"):
        start_engine(lambda: pytest.fail("it is started again"), "m", 2)
    reason = "an engine of other failed at its start: ValueError: no such dtype"
    with pytest.raises(GenerationError, match=reason):  # it would fail again
        start_engine(Mock(side_effect=ValueError("no such dtype")), "other", 2)


def test_starts_are_counted_anew_when_one_has_succeeded(output: Path) -> None:
    for _ in range(2):
        for _ in range(MOST_STARTS - 1):
            with pytest.raises(Died):
                start_engine(Mock(side_effect=RuntimeError("once")), "m", 2)
        assert start_engine(lambda: "engine", "m", 2) == "engine"
        assert starts(output.parent) == []


def test_the_end_of_a_log_is_short_and_has_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    path = tmp_path / "worker.out"
    path.write_text("\n".join([*map(str, range(99)), "x" * 9999, "key sk-of-somebody-else"]))
    lines = last_lines(str(path))
    assert (len(lines), lines[-1]) == (LAST_LINES, "key [key]")
    assert max(map(len, lines)) == engine_start.LINE_CHARS
    assert last_lines(str(tmp_path / "none")) == []


def test_at_most_so_many_of_a_node_are_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_start.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(engine_start, "TURN_S", 0.01)
    entered = threading.Event()

    def enter() -> None:
        with turn_on_node("node", 2):
            entered.set()

    third = threading.Thread(target=enter)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(turn_on_node("node", 2))
        with turn_on_node("another", 2), turn_on_node("node", None):
            third.start()
            assert not entered.wait(0.1)
    assert entered.wait(5)
    third.join()


def test_the_turn_of_a_process_that_died_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_start.tempfile, "gettempdir", lambda: str(tmp_path))
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:  # pragma: no cover
        with turn_on_node("node", 1):
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    assert os.read(reading, 1) == b"x"
    os.kill(child, 9)
    os.waitpid(child, 0)
    with turn_on_node("node", 1):
        pass
    os.close(reading)
    os.close(writing)


def test_an_error_of_ours_comes_through_rays_as_it_was_raised() -> None:
    log = "an engine of m died\nThe last lines of its log:\n  loading"
    tried = "\nFailed to apply UDF transform after 1/1 attempts (total backoff 0.0s)."
    inner = ray.exceptions.RayTaskError("f", "", GenerationError(log), "p", 1, "ip")
    outer = ray.exceptions.RayTaskError("g", "", ServiceLost(f"the ledger{tried}"), "p", 1, "ip")
    for error, kind, text in ((inner, GenerationError, log), (outer, ServiceLost, "the ledger")):
        translated = _to_eval_error(error.make_dual_exception_instance(), "m")
        assert (type(translated), str(translated)) == (kind, text)
    other = _to_eval_error(ray.exceptions.RaySystemError("It died\nValueError: no"), "m")
    assert "the pipeline for m stopped: ValueError: no." in str(other)


def scheduled(queries: int = 0, hits: int = 0) -> SimpleNamespace:
    """A step of vLLM's scheduler (its SchedulerStats)."""
    return SimpleNamespace(
        kv_cache_usage=0.25,
        num_running_reqs=3,
        num_waiting_reqs=2,
        num_skipped_waiting_reqs=1,
        prefix_cache_stats=SimpleNamespace(queries=queries, hits=hits),
    )


def iteration(
    preempted: int = 0, made: int = 0, ttfts_s: tuple[float, ...] = ()
) -> SimpleNamespace:
    return SimpleNamespace(
        num_preempted_reqs=preempted,
        num_generation_tokens=made,
        time_to_first_tokens_iter=[*ttfts_s],
    )


GAUGES = [("kv_cache", 0.25), ("requests", "running", 3), ("requests", "waiting", 3)]


@pytest.mark.parametrize(
    ("step", "tokens", "expected"),
    [
        (None, None, []),
        (scheduled(), None, GAUGES),
        (
            scheduled(queries=100, hits=60),
            iteration(preempted=2, made=7, ttfts_s=(0.5, 0.7)),
            [
                *GAUGES,
                ("prompt_tokens", "hit", 60),
                ("prompt_tokens", "miss", 40),
                ("preemptions", 2),
                ("output_tokens", 7),
                ("ttft_seconds", 0.5),
                ("ttft_seconds", 0.7),
            ],
        ),
        (scheduled(queries=8), iteration(), [*GAUGES, ("prompt_tokens", "miss", 8)]),
    ],
)
def test_a_step_is_recorded(
    step: Any, tokens: Any, expected: list[tuple[Any, ...]], exported: list[Exported]
) -> None:
    ours = {"model": "org/m", "replica": "0a1b"}
    metrics = EngineMetrics("org/m", "0a1b", "run-1")
    metrics.record(step, tokens, mm_cache_stats=None, engine_idx=0)
    for of, (name, *own, amount) in zip(exported, expected, strict=True):
        assert (of.name, of.amount) == (f"memray_vllm_{name}", amount)
        assert [value for tag, value in of.tags.items() if tag not in ours] == own
    assert all(ours.items() <= of.tags.items() for of in exported)
    assert all(of.of_all == {RUN: "run-1"} for of in exported)


TIMES = {"first_token_latency": 0.5, "first_token_ts": 1.0, "last_token_ts": 2.0}


def answer(text: str, finish: str = "stop", tokens: int = 3) -> dict[str, Any]:
    return {
        "generated_text": text,
        "generated_tokens": [1] * tokens,
        "finish_reason": finish,
        "num_input_tokens": 10,
        "num_cached_tokens": 0,
        "metrics": TIMES,
    }


def rows(retry_max_tokens: int | None, n: int, unasked: int | None = None) -> pa.Table:
    candidate = Candidate(name="c", model="m", retry_max_tokens=retry_max_tokens)
    records = [
        Record(unit_id=f"{i}", sample=Sample(id=f"{i}", query="q"), candidate=candidate)
        for i in range(n)
    ]
    sampling = {"temperature": 0.0, "max_tokens": 7, "stop": []}
    prompts = [None if i == unasked else bytes([i, 0, 0, 0]) for i in range(n)]
    own = {TOKENS: prompts, SAMPLING: [json.dumps(sampling)] * n}
    table = to_table(records)
    for field in list(ENGINE_SCHEMA)[len(table.schema) :]:
        table = table.append_column(field, pa.array(own[field.name], field.type))
    return table


def ask(table: pa.Table, *answers: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, list[Any]]:
    """What an engine answers that gives these answers, the first ones and then those to what is
    asked again; and the rows that it was asked each time."""
    engine = SimpleNamespace(answer=AsyncMock(side_effect=answers))
    actor = EngineActor(lambda: engine, "m", None)

    async def listen() -> list[pa.Table | None]:
        return [heard async for heard in actor.answer(table)]

    turn, answered = asyncio.run(listen())
    assert turn is None
    return answered, [call.args[0] for call in engine.answer.await_args_list]


def test_those_that_used_up_their_limit_are_asked_with_a_larger_one(output: Path) -> None:
    first = [
        answer("Paris."),
        answer("<think>Hm", "length", 7),
        answer("", "length", 7),
        answer(""),
    ]
    second = [answer("<think>Hm.</think>Lyon."), answer("", "length", 64)]
    table, calls = ask(rows(64, 5, unasked=2), first, second)
    prompts = [[(row[TOKENS][0], row[SAMPLING]["max_tokens"]) for row in rows] for rows in calls]
    assert prompts == [[(0, 7), (1, 7), (3, 7), (4, 7)], [(1, 64), (3, 64)]]
    expected = [True, False, True, False, True]
    assert [value is None for value in table[SECOND].to_pylist()] == expected
    context = StageContext(str(output.parent), RunCounter())
    responses = [value.response for value in from_table(collect_engine_answers(table, context))]
    assert [
        value and (value.text, value.no_answer, value.raised_max_tokens) for value in responses
    ] == [("Paris.", None, None), ("Lyon.", None, 64), None, ("", "limit", 64), ("", "empty", None)]
    seen = (responses[1].prompt_tokens, responses[1].output_tokens, responses[1].duration_s)
    assert seen == (20, 10, 3.0)


def test_without_the_key_or_if_the_engine_refuses_the_first_outcome_is_left(output: Path) -> None:
    table, calls = ask(rows(None, 1), [answer("", "length")])
    assert (table[SECOND].to_pylist(), len(calls)) == ([None], 1)
    refusal = {"__inference_error__": "too long"}
    table, _ = ask(rows(64, 1), [answer("", "length", 7)], [refusal])
    context = StageContext(str(output.parent), RunCounter())
    (record,) = from_table(collect_engine_answers(table, context))
    assert (record.response.no_answer, record.response.error) == ("limit", None)
    assert record.response.output_tokens == 7
