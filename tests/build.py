"""Builders that tests of many rooms share: samples, records, scores, summaries, jobs and folders,
each with the least that is valid; keyword arguments override."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pydantic import BaseModel

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import MetricOptions
from memray_eval.execution.stages.judge import judge_record
from memray_eval.judges.call_cache import CachedCall
from memray_eval.metric import ComputedMetric, JudgedMetric, Metric, score_by_code, score_by_verdict
from memray_eval.metrics import all_metrics, pick
from memray_eval.metrics.assistant.empathy import PARTS
from memray_eval.metrics.assistant.memory_utilization import KeyCitation, MemoryUtilizationJudgment
from memray_eval.ports import Verdict
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import RECORD_SCHEMA, to_table
from memray_eval.types import (
    BIG_FIVE,
    EXISTING,
    Candidate,
    GenerationSummary,
    MetricSummary,
    Performance,
    Record,
    Response,
    Sample,
    Score,
    Summary,
    unit_id,
)
from tests.conftest import HANG_S, SAMPLES
from tests.servers.provider import Provider

if TYPE_CHECKING:
    from memray_eval.execution.runs import RunResult

Job: TypeAlias = Callable[..., RunConfig]  # what a fixture makes configs with
JUDGE = "openai/local"
GIVEN = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}  # whose answers there are
ANEMIA = {"condition": "mild anemia"}
RESPONSE_TEXT = (
    "You told me that you take iron and rest badly, so keep the walk short today, and see how you "
    "feel after lunch."
)


def build_sample(**fields: Any) -> Sample:
    return Sample.model_validate({"id": "s", "query": "q"} | fields)


def build_record(
    sample: Sample | None = None,
    response: Response | str | None = None,
    *scores: Score,
    candidate: Candidate | str = "c",
    **fields: Any,
) -> Record:
    """A unit of the sample and the candidate; its id is theirs unless `unit_id` is given."""
    sample = sample or build_sample()
    if isinstance(candidate, str):
        candidate = Candidate(name=candidate, model="m")
    epoch = fields.get("epoch", 1)
    fields.setdefault("unit_id", unit_id(sample.id, candidate, sample.suite, epoch))
    answer = Response(text=response) if isinstance(response, str) else response
    return Record(sample=sample, candidate=candidate, response=answer, scores=scores, **fields)


def build_score(metric: str = "empathy", value: float | None = 1.0, **fields: Any) -> Score:
    """A score of that value, or a failed one without."""
    status = {"status": "scored"} if value is not None else {"status": "error", "error": "gone"}
    return Score.model_validate({"metric": metric, "value": value} | status | fields)


def build_call(key: str, **fields: Any) -> CachedCall:
    """A judge call that was paid."""
    fixed = {"judge": "openai/gpt-4o", "judgment": '{"n": 1}', "cost_usd": 0.25, "created": 1e9}
    tokens = {"input_tokens": 9, "output_tokens": 2}
    return CachedCall.model_validate({"key": key} | fixed | tokens | fields)


def build_summary(**fields: Any) -> Summary:
    """The summary of a run of one unit that has no figures."""
    counts = {"n_samples": 1, "n_invalid": 0, "n_units": 1, "n_failed_units": 0}
    times = {"generation_s": None, "evaluation_s": None, "total_s": 1.0}
    lists = {"candidates": (), "metrics": ()}
    return Summary(**({"run_id": "r", "suite": "memory"} | counts | times | lists | fields))


def build_metric(metric: str, n: int = 1, **fields: Any) -> MetricSummary:
    """The summary of a metric that was scored on all of `n` units of candidate c."""
    about = {"metric": metric, "candidate": "c", "title": "", "scale": (0, 1), "coverage": 1.0}
    counts = {"n": n, "n_scored": n, "n_abstained": 0, "n_not_applicable": 0, "n_failed": 0}
    return MetricSummary.model_validate(about | counts | fields)


def build_generation(candidate: str, n: int = 1) -> GenerationSummary:
    """The summary of `n` answers of a candidate, whose times were not measured."""
    counts = {"n": n, "n_failed": 0, "prompt_tokens": 1, "output_tokens": 1, "finish_reasons": {}}
    times = ("output_tokens_per_s", "ttft_s_mean", "ttft_s_p95", "duration_s_mean")
    return GenerationSummary(candidate=candidate, model="m", **counts, **dict.fromkeys(times))


def build_performance(
    name: str, speed: float | None, quality: float | None, stderr: float | None = 0.5, **fields: Any
) -> Performance:
    """The speed and quality of a candidate over three answers."""
    times = {"duration_s_total": 15.3, "duration_s_mean": 5.1, "ttft_s_mean": 0.1}
    counts = {"task": None, "n": 3, "n_scored": 3, "output_tokens": 156, "ttft_s_p95": 0.2}
    figures = {"tokens_per_s": speed, "quality": quality, "quality_stderr": stderr}
    return Performance.model_validate({"candidate": name} | counts | times | figures | fields)


def build_folder(
    path: Path, records: Iterable[Record] = (), manifest: Mapping[str, Any] | None = None
) -> RunFolder:
    """A run's folder that holds these records, in parts of 1,000."""
    folder, rows = RunFolder(str(path)), list(records)
    folder.create()
    for start in range(0, len(rows), 1000):
        folder.write_part(to_table(rows[start : start + 1000]))
    if manifest is not None:
        folder.write_manifest(dict(manifest))
    return folder


