"""Inspect's logs of a run, by their bytes; tests/local/test_sinks.py has Inspect read them."""

import json
import math
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memray_eval.results.run_folder import RunFolder
from memray_eval.sinks import eval_log
from memray_eval.sinks.eval_log import file_name, make_sample, make_score, send_logs
from memray_eval.types import Record, Response, Score, Turn
from tests.build import build_score
from tests.runs import hostile_records, plain_records, write_run
from tests.unit.sinks.test_sinks import to_row


def send(folder: RunFolder, target: Path) -> list[Path]:
    send_logs(folder, str(target))
    return sorted(target.glob("*.eval"))


def logs_of(folder: RunFolder, target: Path) -> Iterator[dict[str, Any]]:
    for path in send(folder, target):
        with zipfile.ZipFile(path) as log:
            yield {name: json.loads(log.read(name)) for name in log.namelist()}


def with_scores(record: Record, *scores: Score) -> dict[str, Any]:
    """The record with these scores, as a sink reads it."""
    return to_row(record.model_copy(update={"scores": scores}))


def test_every_unit_is_a_sample_of_its_candidate_s_log(tmp_path: Path) -> None:
    records = list(plain_records(12))
    folder = write_run(tmp_path / "run", records, 12)
    seen = []
    for log in logs_of(folder, tmp_path / "logs"):
        header, summaries = log.pop("header.json"), log.pop("summaries.json")
        samples = list(log.values())
        assert [summary["uuid"] for summary in summaries] == [sample["uuid"] for sample in samples]
        assert set(log) == {f"samples/{sample['id']}_epoch_1.json" for sample in samples}
        name = header["eval"]["metadata"]["candidate"]
        seen += [(name, sample["uuid"]) for sample in samples]
    assert sorted(seen) == sorted((record.candidate.name, record.unit_id) for record in records)


def test_each_of_several_answers_is_an_epoch_of_its_sample(tmp_path: Path) -> None:
    records = [
        plain.model_copy(update={"epoch": epoch, "unit_id": f"{plain.unit_id[:-1]}{epoch}"})
        for plain in plain_records(2)
        for epoch in (1, 2)
    ]
    for log in logs_of(write_run(tmp_path / "run", records, 4), tmp_path / "logs"):
        assert log["header.json"]["eval"]["config"] == {"epochs": 2}
        assert {name[-6] for name in log if name.startswith("samples/")} == {"1", "2"}


def test_hostile_texts_are_only_texts(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", hostile_records(), 4)
    (log,) = logs_of(folder, tmp_path / "logs")
    samples = (sample for name, sample in log.items() if name.startswith("samples/"))
    texts = {sample["output"]["completion"] for sample in samples}
    assert texts == {record.response.text for record in hostile_records() if record.response}


def test_a_log_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", plain_records(6), 6)
    before = send(folder, tmp_path / "logs")
    again = {path: path.read_bytes() for path in send(folder, tmp_path / "logs")}
    assert before == [*again]

    def broken(row: dict[str, Any]) -> dict[str, Any]:
        if not row["sample_id"].endswith("0"):
            raise OSError("the disk is gone")
        return make_sample(row)

    monkeypatch.setattr(eval_log, "make_sample", broken)
    with pytest.raises(OSError, match="disk is gone"):
        send_logs(folder, str(tmp_path / "logs"))
    left = sorted((tmp_path / "logs").iterdir())
    assert {path: path.read_bytes() for path in left} == again


def test_a_sample_has_the_conversation_the_answer_and_its_scores(record: Record) -> None:
    more = {"history": (Turn(role="user", content="Hi"),), "answers": ("yes", "sure")}
    sample = record.sample.model_copy(update=more)
    response = Response(
        text="Rest.", thinking="Hm.", finish_reason="length",
        prompt_tokens=7, output_tokens=2, duration_s=0.5,
    )  # fmt: skip
    row = with_scores(
        record.model_copy(update={"sample": sample, "response": response}),
        build_score("empathy", 3.0, judge="rules"),
        Score(metric="safety", status="abstained", judge="openai/j"),
        Score(metric="relevance", status="not_applicable"),
    )
    logged = make_sample(row)
    assert [message["role"] for message in logged["messages"]] == ["user", "user", "assistant"]
    assert logged["target"] == ["yes", "sure"]
    assert logged["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert logged["output"]["choices"][0]["message"]["content"][0]["reasoning"] == "Hm."
    assert logged["model_usage"]["small-model"]["total_tokens"] == 9
    assert set(logged["scores"]) == {"empathy", "safety"}
    assert logged["scores"]["empathy"]["metadata"]["is_estimate"] is True
    assert math.isnan(logged["scores"]["safety"]["value"])
    assert logged["scores"]["safety"]["reason"] == "abstained"
    assert "error" not in logged


def test_a_unit_s_error_is_the_sample_s_and_a_judgment_that_is_no_json_a_text(
    record: Record,
) -> None:
    unanswered = record.model_copy(update={"response": Response(error="ServerGone: it is gone")})
    logged = make_sample(to_row(unanswered))
    assert logged["error"]["message"] == "ServerGone: it is gone"
    assert (logged["messages"][-1]["role"], logged["output"]["choices"]) == ("user", [])
    logged = make_sample(with_scores(record, build_score(value=None, error="Throttled: no")))
    assert logged["error"]["message"] == "empathy: Throttled: no"
    assert logged["scores"]["empathy"]["explanation"] == "Throttled: no"
    (row,) = with_scores(record, build_score(judge="j", judgment="so so"))["scores"]
    assert make_score(row)["metadata"]["judgment"] == "so so"


@pytest.mark.parametrize("name", ["a/b", "../x", "nul\0", "ü _ 1", "x" * 300])
def test_a_candidate_s_name_is_no_path(tmp_path: Path, name: str) -> None:
    folder = write_run(tmp_path / "run", plain_records(1), 1)
    summary, manifest = folder.read_summary(), folder.read_manifest()
    written_name = file_name(summary, manifest, name)
    assert written_name.startswith("2026-11-22T00-00-00Z_memory_")
    assert written_name.count("_") == 3
    assert Path(written_name).name == written_name
    assert len(written_name) < 255
    assert written_name != file_name(summary, manifest, f"{name}.")


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """By a few hundred bytes a row, the zip's own table of contents."""
    peaks = []
    for n in (1_000, 4_000):  # parts of 1,000
        folder = write_run(tmp_path / str(n), plain_records(n), n)
        tracemalloc.start()
        send_logs(folder, str(tmp_path / f"logs-{n}"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 3_000 < 1_000


def test_half_a_character_in_a_judgment_is_written(tmp_path: Path, record: Record) -> None:
    judgment = r'{"explanation": "half \ud83d", "score": 1}'
    broken = record.model_copy(update={"scores": (build_score("m", judgment=judgment),)})
    folder = write_run(tmp_path / "run", [broken], 1)
    (log,) = logs_of(folder, tmp_path / "logs")
    score = log["samples/T001_epoch_1.json"]["scores"]["m"]
    assert score["metadata"]["judgment"]["explanation"] == "half \ud83d"
