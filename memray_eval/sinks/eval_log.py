"""A run as logs of Inspect (.eval), one a candidate, which `inspect view`, read_eval_log and its
data frames open (inspect.aisi.org.uk/eval-logs.html).

Such a log is a zip of JSON: samples/ID_epoch_1.json, summaries.json, header.json. It is written
here row by row, so that memory does not grow with the run, and needs no package; the tests read it
with Inspect's own readers."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Any

from pyarrow import fs

import memray_eval
from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks.judgments import explain
from memray_eval.storage.paths import (
    is_object_store,
    locate,
    translate_cloud_errors,
    whole_file,
)
from memray_eval.types import Candidate, MetricSummary, Record, Response, Score, Summary

LOG_VERSION = 2  # of the format
EPOCH = 1
PACKING = {"compression": zipfile.ZIP_DEFLATED, "compresslevel": 1}
STATUSES = {"finished": "success", "stopped": "cancelled"}
STOP_REASONS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
LONGEST_INPUT, LONGEST_TEXT = 5120, 1024  # characters in a sample's summary, as Inspect cuts them
_NOT_IN_FILES = re.compile(r"[^A-Za-z0-9.-]+")


class InspectSink:
    """Writes a log a candidate to a folder or cloud URL; by default to inspect/ of the run."""

    def __init__(self, place: str) -> None:
        self._place = place.rstrip("/")

    def send(self, folder: RunFolder) -> int:
        """Writes the logs anew, each whole or not at all in the place of the one before, and
        returns how many scores they hold."""
        summary, manifest = folder.read_summary(), folder.read_manifest()
        filesystem, inner = locate(self._place)
        if not is_object_store(filesystem):
            filesystem.create_dir(inner, recursive=True)
        n_scores, logs, candidates = 0, dict[str, EvalLogWriter](), dict[str, Candidate]()
        with translate_cloud_errors(self._place), ExitStack() as stack:
            for record in folder.each():
                if (name := record.candidate.name) not in logs:
                    path = f"{inner}/{file_name(summary, manifest, name)}"
                    log = stack.enter_context(EvalLogWriter(filesystem, path))
                    logs[name], candidates[name] = log, record.candidate
                n_scores += logs[name].add(record)
            for name, log in logs.items():
                log.end(make_header(summary, manifest, candidates[name]))
        return n_scores


class EvalLogWriter:
    """One .eval file, which appears when the block ends, and not at all if it raises."""

    def __init__(self, filesystem: fs.FileSystem, path: str) -> None:
        self._filesystem, self._path = filesystem, path

    def __enter__(self) -> EvalLogWriter:
        self._stack = ExitStack()
        with ExitStack() as stack:
            file = stack.enter_context(whole_file(self._filesystem, self._path))
            self._zip = stack.enter_context(zipfile.ZipFile(file, "w", **PACKING))
            self._summaries: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> bool | None:
        return self._stack.__exit__(*raised)

    def add(self, record: Record) -> int:
        """Adds a unit as a sample, and returns how many scores it has."""
        sample = make_sample(record)
        name = f"samples/{sample['id']}_epoch_{EPOCH}.json"
        self._zip.writestr(name, _to_json(sample))
        self._summaries.write(b"," if self._summaries.tell() else b"[")
        self._summaries.write(_to_json(make_sample_summary(sample)))
        return len(sample["scores"])

    def end(self, header: Mapping[str, Any]) -> None:
        self._summaries.write(b"]" if self._summaries.tell() else b"[]")
        self._summaries.seek(0)
        with self._zip.open("summaries.json", "w", force_zip64=True) as file:
            shutil.copyfileobj(self._summaries, file)
        self._zip.writestr("header.json", _to_json(header))


def file_name(summary: Summary, manifest: Mapping[str, Any], candidate: str) -> str:
    """The name of a candidate's log, the same in every session, in Inspect's own way: when it was
    begun, what was asked, of whom, and an id."""
    began = str(manifest["started"]).replace(":", "-")
    parts = [_NOT_IN_FILES.sub("-", part)[:60] for part in (began, summary.suite, candidate)]
    return "_".join([*parts, task_id(summary.run_id, candidate)]) + ".eval"


def task_id(run_id: str, candidate: str) -> str:
    """A stable id of a run's candidate."""
    return hashlib.blake2b(f"{run_id}\0{candidate}".encode(), digest_size=11).hexdigest()


