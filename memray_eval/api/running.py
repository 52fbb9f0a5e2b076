"""Runs from Python: a job, or data in memory."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

from memray_eval.api.live import MetricEntry, to_entries
from memray_eval.api.runs import Run, to_stderr
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.servers import name_candidate
from memray_eval.datasets.reading import to_rows, write_rows
from memray_eval.datasets.scan import read_samples
from memray_eval.errors import ConfigError, Interrupted, describe_error, without_advice
from memray_eval.execution import runs
from memray_eval.execution.interrupts import DRAIN_S, POLL_S, cancelled
from memray_eval.execution.prepare.origins import (
    existing_candidate,
    find_origin,
    follow_origin,
    name_answers,
)
from memray_eval.execution.prepare.resolve import resolve_reading
from memray_eval.execution.prepare.scanning import scan_dataset
from memray_eval.extensions import call_own
from memray_eval.models.function_generator import to_response
from memray_eval.results.schema import RESPONSE_COLUMNS, from_table
from memray_eval.storage.leases import ScratchFolder
from memray_eval.types import Response, Sample, Score, Turn, not_asked, turn_sample

# A name or path of vLLM's, the keys of a candidate, or a function that answers a sample
Model: TypeAlias = (
    str | Mapping[str, Any] | Callable[[Sample], str | Response | Awaitable[str | Response]]
)


class Settings(TypedDict, total=False):
    """The keys of a job (jobs/keys.md) that `evaluate` takes by their names."""

    reader: str
    encoding: str
    samples: str
    tasks: Sequence[str]
    ids: str
    templates: str
    errata: str
    limit: int
    skip_invalid: bool
    epochs: int
    include: Sequence[str]
    rubrics: Mapping[str, str]
    criteria: Mapping[str, str]
    text_weights: Mapping[str, Any]
    companion_weights: Mapping[str, Any]
    transitions: Literal["strict", "extended"]
    on_no_answer: Literal["exclude", "zero", "score"]
    metric_timeout_s: float
    affect: Mapping[str, Any]
    simulated_user: Mapping[str, Any]
    engine: Mapping[str, Any]
    engines: Mapping[str, Mapping[str, Any]]
    server: Mapping[str, Any]
    servers: Mapping[str, Mapping[str, Any]]
    embedding: Mapping[str, Any]
    judging: Mapping[str, Any]
    cluster: Mapping[str, Any]
    assumptions: Mapping[str, float]
    executor: Literal["auto", "local", "ray"]
    rows_per_block: int
    tolerance: float
    on_error: Literal["record", "fail"]
    budget: Mapping[str, float]
    sinks: Sequence[str | Mapping[str, Any]]
    name: str


class Overrides(Settings, total=False):
    """The settings that `run` and `generate` take."""

    suite: str | Mapping[str, Any]
    dataset: str
    columns: Mapping[str, Any]
    candidates: Sequence[Mapping[str, Any]]
    metrics: Sequence[str | Mapping[str, Any]]
    judge: str | Sequence[str] | Mapping[str, Any]
    out: str


ANSWERS_AT_ONCE = 16  # of a function that is asked
_ONE_RUN = threading.Lock()
IN_MEMORY = "responses"  # who answered rows that no file holds, if they do not say


def run(
    job: str | Path,
    *,
    budget_usd: float | None = None,
    confirm: bool = False,
    quiet: bool = False,
    **overrides: Unpack[Overrides],
) -> Run:
    """Runs the job in a YAML file; `overrides` replace its keys (limit=10, judge="rules").

    It stops before it spends more than `budget_usd`, resumably; without a budget, one that may cost
    more than $10 raises unless `confirm`. Progress goes to stderr, nothing with `quiet`. Raises
    ConfigError, DataError, ResourceError and others of memray_eval/errors.py; failed units do not
    raise, the summary counts them.

        me.run("jobs/memory.yaml", limit=10, judge="rules").table()
    """
    return _run(load_config(Path(job), _with_budget(overrides, budget_usd)), confirm, quiet)


def generate(job: str | Path, *, quiet: bool = False, **overrides: Unpack[Overrides]) -> Run:
    """Runs a job up to its responses, for `evaluate` to judge: `me.evaluate(done.path, ...)`. The
    rest is as of `run`.

        done = me.generate("jobs/memory.yaml", limit=10)
        done.to_pandas("samples")
    """
    config = load_config(Path(job), {"judge": "rules", **overrides})
    return _run(config, confirm=False, quiet=quiet, generate_only=True)


def evaluate(
    data: Any,
    metrics: Sequence[MetricEntry] = (),
    *,
    judge: Any = "auto",
    model: Model | None = None,
    suite: str | None = None,
    map: Mapping[str, Any] | None = None,
    out: str = "results",
    budget_usd: float | None = None,
    confirm: bool = False,
    quiet: bool = False,
    **settings: Unpack[Settings],
) -> Run:
    """Scores responses, or has a model give them first.

    `data` is a path, a list of mappings, or a table (pandas, polars, Arrow, a Hugging Face
    dataset); `map` says which of its columns is which field, if their names do not. `metrics`
    are names, "my_metrics.py:NAME", rubrics, functions of a sample and a response, and what
    computed_metric and judge_metric make; none: those of the suite. `model` is None if the
    data hold responses, a vLLM model, the keys of a candidate ({"model": ..., "backend": "openai",
    "base_url": ...}), or a function of a Sample, sync or async, that returns a text or a Response;
    what it raises is that sample's error, and of a session it is asked each turn. Further keys of
    a job go in `settings` (limit=10, tolerance=0.1). The rest and the errors are those of `run`.

        me.evaluate("answers.csv", ["relevance", "my_metrics.py:tone"], map={"query": "question"})
        me.evaluate([{"query": "Hi", "response": "Hello!"}], ["politeness"], judge="openai/gpt-4o")
    """
    is_file = isinstance(data, str | Path)
    path = data if is_file else write_rows(to_rows(data), out)
    keys = {"dataset": str(path), "judge": judge, "columns": map, "out": out, "suite": suite}
    if metrics:
        keys["metrics"] = to_entries(metrics, out)
    keys |= _with_budget(settings, budget_usd)
    answers = name_answers(str(path)) if is_file else existing_candidate(IN_MEMORY)
    if callable(model):
        name = getattr(model, "__name__", "")
        answers = existing_candidate(name if name.isidentifier() else "model")
        model_job = load_config(
            None, keys | {"candidates": [{"name": "model", "model": "function"}]}
        )
        rows = _answer(model_job, model)
        # What was read has our fields
        keys |= {"dataset": write_rows(rows, out), "suite": model_job.suite}
        keys |= {"columns": None, "reader": None}
        model = None
    if model is not None:
        candidate = {"model": model} if isinstance(model, str) else dict(model)
        candidate.setdefault("name", name_candidate(str(candidate.get("model", "model"))))
        return _run(load_config(None, keys | {"candidates": [candidate]}), confirm, quiet)
    job = load_config(None, keys | {"candidates": [answers]})
    if suite is None:
        explicit = {"metrics"} if metrics else set()
        job, differences = follow_origin(
            job, find_origin(job.dataset, job.columns), explicit | settings.keys()
        )
        if differences and not confirm:
            raise ConfigError(
                f"{'; '.join(differences)}; nothing was judged and nothing paid. Name the suite or "
                "the metrics that you mean, or say confirm=True"
            )
    return _run(job, confirm, quiet)


async def evaluate_async(*arguments: Any, **keywords: Any) -> Run:
    """`evaluate` in a thread, for `await`: the loop goes on. Such runs go one after the other, as a
    process has one Ray, one log and one limit a judge. Cancelled, a run finishes what is in flight
    (for up to DRAIN_S), and the error's notes say how to go on.

        await me.evaluate_async("answers.csv", ["relevance"])
    """
    stop = threading.Event()

    def work() -> Run:
        cancelled.set(stop)
        while not _ONE_RUN.acquire(timeout=POLL_S):
            if stop.is_set():
                raise Interrupted("cancelled before its run began")
        try:
            return evaluate(*arguments, **keywords)
        finally:
            _ONE_RUN.release()

    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError as error:
        stop.set()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([working], timeout=DRAIN_S)
        if working.done() and (ended := working.exception()):
            error.add_note(str(ended))
        raise


def score(
    query: str,
    response: str,
    metrics: Sequence[MetricEntry] = (),
    *,
    judge: Any = "auto",
    suite: str | None = None,
    confirm: bool = False,
    **fields: Any,
) -> dict[str, Score]:
    """Scores one response, in this process, and keeps nothing but the memory of paid calls: a Score
    a metric, by name. Its `status` says whether it has a `value`, `judge` who gave it, `error` why
    it is missing. Further fields of the sample go by their names (memory={"sleep": "5 h"}). The
    errors are those of `run`.

        me.score("How do I rest?", "Sleep early.", ["readability_score"])
    """
    with ScratchFolder("score") as out, without_advice():
        done = evaluate(
            [{"query": query, "response": response, **fields}],
            metrics,
            judge=judge,
            suite=suite,
            out=out,
            confirm=confirm,
            quiet=True,
            executor="local",
        )
        (record,) = from_table(done.folder.records().to_table())
    return {score.metric: score for score in record.scores}


def _with_budget(keys: Mapping[str, Any], usd: float | None) -> dict[str, Any]:
    return dict(keys) if usd is None else {**keys, "budget": {**keys.get("budget", {}), "usd": usd}}


def _run(job: RunConfig, confirm: bool, quiet: bool, generate_only: bool = False) -> Run:
    done = runs.run(job, to_stderr(quiet), quiet, generate_only, agree=lambda estimate: confirm)
    return Run(done.folder, done.exit_code)


def _answer(job: RunConfig, model: Callable[[Sample], Any]) -> list[dict[str, Any]]:
    """The job's samples with what a function answers, several at the same time; a session turn by
    turn, each a row. Raises ConfigError for samples with a simulated user."""
    spec = resolve_reading(job).with_columns(lambda line: None)
    problems: list[Any] = []
    scanned = scan_dataset(spec, problems)
    samples = [
        sample
        for shard in scanned.shards
        for sample in read_samples(shard, spec.reader, lambda entry, error: None)
    ]
    if any(sample.user for sample in samples):
        raise ConfigError(
            "model: a function of a Sample is not asked by a simulated user; name it in a job, as "
            "model: my_model.py:FUNCTION"
        )

    async def answer_all() -> list[dict[str, Any]]:
        places = asyncio.Semaphore(ANSWERS_AT_ONCE)
        answers = (_answer_turns(sample, model, places) for sample in samples)
        return [row for rows in await asyncio.gather(*answers) for row in rows]

    # A thread of its own: a notebook's has a loop already
    with ThreadPoolExecutor(1, thread_name_prefix="model") as thread:
        return thread.submit(copy_context().run, asyncio.run, answer_all()).result()


async def _answer_turns(
    sample: Sample, model: Callable[[Sample], Any], places: asyncio.Semaphore
) -> list[dict[str, Any]]:
    """The rows of a sample with what a function answers, one a turn."""
    rows, talk, lost = list[dict[str, Any]](), list[Turn](), ""
    for number, message in enumerate(sample.turns or (sample.query,), 1):
        turn = turn_sample(sample, number, message, talk)
        async with places:
            response = Response(error=lost) if lost else await _ask_function(turn, model)
        fields = {name: getattr(response, of) for of, (name, _) in RESPONSE_COLUMNS.items()}
        kept = {name: value for name, value in fields.items() if value is not None}
        rows.append(turn.model_dump(mode="json", exclude={"suite"}) | kept)
        if not lost and response.lack is not None:
            lost = not_asked(number, response.lack)
        talk += [Turn(role="user", content=message), Turn(role="assistant", content=response.text)]
    return rows


async def _ask_function(sample: Sample, model: Callable[[Sample], Any]) -> Response:
    """What a function answers; what it raises is the answer's error."""
    if (stop := cancelled.get()) is not None and stop.is_set():
        raise Interrupted("interrupted by its caller while a function answered; none is kept")
    try:
        return to_response(await call_own(model, sample))
    except Exception as error:
        return Response(error=describe_error(error))
