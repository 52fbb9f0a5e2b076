"""How an engine starts: in turn with others of its node, and again where it died."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import ray

from memray_eval.errors import GenerationError, ServiceLost
from memray_eval.execution.ray import engine_start
from memray_eval.execution.ray.engine_start import (
    LAST_LINES,
    MOST_STARTS,
    last_lines,
    start_engine,
    turn_on_node,
)
from memray_eval.execution.ray.pipeline import _to_eval_error


class Context:
    def get_node_id(self) -> str:
        return f"node{os.getpid()}"

    def get_actor_id(self) -> str:
        return f"actor{os.getpid()}"


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that this process, as an engine's actor, prints to."""
    monkeypatch.setattr(engine_start.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(ray, "get_runtime_context", Context)
    path = tmp_path / "worker.out"
    path.write_text(":actor_name:Engine\nloading weights\n\nout of memory\n")
    path.with_suffix(".err").write_text("a warning\n")
    monkeypatch.setattr(engine_start, "worker_output_path", lambda: str(path))
    monkeypatch.setattr(engine_start, "TELL_S", 0.0)
    return path


class Died(BaseException):
    """In place of this process's end."""


def dying(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Died(code)

    monkeypatch.setattr(os, "_exit", end)


def failing(error: Exception) -> Any:
    def make_stage() -> None:
        raise error

    return make_stage


def starts(folder: Path) -> list[Path]:
    return list(folder.glob("*.starts"))


def test_a_start_that_succeeds_leaves_nothing(output: Path) -> None:
    assert start_engine(lambda: "stage", "m", 2) == "stage"
    assert starts(output.parent) == []


def test_one_that_fails_ends_its_process_and_the_last_one_says_why(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(monkeypatch)
    error = RuntimeError("Engine core initialization failed.\nSee above")
    for _ in range(MOST_STARTS - 1):
        with pytest.raises(Died):
            start_engine(failing(error), "org/m", 2)
    with pytest.raises(GenerationError) as raised:
        start_engine(failing(error), "org/m", 2)
    assert str(raised.value) == (
        "an engine of org/m failed 3 times: RuntimeError: Engine core initialization failed. See "
        "above\nThe last lines of its log:\n  loading weights\n  out of memory\n  a warning"
    )
    assert starts(output.parent) == []


def test_one_that_is_killed_each_time_is_given_up_before_it_starts_again(output: Path) -> None:
    for _ in range(MOST_STARTS):
        with pytest.raises(Died):  # in place of SIGKILL, which runs nothing of ours
            start_engine(failing(Died()), "m", 2)  # type: ignore[arg-type]
    with pytest.raises(GenerationError, match=r"died 3 times while it started\nThe last lines of"):
        start_engine(lambda: pytest.fail("it is started again"), "m", 2)


def test_what_would_fail_again_is_not_tried_again(output: Path) -> None:
    reason = "an engine of m failed at its start: ValueError: no such dtype"
    with pytest.raises(GenerationError, match=reason):
        start_engine(failing(ValueError("no such dtype")), "m", 2)


def test_starts_are_counted_anew_when_one_has_succeeded(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying(monkeypatch)
    for _ in range(2):
        for _ in range(MOST_STARTS - 1):
            with pytest.raises(Died):
                start_engine(failing(RuntimeError("once")), "m", 2)
        start_engine(lambda: "stage", "m", 2)


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


def test_the_turn_of_a_process_that_died_is_free(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:  # pragma: no cover
        engine_start.tempfile.tempdir = str(tmp_path)
        with turn_on_node("node", 1):
            os.write(writing, b"x")
            time.sleep(60)
        os._exit(0)
    assert os.read(reading, 1) == b"x"
    os.kill(child, 9)
    os.waitpid(child, 0)
    before = engine_start.tempfile.tempdir
    engine_start.tempfile.tempdir = str(tmp_path)
    try:
        with turn_on_node("node", 1):
            pass
    finally:
        engine_start.tempfile.tempdir = before
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