def make_sample(record: Record) -> dict[str, Any]:
    """A unit as a sample of Inspect. Its id is the sample's, its uuid the unit's; metrics that do
    not apply are left out."""
    sample, response = record.sample, record.response
    asked = [{"role": turn.role, "content": turn.content} for turn in sample.history]
    asked.append({"role": "user", "content": sample.query})
    told = sample.model_dump(
        mode="json", exclude={"id", "query", "history", "answers", "context"}, exclude_defaults=True
    )
    made: dict[str, Any] = {
        "id": sample.id.replace("\0", "\\0"),  # the name of a file in the zip
        "epoch": EPOCH,
        "input": asked if sample.history else sample.query,
        "target": list(sample.answers) if len(sample.answers) > 1 else "".join(sample.answers),
        "messages": asked,
        "metadata": {**told, "unit_id": record.unit_id, "candidate": record.candidate.name},
        "scores": {
            score.metric: make_score(score)
            for score in record.scores
            if score.status != "not_applicable"
        },
        "uuid": record.unit_id,
    }
    errors = [f"{score.metric}: {score.error}" for score in record.scores if score.error]
    if response is not None:
        made |= _output(record.candidate.model, response)
        made["messages"] = asked + [choice["message"] for choice in made["output"]["choices"]]
        errors = [response.error, *errors] if response.error else errors
    if record.is_failed:
        made["error"] = {"message": "\n".join(errors), "traceback": "", "traceback_ansi": ""}
    return made


def _output(model: str, response: Response) -> dict[str, Any]:
    """The fields of a sample that come from its response."""
    content: Any = response.text
    if response.thinking:
        content = [
            {"type": "reasoning", "reasoning": response.thinking},
            {"type": "text", "text": response.text},
        ]
    output: dict[str, Any] = {"model": model, "choices": [], "completion": response.text}
    if response.error is None:
        message = {"role": "assistant", "content": content, "model": model, "source": "generate"}
        stop = STOP_REASONS.get(response.finish_reason or "", "unknown")
        output["choices"] = [{"message": message, "stop_reason": stop}]
    found: dict[str, Any] = {"output": output}
    if response.output_tokens is not None:
        usage = _usage(response.prompt_tokens or 0, response.output_tokens)
        output["usage"], found["model_usage"] = usage, {model: usage}
    if response.duration_s is not None:
        output["time"] = found["total_time"] = found["working_time"] = response.duration_s
    return found


def make_score(score: Score) -> dict[str, Any]:
    """A score as one of Inspect. What has no value is NaN, which Inspect leaves out of every mean;
    `reason` is its status then."""
    judgment = _from_json(score.judgment)
    metadata = {
        "status": score.status,
        "judge": score.judge,
        "is_estimate": score.is_estimate,
        "parts": score.parts,
        "judgment": judgment,
        "error": score.error,
        "cost_usd": score.cost_usd,
    }
    made: dict[str, Any] = {
        "value": float("nan") if score.value is None else score.value,
        "explanation": explain(score.judgment) or score.error,
        "metadata": {key: value for key, value in metadata.items() if value not in (None, "", {})},
    }
    return made | ({} if score.value is not None else {"reason": score.status})


