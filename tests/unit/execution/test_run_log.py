"""The run's log: what an entry holds, that no key is in it, and that its files stay bounded."""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyarrow import fs
from pydantic import ValidationError

from memray_eval.execution.ray.reporting import engine_warnings
from memray_eval.execution.run_log import (
    EVENTS,
    NAMES,
    CollectedLogs,
    RunLog,
    TerminalHandler,
    entry_of,
    keep_run_log,
    make_entry,
    show_log,
)
from memray_eval.log_once import ONCE, forget_logged, log_once
from memray_eval.metric import failed_score
from memray_eval.metrics import pick
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Sample

logger = logging.getLogger("memray_eval.tests")
KEY = "a-key-of-no-known-shape"


@pytest.fixture
def file(folder: RunFolder) -> Iterator[RunLog]:
    """A log to which the package's records go, from DEBUG on."""
    file, package = RunLog(folder), logging.getLogger("memray_eval")
    level = package.level
    package.addHandler(file)
    package.setLevel(logging.DEBUG)
    forget_logged()
    yield file
    package.removeHandler(file)
    file.close()
    package.setLevel(level)
    forget_logged()


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run's folder in an object store, whose files are those of `folder`."""
    files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr("memray_eval.results.run_folder.locate", lambda path: (files, "run"))
    return RunFolder("s3://bucket/run")