def build_dataset(folder: Path, *parts: Sequence[Record]) -> pads.Dataset:
    """Records as Parquet files of two rows a group, one a part."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        pq.write_table(to_table(part), folder / f"part-{number}.parquet", row_group_size=2)
    return pads.dataset(folder, schema=RECORD_SCHEMA, format="parquet")


def build_config(**keys: Any) -> RunConfig:
    """A job of one candidate."""
    candidates = [{"name": "c", "model": "org/model"}]
    return RunConfig.model_validate({"dataset": "d.jsonl", "candidates": candidates} | keys)


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Rows as JSONL."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def score_text(metric: str, sample: Sample, text: str, **response: Any) -> Score:
    """The score that a computed metric gives an answer."""
    computed = all_metrics()[metric]
    assert isinstance(computed, ComputedMetric)
    return score_by_code(computed, sample, Response(text=text, **response))


def judged_metric(name: str, options: MetricOptions = MetricOptions()) -> JudgedMetric:
    (metric,) = pick([name], options)
    assert isinstance(metric, JudgedMetric)
    return metric


def score_judgment(
    metric: JudgedMetric | str, judgment: BaseModel, sample: Sample, text: str = "x", **verdict: Any
) -> Score:
    """The score that a judge's judgment gives an answer."""
    metric = judged_metric(metric) if isinstance(metric, str) else metric
    whole = Verdict(judgment=judgment, **{"judge": "a/b", **verdict})
    return score_by_verdict(metric, sample, Response(text=text), whole)


def judge_metrics(
    record: Record, metrics: Sequence[Metric], judges: dict[str, Any], *options: Any
) -> Record:
    """The record with its scores by these judges."""
    return asyncio.run(judge_record(record, metrics, judges, *options))