def make_sample_summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What Inspect lists of a sample without opening it."""
    small = {
        key: value
        for key, value in sample["metadata"].items()
        if len(json.dumps(value)) <= LONGEST_TEXT
    }
    kept = ("id", "epoch", "target", "model_usage", "total_time", "working_time", "uuid")
    scores = {
        name: {
            "value": score["value"],
            "explanation": (score["explanation"] or "")[:LONGEST_TEXT] or None,
            "metadata": {
                key: score["metadata"][key]
                for key in ("status", "judge", "is_estimate")
                if key in score["metadata"]
            },
        }
        for name, score in sample["scores"].items()
    }
    return {
        **{key: sample[key] for key in kept if key in sample},
        "input": _shorten(sample["input"]),
        "metadata": small,
        "scores": scores,
        "error": sample["error"]["message"] if "error" in sample else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def _shorten(asked: Any) -> Any:
    if isinstance(asked, str):
        return asked[:LONGEST_INPUT]
    return [{**message, "content": message["content"][:LONGEST_INPUT]} for message in asked]


def make_header(
    summary: Summary, manifest: Mapping[str, Any], candidate: Candidate
) -> dict[str, Any]:
    """The header of a candidate's log: what was asked of whom, and the figures."""
    name, sampling, dataset = candidate.name, candidate.sampling, manifest.get("dataset") or {}
    metrics = [metric for metric in summary.metrics if metric.candidate == name]
    made = next((one for one in summary.candidates if one.candidate == name), None)
    usage = {} if made is None else {made.model: _usage(made.prompt_tokens, made.output_tokens)}
    n = 0 if made is None else made.n
    return {
        "version": LOG_VERSION,
        "status": STATUSES.get(str(manifest.get("status")), "error"),
        "eval": {
            "eval_id": task_id(summary.run_id, name),
            "run_id": summary.run_id,
            "created": manifest["started"],
            "task": summary.suite,
            "task_id": task_id(summary.run_id, name),
            "task_version": 0,
            "dataset": {
                "name": str(dataset.get("path", "")).rstrip("/").rpartition("/")[2],
                "location": dataset.get("path"),
                "samples": dataset.get("n_samples"),
            },
            "model": candidate.model,
            "model_base_url": candidate.base_url,
            "model_generate_config": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_tokens": sampling.max_tokens,
                "seed": sampling.seed,
                "stop_seqs": list(sampling.stop) or None,
            },
            "config": {"epochs": EPOCH},
            "packages": {"memray-eval": memray_eval.__version__},
            "metadata": {
                "candidate": name,
                "prompt": candidate.prompt,
                "dataset_fingerprint": dataset.get("fingerprint"),
                "judges": manifest.get("judges"),
            },
            "scorers": [{"name": metric.metric} for metric in metrics],
        },
        "plan": {"name": "plan", "steps": [{"solver": "generate"}]},
        "results": {
            "total_samples": n,
            "completed_samples": n if made is None else n - made.n_failed,
            "scores": [_eval_score(metric) for metric in metrics],
        },
        "stats": {
            "started_at": manifest["started"],
            "completed_at": manifest.get("written", manifest["started"]),
            "model_usage": usage,
        },
    }


def _eval_score(metric: MetricSummary) -> dict[str, Any]:
    """A metric's figure, with its interval, as one of Inspect's."""
    figure = metric.figure
    found = {
        figure.average: figure.value,
        "stderr": figure.stderr,
        "ci_low": figure.low,
        "ci_high": figure.high,
    }
    return {
        "name": metric.metric,
        "scorer": metric.metric,
        "scored_samples": metric.n_scored,
        "unscored_samples": metric.n - metric.n_scored,
        "metrics": {
            name: {"name": name, "value": value}
            for name, value in found.items()
            if value is not None
        },
        "metadata": {
            "scale": list(metric.scale),
            "judges": metric.judges,
            "n_estimated": metric.n_estimated,
            "worth": metric.worth,
        },
    }


def _usage(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    return {
        "input_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }


def _from_json(text: str | None) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _to_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