def entries(folder: RunFolder, name: str = "log.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder.path, name).read_text("utf-8").splitlines()]


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_the_package_logs_nowhere_unless_asked() -> None:
    handlers = logging.getLogger("memray_eval").handlers
    assert any(isinstance(handler, logging.NullHandler) for handler in handlers)


def test_an_entry_says_when_who_what_and_why(folder: RunFolder, file: RunLog) -> None:
    logger.warning("the file %s is odd", "a.json", exc_info=raised(ValueError("no number")))
    (entry,) = entries(folder)
    assert datetime.fromisoformat(entry["time"]).tzinfo is not None
    assert (entry["level"], entry["logger"]) == ("WARNING", "memray_eval.tests")
    assert entry["message"] == "the file a.json is odd"
    assert ":" in entry["process"]
    assert entry["exception"].startswith("Traceback")
    assert entry["exception"].endswith("ValueError: no number")


def test_a_long_message_keeps_both_its_ends_and_half_a_character_is_escaped(
    folder: RunFolder, file: RunLog
) -> None:
    logger.info("begin %s half \ud83d", "x" * 10_000)
    message = entries(folder)[0]["message"]
    assert len(message) < 2_100
    assert message.startswith("begin")
    assert message.endswith("half \\ud83d")


@pytest.mark.parametrize(
    "text",
    [
        KEY,
        "sk-abcdefghijklmnop1234",
        "Bearer abcdefghijklmnop1234",
        "http://user:password1@host/v1",
    ],
)
def test_no_key_is_in_the_log(
    folder: RunFolder, file: RunLog, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)
    logger.error("asked with %s", text, exc_info=raised(ValueError(f"refused: {text}")))
    written = Path(folder.path, "log.jsonl").read_text("utf-8")
    assert text not in written
    assert "password1" not in written
    assert written.count("[key]") >= 2
    monkeypatch.delenv("MY_API_KEY")  # of a worker, who cannot know
    with closing(RunLog(folder, {"FOO": KEY})) as driver:
        driver.write([make_entry(logging.INFO, "memray_eval.x", KEY)])
    assert entries(folder)[-1]["message"] == "[key]"


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_full_files_are_kept_up_to_three(
    folder: RunFolder, bucket: RunFolder, is_elsewhere: bool
) -> None:
    with closing(RunLog(bucket if is_elsewhere else folder, max_bytes=1_000)) as file:
        for number in range(100):
            file.write([make_entry(logging.INFO, "memray_eval.x", f"entry {number}")])
    names = sorted(path.name for path in Path(folder.path).glob("log*"))
    assert names == ["log.1.jsonl", "log.2.jsonl", "log.jsonl"]
    assert all(Path(folder.path, name).stat().st_size <= 1_000 for name in names)
    messages = [entry["message"] for name in NAMES[::-1] for entry in entries(folder, name)]
    assert messages == [f"entry {number}" for number in range(100 - len(messages), 100)]


def test_sessions_of_a_folder_elsewhere_share_a_log(folder: RunFolder, bucket: RunFolder) -> None:
    for session in ("first", "second"):
        with closing(RunLog(bucket, upload_s=0.0)) as file:
            file.write([make_entry(logging.INFO, "memray_eval.x", session)])
    assert [entry["message"] for entry in entries(folder)] == ["first", "second"]


def test_a_log_that_cannot_be_written_stops_the_run(folder: RunFolder) -> None:
    """Writing it raises nothing; the thread that fetches workers' logs says so to the counter."""
    (folder.local_path / "log.jsonl").symlink_to("/dev/full")
    reasons: list[str] = []
    with keep_run_log(folder) as log:
        log.follow(list, reasons.append)
    assert reasons == ["the run's log cannot be written: no space left on device"]


def test_a_log_of_a_folder_elsewhere_that_has_no_room_here_ends_nothing(
    tmp_path: Path, bucket: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with closing(RunLog(bucket, upload_s=0.0)) as file:
        file.write([make_entry(logging.INFO, "memray_eval.x", "first")])
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_logged_once_a_metric_and_type(folder: RunFolder, file: RunLog) -> None:
    politeness, lexical = pick(["politeness", "lexical_diversity"])
    for _ in range(3):
        failed_score(politeness, raised(ValueError("a")))
    failed_score(politeness, raised(TypeError("b")))
    failed_score(lexical, raised(ValueError("c")))
    errors = [entry for entry in entries(folder) if entry["level"] == "ERROR"]
    expected = ["ValueError: a", "TypeError: b", "ValueError: c"]
    assert [entry["exception"].splitlines()[-1] for entry in errors] == expected
    assert "politeness" in errors[0]["message"]
    assert ONCE not in errors[0]
    assert sum(entry["level"] == "DEBUG" for entry in entries(folder)) == 2


def test_workers_that_fail_alike_are_heard_once_a_run() -> None:
    record = logging.LogRecord("memray_eval.x", logging.ERROR, "", 0, "failed", (), None)
    setattr(record, ONCE, "metric a/ValueError")
    logs = CollectedLogs()
    for worker in ("one", "two"):
        logs.add([entry_of(record, worker)])
    assert [entry["actor"] for entry in logs.take()] == ["one"]
    assert logs.take() == []


def test_what_no_driver_fetches_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memray_eval.execution.run_log.MAX_WAITING", 3)
    logs = CollectedLogs()
    for _ in range(2):
        logs.add([make_entry(logging.INFO, "memray_eval.x", str(number)) for number in range(5)])
    *kept, last = (entry["message"] for entry in logs.take())
    assert kept == ["0", "1", "2"]
    assert "were dropped" in last


def test_a_session_logs_its_beginning_and_its_end(folder: RunFolder) -> None:
    package = logging.getLogger("memray_eval")
    before = package.level, list(package.handlers)
    with keep_run_log(folder):
        logger.debug("not asked for")
        logger.info("in between")
    with pytest.raises(ValueError, match="broken"), keep_run_log(folder, 2):
        raise ValueError("broken")
    assert (package.level, package.handlers) == before
    assert [entry["message"] for entry in entries(folder)] == [
        "session 1 of run run begins",
        "in between",
        "session 1 of run run has ended",
        "session 2 of run run begins",
        "session 2 of run run ended early: ValueError: broken",
    ]


def test_ctrl_c_while_the_last_records_are_fetched_leaves_a_run_finished(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = logging.getLogger("memray_eval")
    before = package.level, list(package.handlers)
    monkeypatch.setattr(RunLog, "end", Mock(side_effect=KeyboardInterrupt))
    with keep_run_log(folder):
        pass
    assert entries(folder)[-1]["message"] == "session 1 of run run has ended"
    with pytest.raises(KeyboardInterrupt), keep_run_log(folder, 2):
        raise ValueError("broken")
    assert (package.level, package.handlers) == before


def test_the_terminal_shows_what_was_asked_for(
    file: RunLog, capsys: pytest.CaptureFixture[str]
) -> None:
    package, level = logging.getLogger("memray_eval"), logging.getLogger("memray_eval").level
    try:
        show_log(1)
        show_log(1)  # twice is once
        logger.debug("a detail")
        logger.info("a fact \x1b[2J")
        show_log(2)
        logger.debug("another detail")
        for name, text in ((EVENTS, "the display shows it"), ("memray_eval.x", "from a worker")):
            file.write([make_entry(logging.WARNING, name, text)])
    finally:
        show_log(0)
        package.setLevel(level)
    assert not any(isinstance(handler, TerminalHandler) for handler in package.handlers)
    lines = capsys.readouterr().err.splitlines()
    expected = ["a fact \\u001b[2J", "another detail", "from a worker"]
    assert [line.partition(": ")[2] for line in lines] == expected


def test_what_was_logged_once_is_logged_again_in_another_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "memray_eval"):
        for _ in range(2):
            forget_logged()
            log_once(logger, logging.WARNING, "key", "said %s", "it")
    assert [record.getMessage() for record in caplog.records] == ["said it", "said it"]
    forget_logged()


def test_a_value_that_does_not_fit_is_not_quoted(folder: RunFolder, file: RunLog) -> None:
    text = "I am " + "afraid, [again]"  # in no line of this file, which a traceback would quote
    with pytest.raises(ValidationError) as refused:
        Sample.model_validate({"id": 7, "query": [text], "suite": "memory"})
    logger.error("a metric failed", exc_info=raised(refused.value))
    written = Path(folder.path, "log.jsonl").read_text("utf-8")
    assert text not in written
    assert "input_value=..." in written


def test_warnings_of_vllms_processes_are_read_off_their_output() -> None:
    output = """\
INFO 11-23 15:50:20 [arg_utils.py:99] of the actor itself
(EngineCore_DP0 pid=7) INFO 11-23 15:50:20 [core.py:99] Initializing
\x1b[36m(EngineCore_DP0 pid=7)\x1b[0m WARNING 11-23 15:50:21 [scheduler.py:12] 3 preempted
(EngineCore_DP0 pid=7) WARNING 11-23 15:50:29 [scheduler.py:12] 12 preempted
(Worker_TP1 pid=8) ERROR 11-23 15:50:30 [worker.py:5] out of memory
"""
    warnings = engine_warnings(output)
    assert [(entry["level"], entry["message"]) for entry in warnings] == [
        ("WARNING", "EngineCore_DP0 (pid 7), scheduler.py:12: 3 preempted"),
        ("WARNING", "EngineCore_DP0 (pid 7), scheduler.py:12: 12 preempted"),
        ("ERROR", "Worker_TP1 (pid 8), worker.py:5: out of memory"),
    ]
    collected = CollectedLogs()
    collected.add(warnings)
    assert [entry["message"][-9:] for entry in collected.take()] == ["preempted", "of memory"]
