"""A run as logs of Inspect (.eval), one a candidate, which `inspect view`, read_eval_log and its
data frames open (inspect.aisi.org.uk/eval-logs.html): a zip of JSON, samples/ID_epoch_1.json,
summaries.json, header.json, written row by row. The tests read it with Inspect's own readers."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from pyarrow import fs

from memray_eval._version import __version__
from memray_eval.report.exports import explain, parse_judgment
from memray_eval.results.run_folder import RunFolder
from memray_eval.storage.paths import is_object_store, locate, translate_cloud_errors, whole_file
from memray_eval.types import Candidate, MetricSummary, Summary, is_estimate
from memray_eval.types.json_text import candidate_from_json

LOG_VERSION = 2  # of the format
NO_VALUE = float("nan")
ROWS_AT_ONCE = 256
KEYS = ("required_keys", "forbidden_keys", "neutral_keys")
# The fields of a sample that its metadata tell
TOLD = ("suite", "task", "language", "scenario", "prompt_type", *KEYS, "classes")
TOLD_AS_JSON = ("memory", "traits", "emotion", "metadata")
STATUSES = {"finished": "success", "stopped": "cancelled"}
STOP_REASONS = {"stop": "stop", "length": "max_tokens", "content_filter": "content_filter"}
# Of a unit without an answer
STOP_BY_CAUSE = {"limit": "max_tokens", "tool_call": "tool_calls", "refusal": "content_filter"}
LONGEST_INPUT, LONGEST_TEXT = 5120, 1024  # characters in a sample's summary, as Inspect cuts them
_NOT_IN_FILES = re.compile(r"[^A-Za-z0-9.-]+")


def send_logs(folder: RunFolder, place: str) -> int:
    """Writes the logs to a folder or cloud URL again, each in place of the last; returns how many
    scores they hold."""
    summary, manifest = folder.read_summary(), folder.read_manifest()
    filesystem, inner = locate(place)
    if not is_object_store(filesystem):
        filesystem.create_dir(inner, recursive=True)
    n_scores, logs, candidates = 0, dict[str, EvalLogWriter](), dict[str, Candidate]()
    with translate_cloud_errors(place), ExitStack() as stack:
        for row in each_row(folder):
            if (name := row["candidate"]) not in logs:
                path = f"{inner}/{file_name(summary, manifest, name)}"
                logs[name] = stack.enter_context(open_log(filesystem, path))
                candidates[name] = candidate_from_json(row["candidate_config"])
            n_scores += logs[name].add(make_sample(row))
        for name, log in logs.items():
            log.end(make_header(summary, manifest, candidates[name], log.epochs))
    return n_scores


def each_row(folder: RunFolder, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yields a run's rows as they are stored: a third of the time of validating records again."""
    for part in folder.each_part(columns):
        for batch in part.to_batches(ROWS_AT_ONCE):
            yield from batch.to_pylist(maps_as_pydicts="strict")


