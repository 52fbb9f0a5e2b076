"""Whole runs in which 23 of 83 units get a reply that is none, from their judge or candidate: every
unit is a row, the others are scored, and the run ends by its tolerance. Each form of each provider
by itself: tests/wire."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import resume, run
from memray_eval.execution.session import RunResult
from memray_eval.results.schema import from_table
from memray_eval.types import EXISTING, Record
from tests.servers.raw import Raw, RawServer, answer, answering, chunk, completion, ended, verdict

UNITS = 83
GOOD_TEXT = '{"empathy_score": 4}'
MESSAGE = {"role": "assistant", "content": GOOD_TEXT}


def choice(**changed: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "message": MESSAGE, "finish_reason": "stop"} | changed]


JUDGES: dict[str, Raw] = {
    "choices empty": Raw.of(completion("", choices=[])),
    "choices null": Raw.of(completion("", choices=None)),
    "choices missing": Raw.of(
        {key: value for key, value in completion("").items() if key != "choices"}
    ),
    "choices text": Raw.of(completion("", choices="none")),
    "choices an object": Raw.of(completion("", choices={})),
    "choice null": Raw.of(completion("", choices=[None])),
    "message null": Raw.of(completion("", choices=choice(message=None))),
    "message text": Raw.of(completion("", choices=choice(message="hello"))),
    "message missing": Raw.of(completion("", choices=[{"index": 0, "finish_reason": "stop"}])),
    "content a list": Raw.of(completion([1, 2])),
    "content a number": Raw.of(completion(7)),
    "content null": Raw.of(completion(None)),
    "body null": Raw.of(None),
    "body a list": Raw.of([]),
    "body text": Raw.of("hello"),
    "body a number": Raw.of(42),
    "HTML": Raw(b"<html><body>Welcome to the proxy</body></html>", kind="text/html"),
    "204": Raw(b"", status=204),
    "an error object": Raw.of(
        {"error": {"message": "overloaded", "type": "server_error", "code": "x"}}
    ),
    "JSON cut off": Raw(json.dumps(completion("x")).encode()[:80]),
    "no body": Raw(b""),
    "gzip garbage": Raw(b"this is no gzip", encoding="gzip"),
    "no UTF-8": Raw(b'{"choices": "\xff\xfe\x80"}'),
}
USAGES: dict[str, Any] = {
    "empty": {},
    "null": None,
    "text": "many",
    "negative": {"prompt_tokens": -5, "completion_tokens": -1, "total_tokens": -6},
    "over 64 bits": {"prompt_tokens": 2**70, "completion_tokens": 2**70, "total_tokens": 2**71},
}
CANDIDATES: dict[str, Raw] = {
    "closed before the end": Raw.stream(chunk()),
    "closed at once": Raw.stream(),
    "cut within an event": Raw.stream(chunk()[:40], cut=True),
    "cut between events": Raw.stream(chunk(), cut=True),
    "stalled": Raw.stream(chunk(), stall_s=8.0),
    "choices null": Raw.stream(chunk(choices=None), "[DONE]"),
    "choices missing": Raw.stream('{"id": "c", "object": "chat.completion.chunk"}', "[DONE]"),
    "choices text": Raw.stream(chunk(choices="none"), "[DONE]"),
    "choice null": Raw.stream(chunk(choices=[None]), "[DONE]"),
    "delta null": Raw.stream(
        chunk(choices=[{"index": 0, "delta": None, "finish_reason": None}]), "[DONE]"
    ),
    "delta text": Raw.stream(
        chunk(choices=[{"index": 0, "delta": "Rest", "finish_reason": None}]), "[DONE]"
    ),
    "delta missing": Raw.stream(chunk(choices=[{"index": 0}]), "[DONE]"),
    "content a list": Raw.stream(
        chunk(choices=[{"index": 0, "delta": {"content": [1, 2]}}]), "[DONE]"
    ),
    "content a number": Raw.stream(
        chunk(choices=[{"index": 0, "delta": {"content": 7}}]), "[DONE]"
    ),
    "broken JSON in an event": Raw.stream(chunk(), '{"choices": [', "[DONE]"),
    "an event null": Raw.stream(chunk(), "null", "[DONE]"),
    "an event a list": Raw.stream(chunk(), "[]", "[DONE]"),
    "an error object": Raw.stream('{"error": {"message": "overloaded", "type": "server_error"}}'),
    "gzip garbage": Raw(b"this is no gzip", kind="text/event-stream", encoding="gzip"),
    "gzip cut off": Raw(
        gzip.compress(b"data: {}\n\n" * 99)[:40], kind="text/event-stream", encoding="gzip"
    ),
    "HTML": Raw(b"<html><body>Welcome to the proxy</body></html>", kind="text/html"),
    "204": Raw(b"", status=204),
    "no UTF-8": Raw(b"data: \xff\xfe\x80\n\n", kind="text/event-stream"),
}
assert len(JUDGES) == len(CANDIDATES) == 23


def placed(forms: dict[str, Raw]) -> dict[int, Raw]:
    """Each form at a unit of its own, spread over the run."""
    return {3 * place + 1: raw for place, raw in enumerate(forms.values())}


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[RawServer], RunConfig]:
    """A job that judges UNITS answers."""
    rows = (
        {"id": f"s{n}", "query": "I am tired.", "response": f"Rest more, unit-{n} says."}
        for n in range(UNITS)
    )
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(server: RawServer) -> RunConfig:
        judging = {
            "base_urls": {"openai": server.base_url},
            "cache": str(tmp_path / "calls.sqlite"),
            "tries": 2,
        }
        return RunConfig.model_validate(
            {
                "dataset": str(path),
                "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
                "metrics": ["empathy"],
                "judge": "openai/judge",
                "judging": {**judging, "breaker": {"failures": 1000}, "timeout_s": 5},
                "out": str(tmp_path / "results"),
                "rows_per_block": 20,
            }
        )

    return make


def by_unit(done: RunResult) -> dict[int, Record]:
    records = list(from_table(done.folder.records().to_table()))
    assert len(records) == len({record.unit_id for record in records})
    return {int(record.sample.id[1:]): record for record in records}


def assert_contained(done: RunResult, odd: dict[int, Raw], names: dict[str, Raw]) -> None:
    """Every unit is a row; those with a good reply are scored, the others are errors with a
    reason."""
    records, named = by_unit(done), dict(zip(odd, names, strict=True))
    assert sorted(records) == list(range(UNITS))
    scored = [
        unit
        for unit, record in records.items()
        if all(score.status == "scored" for score in record.scores)
    ]
    assert len(scored) == UNITS - len(odd) == 60
    for unit, name in named.items():
        (score,) = records[unit].scores
        assert (score.status, bool(score.error)) == ("error", True), (name, score)
    assert done.summary.n_failed_units == len(odd)
    assert done.stopped is None


def test_a_judge_of_which_a_quarter_of_the_replies_is_odd(
    judged: Callable[[RawServer], RunConfig],
) -> None:
    odd = placed(JUDGES)
    with answering(odd, verdict) as server:
        first = run(judged(server), lambda text: None, quiet=True)
        assert first.exit_code == 1  # the tolerance is 5 %
        assert_contained(first, odd, JUDGES)
        asked, again = Counter(server.asked), set(odd)
        server.odd.clear()
        second = resume(first.folder.path, lambda text: None, quiet=True)
    assert set(server.asked - asked) == again  # nothing else is asked twice
    assert (second.exit_code, second.summary.n_failed_units, second.summary.n_units) == (
        0,
        0,
        UNITS,
    )
    assert all(record.scores[0].status == "scored" for record in by_unit(second).values())


def test_a_candidate_of_which_a_quarter_of_the_replies_is_odd(
    job: Callable[..., RunConfig], tmp_path: Path
) -> None:
    path, odd = tmp_path / "samples.jsonl", placed(CANDIDATES)
    path.write_text(
        "".join(
            json.dumps({"id": f"s{n}", "query": f"I am tired, unit-{n}."}) + "\n"
            for n in range(UNITS)
        )
    )
    with answering(odd, answer) as server:
        config = job(
            server,
            dataset=str(path),
            metrics=["lexical_diversity"],
            tolerance=0.3,
            server={"timeout_s": 3},
            rows_per_block=20,
        )
        first = run(config, lambda text: None, quiet=True)
        assert first.exit_code == 0
        assert_contained(first, odd, CANDIDATES)
        assert all(
            record.response and record.response.error
            for unit, record in by_unit(first).items()
            if unit in odd
        )
        server.odd.clear()
        second = resume(first.folder.path, lambda text: None, quiet=True)
    assert (second.exit_code, second.summary.n_failed_units, second.summary.n_units) == (
        0,
        0,
        UNITS,
    )


def test_odd_usages_and_half_a_surrogate_pair_end_nothing(
    judged: Callable[[RawServer], RunConfig],
) -> None:
    """What the verdict says stands, or is an error; the figures beside it are no reason to end a
    run."""

    def with_usage(body: dict[str, Any]) -> Raw:
        unit = int(json.dumps(body).rpartition("unit-")[2].split()[0])
        usage = list(USAGES.values())[unit % len(USAGES)]
        return Raw.of(
            completion(
                json.loads(verdict(body).body)["choices"][0]["message"]["content"], usage=usage
            )
        )

    half = Raw.of(completion("\ud83d"))
    with answering({5: half, 50: half}, with_usage) as server:
        done = run(judged(server), lambda text: None, quiet=True)
    records = by_unit(done)
    assert sorted(records) == list(range(UNITS))
    assert done.stopped is None
    assert {record.scores[0].status for record in records.values()} <= {"scored", "error"}
    for record in records.values():
        assert record.scores[0].value is not None or record.scores[0].error


def test_half_a_surrogate_pair_in_an_answer_is_an_answer_or_an_error(
    job: Callable[..., RunConfig], tmp_path: Path
) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text(
        "".join(
            json.dumps({"id": f"s{n}", "query": f"I am tired, unit-{n}."}) + "\n" for n in range(8)
        )
    )
    half = Raw.stream(
        chunk(choices=[{"index": 0, "delta": {"content": "Rest \ud83d"}}]), ended(), "[DONE]"
    )
    with answering({2: half, 5: half}, answer) as server:
        done = run(
            job(server, dataset=str(path), metrics=["lexical_diversity"], tolerance=8),
            lambda text: None,
            quiet=True,
        )
    records = by_unit(done)
    assert sorted(records) == list(range(8))
    assert [records[unit].scores[0].status for unit in (0, 1, 3, 4, 6, 7)] == ["scored"] * 6
    assert all(records[unit].response is not None for unit in (2, 5))