def empathy_verdict(*levels: int, quotes: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    """A judge's empathy judgment with these levels of its three parts; the first has the quotes."""
    parts: dict[str, Any] = {
        name: {"evidence": [], "reason": "r", "level": level}
        for name, level in zip(PARTS, levels, strict=True)
    }
    parts[PARTS[0]]["evidence"] = [*quotes]
    rest = {"dismissive_words": [], "empathy_gaps": [], "explanation": "warm"}
    return parts | rest | fields


def cited(*keys: str, evidence: Sequence[KeyCitation] = ()) -> MemoryUtilizationJudgment:
    """A judgment that the response uses these keys."""
    return MemoryUtilizationJudgment(evidence=[*evidence], reasoning="r", cited_keys=[*keys])


def served(server: Any, name: str = "served", **fields: Any) -> dict[str, Any]:
    """A candidate of a local server."""
    return {"name": name, "model": "m", "backend": "openai", "base_url": server.base_url, **fields}


def served_job(out: Path, server: Provider, /, **overrides: Any) -> RunConfig:
    """A config that asks a local server for answers, for embeddings, and as every judge of
    OpenAI's."""
    config: dict[str, Any] = {
        "dataset": str(SAMPLES),
        "candidates": [served(server)],
        "embedding": {"model": "openai/hashed", "base_url": server.base_url},
        "metrics": ["memory_utilization", "relevance"],
        "judge": "rules",
        "out": str(out / "results"),
    }
    judging = {"base_urls": {"openai": server.base_url}, "cache": str(out / "calls.sqlite")}
    config |= {**overrides, "judging": judging | overrides.get("judging", {})}
    return RunConfig.model_validate(config)


def embedded_job(out: Path, **keys: Any) -> RunConfig:
    """A config that asks an engine of the embedded model about the shipped samples."""
    candidates = [{"name": "one", "model": "embedded"}]
    fixed = {"dataset": str(SAMPLES), "candidates": candidates, "out": str(out)}
    return RunConfig.model_validate(fixed | keys)


def judging_job(
    dataset: Path,
    out: Path,
    base_url: str,
    metrics: tuple[str, ...],
    executor: str = "ray",
    **judging: Any,
) -> RunConfig:
    """Judges responses that exist on a local provider, with no memory of earlier calls unless
    `cache` is given."""
    cache = str(out / "calls.sqlite")
    return build_config(
        dataset=str(dataset),
        out=str(out),
        candidates=[GIVEN],
        metrics=metrics,
        judge=JUDGE,
        judging={"base_urls": {"openai": base_url}, "cache": cache, **judging},
        cluster={"num_cpus": 2},
        executor=executor,
    )


def write_responses(folder: Path, units: int) -> Path:
    """A JSONL file of `units` responses, each to a sample of its own."""
    talk = (("user", "I take iron."), ("assistant", "Good to know."))
    fixed = {
        "emotion": {"sad": 0.7, "neutral": 0.3},
        "traits": dict.fromkeys(BIG_FIVE, 0.5),
        "required_keys": ["condition"],
        "history": [{"role": role, "content": text} for role, text in talk],
    }
    rows = (
        {
            "id": f"B{n:06d}",
            "query": f"Should I run {n % 40 + 1} km today?",
            "memory": ANEMIA | {"sleep": f"{n % 9 + 1} hours", "city": f"town {n}"},
            **fixed,
            "response": f"{RESPONSE_TEXT} It is day {n}.",
        }
        for n in range(units)
    )
    return write_lines(folder / f"responses-{units}.jsonl", rows)


def write_long_memories(folder: Path, count: int, tokens: int) -> Path:
    """A JSONL file of samples, each with a memory of its own of about so many tokens."""
    history = [{"role": "user", "content": "I take iron."}]
    fixed = {"query": "Should I run today?", "required_keys": ["condition"], "history": history}
    days = range(tokens // 10)
    rows = (
        {
            "id": f"B{n:04d}",
            "memory": ANEMIA
            | {f"day_{day}": f"In town {n} they ran for {day} km." for day in days},
            **fixed,
        }
        for n in range(count)
    )
    return write_lines(folder / f"samples-{tokens}.jsonl", rows)


def run_module(
    *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> CompletedProcess[str]:
    """Runs `python -m ...`, in this process's environment unless `env` is another."""
    program = [sys.executable, "-m", *words]
    return subprocess.run(
        program, capture_output=True, text=True, cwd=cwd, env=env, timeout=HANG_S, check=False
    )


def run_command(*words: str, cwd: Path | None = None, **environment: str) -> CompletedProcess[str]:
    """Runs `memray-eval ...` as a user would."""
    return run_module("memray_eval", *words, cwd=cwd, env=os.environ | environment)


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def finish(job: RunConfig, **options: Any) -> RunResult:
    """Runs a job to its summary, in silence."""
    from memray_eval.execution.runs import run

    return run(job, lambda line: None, quiet=True, **options)


def go_on(path: str, **options: Any) -> RunResult:
    """Resumes a run to its summary, in silence."""
    from memray_eval.execution.runs import resume

    return resume(path, lambda line: None, quiet=True, **options)


@dataclass
class UntilWritten:
    """A server's `ready`: holds the answer to `query` back until a record of another sample is in a
    run folder below `out`, for a minute at most. `saw` says whether it came."""

    query: str
    out: Path
    saw: bool = False

    async def __call__(self, body: dict[str, Any]) -> None:
        if not any(self.query in str(message["content"]) for message in body["messages"]):
            return
        for _ in range(600):
            if self.saw or any(self.out.glob("*/records/**/*.parquet")):
                self.saw = True
                return
            await asyncio.sleep(0.1)


def echo_memory(body: dict[str, Any]) -> str:
    """Cites the first two lines of the profile, so that every sample has something to score."""
    lines = [
        line[2:] for line in body["messages"][0]["content"].splitlines() if line.startswith("- ")
    ]
    return " ".join(f"Your {line}." for line in lines[:2]) + " Rest more."
