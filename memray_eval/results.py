"""The run folder: where a run's config, records and summaries are written, and read again.

results/<run_id>/run.yaml            the resolved config, no secrets
                 manifest.json       versions, dataset fingerprint, judge per metric, timings, counts, status
                 records/*.parquet   one row a unit
                 problems.jsonl      the dataset's invalid entries, when a run skipped them
                 summary.json, summary.txt
"""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import yaml
from pyarrow import fs
from pydantic import ValidationError

from memray_eval.config import RunConfig
from memray_eval.errors import ConfigError, DataError
from memray_eval.rows import RECORD_SCHEMA, from_table
from memray_eval.storage import locate, write_whole
from memray_eval.types import Frozen, Record, Summary


class RunFolder:
    """One run's folder, on a local path or a cloud URL. Every file appears whole or not at all."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._filesystem, self._inner = locate(self.path)

    @property
    def run_id(self) -> str:
        return self.path.rpartition("/")[2]

    def create(self) -> None:
        """Makes the folder. Raises ConfigError where it cannot be written."""
        try:
            self._filesystem.create_dir(f"{self._inner}/records", recursive=True)
        except OSError as error:
            raise ConfigError(f"cannot make the run folder {self.path}: {error}; name another place with --out") from None

    def write_config(self, config: RunConfig) -> None:
        text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
        self._write("run.yaml", text)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        self._write("manifest.json", json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    def read_manifest(self) -> dict[str, Any]:
        return dict(json.loads(self._read("manifest.json")))

    def write_problems(self, problems: Iterable[Frozen]) -> None:
        self._write("problems.jsonl", "".join(problem.model_dump_json() + "\n" for problem in problems))

    def write_summary(self, summary: Summary, text: str) -> None:
        self._write("summary.json", summary.model_dump_json(indent=2) + "\n")
        self._write("summary.txt", text)

    def read_summary(self) -> Summary:
        """Raises DataError when there is none, or it is not one."""
        try:
            return Summary.model_validate_json(self._read("summary.json"))
        except ValidationError as error:
            raise DataError(
                f"{self.path}/summary.json is not a summary of this version: {error.error_count()} problems"
            ) from None

    def write_records(self, table: pa.Table) -> str:
        """Writes a block of records as one file, named by its units, so that a retried task writes the same file again."""
        units = "\n".join(table.column("unit_id").to_pylist())
        name = f"part-{hashlib.blake2b(units.encode(), digest_size=8).hexdigest()}.parquet"
        buffer = io.BytesIO()
        pq.write_table(table.cast(RECORD_SCHEMA), buffer, compression="zstd")
        write_whole(self._filesystem, f"{self._inner}/records/{name}", buffer.getvalue())
        return name

    def records(self) -> pads.Dataset:
        """All records written so far, as an Arrow dataset. Raises DataError when there are none."""
        selector = fs.FileSelector(f"{self._inner}/records", allow_not_found=True)
        files = [info.path for info in self._filesystem.get_file_info(selector) if info.path.endswith(".parquet")]
        if not files:
            raise DataError(f"{self.path} holds no records")
        return pads.dataset(sorted(files), schema=RECORD_SCHEMA, format="parquet", filesystem=self._filesystem)

    def export_responses(self, path: str, model: str, stamp: str) -> None:
        """Writes seed 000's responses file: model, timestamp, and every sample with its response, under `results`."""
        head = {"model": model, "timestamp": stamp}
        self._export(path, head, (_answer_row(record) for record in self._each()))

    def export_evaluation(self, path: str, summary: Summary) -> None:
        """Writes seed 000's evaluation file: the summary, and every response with its judgments, under `results`."""
        head = {"summary": summary.model_dump(mode="json", exclude={"metrics": {"__all__": {"layout"}}})}
        self._export(path, head, (_evaluated_row(record) for record in self._each()))

    def _each(self) -> Iterator[Record]:
        for batch in self.records().to_batches():
            yield from from_table(pa.Table.from_batches([batch]))

    def _export(self, path: str, head: dict[str, Any], rows: Iterable[dict[str, Any]]) -> None:
        """One JSON object with a long list, written row by row."""
        filesystem, inner = locate(path)
        with filesystem.open_output_stream(inner) as stream:
            stream.write((json.dumps(head, ensure_ascii=False)[:-1] + ', "results": [\n').encode())
            for number, row in enumerate(rows):
                stream.write((",\n" * (number > 0) + json.dumps(row, ensure_ascii=False)).encode())
            stream.write(b"\n]}\n")

    def _write(self, name: str, text: str) -> None:
        write_whole(self._filesystem, f"{self._inner}/{name}", text.encode())

    def _read(self, name: str) -> bytes:
        try:
            with self._filesystem.open_input_stream(f"{self._inner}/{name}") as stream:
                return bytes(stream.read())
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(f"{self.path} has no {name}; give the folder of a finished run (results/<run_id>)") from None


def _answer_row(record: Record) -> dict[str, Any]:
    response = record.response.model_dump() if record.response else {"error": "no response"}
    text = response.pop("text", "")
    sample = record.sample.model_dump(mode="json", exclude={"suite", "context"}, exclude_defaults=True)
    return {**sample, "candidate": record.candidate.name, "model": record.candidate.model, "response": text, **response}


def _evaluated_row(record: Record) -> dict[str, Any]:
    scores = {}
    for score in record.scores:
        row = score.model_dump(mode="json", exclude={"metric", "judgment"})
        scores[score.metric] = {**row, **(json.loads(score.judgment) if score.judgment else {})}
    return {**_answer_row(record), "scores": scores}


def new_run_id(config: RunConfig) -> str:
    """suite-candidate-time-random: sorts by suite and time, and two runs of one second differ."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    candidate = "".join(letter if letter.isalnum() else "-" for letter in config.candidates[0].name)[:32]
    return f"{config.suite}-{candidate}-{stamp}-{secrets.token_hex(2)}"