@contextmanager
def open_log(filesystem: fs.FileSystem, path: str) -> Iterator[EvalLogWriter]:
    """Opens an .eval file, which appears when the block ends, and not at all if it raises."""
    with (
        whole_file(filesystem, path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
        tempfile.TemporaryFile() as summaries,
    ):
        yield EvalLogWriter(packed, summaries)


class EvalLogWriter:
    """Writes the members of an .eval file: samples as they come, then what stands over all."""

    def __init__(self, packed: zipfile.ZipFile, summaries: IO[bytes]) -> None:
        self._packed, self._summaries, self.epochs = packed, summaries, 1

    def add(self, sample: Mapping[str, Any]) -> int:
        """Adds a sample, and returns how many scores it has."""
        name = f"samples/{sample['id']}_epoch_{sample['epoch']}.json"
        self._packed.writestr(name, _to_json(sample))
        self._summaries.write(b"," if self._summaries.tell() else b"[")
        self._summaries.write(_to_json(make_sample_summary(sample)))
        self.epochs = max(self.epochs, sample["epoch"])
        return len(sample["scores"])

    def end(self, header: Mapping[str, Any]) -> None:
        """Adds the samples' summaries, and the header, which makes it a finished log."""
        self._summaries.write(b"]" if self._summaries.tell() else b"[]")
        self._summaries.seek(0)
        with self._packed.open("summaries.json", "w", force_zip64=True) as file:
            shutil.copyfileobj(self._summaries, file)
        self._packed.writestr("header.json", _to_json(header))


def file_name(summary: Summary, manifest: Mapping[str, Any], candidate: str) -> str:
    """The name of a candidate's log, the same in every session, in Inspect's own way: when it was
    begun, what was asked, of whom, and an id."""
    began = str(manifest["started"]).replace(":", "-")
    parts = [_NOT_IN_FILES.sub("-", part)[:60] for part in (began, summary.suite, candidate)]
    return "_".join([*parts, task_id(summary.run_id, candidate)]) + ".eval"


def task_id(run_id: str, candidate: str) -> str:
    """A stable id of a run's candidate."""
    return hashlib.blake2b(f"{run_id}\0{candidate}".encode(), digest_size=11).hexdigest()


def make_sample(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of records as a sample of Inspect, without the metrics that do not apply."""
    history, scores = json.loads(row["history"] or "[]"), row["scores"] or ()
    messages = [*history, {"role": "user", "content": row["query"]}]
    answers = row["answers"] or []
    metadata = {name: row[name] for name in ("candidate", "unit_id", "no_answer", "refusal", *TOLD)}
    metadata |= {name: json.loads(row[name] or "null") for name in TOLD_AS_JSON}
    fields: dict[str, Any] = {
        "id": row["sample_id"].replace("\0", "\\0"),  # the name of a file in the zip
        "epoch": row.get("epoch") or 1,
        "input": messages if history else row["query"],
        "target": answers if len(answers) > 1 else "".join(answers),
        "messages": messages,
        "metadata": {name: value for name, value in metadata.items() if value},
        "scores": {
            score["metric"]: make_score(score)
            for score in scores
            if score["status"] != "not_applicable"
        },
        "uuid": row["unit_id"],
    }
    if row["response"] is not None or row["error"] is not None:
        fields |= _make_output(row)
        choices = fields["output"]["choices"]
        fields["messages"] = messages + [choice["message"] for choice in choices]
    errors = [row["error"]] if row["error"] is not None else []
    failed = (score for score in scores if score["status"] == "error")
    errors += [f"{score['metric']}: {score['error']}" for score in failed]
    if errors:
        fields["error"] = {"message": "\n".join(errors), "traceback": "", "traceback_ansi": ""}
    return fields


def _make_output(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a sample that come from its response."""
    model, text = row["model"], row["response"] or ""
    content: Any = text
    if row["thinking"]:
        content = [
            {"type": "reasoning", "reasoning": row["thinking"]},
            {"type": "text", "text": text},
        ]
    output: dict[str, Any] = {"model": model, "choices": [], "completion": text}
    if row["error"] is None:
        message = {"role": "assistant", "content": content, "model": model, "source": "generate"}
        reason = STOP_REASONS.get(row["finish_reason"] or "", "unknown")
        stop = STOP_BY_CAUSE.get(row["no_answer"] or "", reason)
        output["choices"] = [{"message": message, "stop_reason": stop}]
    fields: dict[str, Any] = {"output": output}
    if row["output_tokens"] is not None:
        usage = _usage(row["prompt_tokens"] or 0, row["output_tokens"])
        output["usage"], fields["model_usage"] = usage, {model: usage}
    if row["duration_s"] is not None:
        output["time"] = fields["total_time"] = fields["working_time"] = row["duration_s"]
    return fields


def make_score(score: Mapping[str, Any]) -> dict[str, Any]:
    """A score as one of Inspect; without a value NaN, which its means leave out, and a `reason`."""
    text, value = score["judgment"], score["value"]
    judgment = parse_judgment(text)
    metadata = {
        "status": score["status"],
        "judge": score["judge"],
        "is_estimate": score["status"] == "scored" and is_estimate(score["judge"]),
        "parts": dict(score["parts"] or ()),
        "judgment": judgment,
        "error": score["error"],
        "cost_usd": score["cost_usd"],
    }
    fields: dict[str, Any] = {
        "value": NO_VALUE if value is None else value,
        "explanation": explain(text, judgment) or score["error"],
        "metadata": {key: of for key, of in metadata.items() if of not in (None, "", {})},
    }
    return fields | ({} if value is not None else {"reason": score["status"]})


def make_sample_summary(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a sample that Inspect lists without opening it."""
    messages = sample["input"]
    about = sample["metadata"].items()
    small = {key: value for key, value in about if len(str(value)) <= LONGEST_TEXT}
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
        "input": messages[:LONGEST_INPUT]
        if isinstance(messages, str)
        else [message | {"content": message["content"][:LONGEST_INPUT]} for message in messages],
        "metadata": small,
        "scores": scores,
        "error": sample["error"]["message"] if "error" in sample else None,
        "completed": True,
        "message_count": len(sample["messages"]),
    }


def make_header(
    summary: Summary, manifest: Mapping[str, Any], candidate: Candidate, epochs: int = 1
) -> dict[str, Any]:
    """The header of a candidate's log: what was asked of whom, how often, and the figures."""
    name, sampling, dataset = candidate.name, candidate.sampling, manifest.get("dataset") or {}
    metrics = [metric for metric in summary.metrics if metric.candidate == name]
    totals = next((row for row in summary.candidates if row.candidate == name), None)
    n, usage = 0, dict[str, dict[str, int]]()
    if totals is not None:
        n, usage[totals.model] = totals.n, _usage(totals.prompt_tokens, totals.output_tokens)
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
                "max_tokens": None if sampling.max_tokens == "auto" else sampling.max_tokens,
                "seed": sampling.seed,
                "stop_seqs": list(sampling.stop or ()) or None,
                "extra_body": candidate.extra or None,
            },
            "config": {"epochs": epochs},
            "packages": {"memray-eval": __version__},
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
            "completed_samples": n if totals is None else n - totals.n_failed,
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
    figures = {
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
            for name, value in figures.items()
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


def _to_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")  # half a character stays JSON's escape of it
