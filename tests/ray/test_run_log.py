"""The log of a whole run: what its workers log is in the run folder, and shown where asked."""

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from memray_eval.execution.ray.executor import RayExecutor
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.run_log import LogEntry, show_log
from memray_eval.results.run_folder import RunFolder
from tests.build import Job, finish, go_on, wait_until
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Answer, Fault, serving

pytestmark = pytest.mark.night

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."


def entries(folder: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(folder, "log.jsonl").read_text("utf-8").splitlines()]


def test_what_workers_log_is_in_the_run_folder(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    def reply(body: dict[str, Any]) -> str | Answer | Fault:
        if body.get("stream"):
            return ANSWER
        asks_safety = "safety" in json.dumps(body.get("response_format", ""))
        return Fault(400, code="bad_schema") if asks_safety else judgment_reply(body)

    level = logging.getLogger("memray_eval").level
    show_log(1)
    try:
        with serving(reply) as server:
            settings = {"metrics": ["empathy", "safety"], "judge": "openai/j"}
            done = finish(job(server, limit=6, judging={"actors": 2}, **settings))
            first = entries(done.folder.path)
            go_on(done.folder.path)
    finally:
        show_log(0)
        logging.getLogger("memray_eval").setLevel(level)
    failed = [entry for entry in first if "gave no verdict" in entry["message"]]
    assert len(failed) == 1  # of six calls in two actors
    assert failed[0]["level"] == "WARNING"
    assert failed[0]["actor"]
    assert failed[0]["logger"] == "memray_eval.judges.structured_judge"
    assert "JudgeError, status 400, code bad_schema" in failed[0]["message"]
    assert first[0]["message"].startswith("session 1 of run ")
    assert first[-1]["message"].endswith("has ended")
    assert any(entry["message"] == "a pipeline begins: served" for entry in first)
    assert not any(ANSWER in json.dumps(entry) for entry in first)
    after = entries(done.folder.path)
    assert after[: len(first)] == first
    assert after[len(first)]["message"].startswith("session 2 of run ")
    assert "gave no verdict" in capsys.readouterr().err


PICKLED = """
import numpy
from ray.data._internal.tensor_extensions.arrow import convert_to_pyarrow_array

def ask(messages):
    convert_to_pyarrow_array(numpy.array([object()]), "things")
    return "Rest more, and ask your doctor."
"""


def test_what_ray_warns_of_in_a_worker_is_in_the_run_folder(tmp_path: Path, job: Job) -> None:
    """A candidate of one's own whose rows Ray Data can only pickle, which it warns of. Ray Data
    sets its loggers up anew in each worker, and hands nothing on."""
    (tmp_path / "mine.py").write_text(PICKLED)
    candidates = [{"name": "mine", "model": f"{tmp_path / 'mine.py'}:ask"}]
    with serving(judgment_reply) as server:
        config = job(server, limit=4, candidates=candidates, metrics=["relevance"], executor="ray")
        done = finish(config)
    assert [record.response.error for record in done.folder.each() if record.response] == [None] * 4
    assert done.exit_code == 0
    logged = entries(done.folder.path)
    (warned,) = [
        log_line for log_line in logged if "Failed to convert column" in log_line["message"]
    ]
    print(warned)
    assert warned["level"] == "WARNING"
    assert warned["logger"] == "ray.data._internal.tensor_extensions.arrow"
    assert warned["actor"]


def test_what_a_library_repeats_is_logged_once(job: Job) -> None:
    """Messages that differ in their figures are alike; what is no warning is left out."""
    spec = SimpleNamespace(tolerated=lambda n_units: 1.0)
    plan: Any = SimpleNamespace(spec=spec, n_units=1)
    counter = RayExecutor(plan, RunFolder("run")).start_counter(())

    @ray.remote
    def warn(reports: RunCounter) -> None:
        for seconds in range(3):
            logging.getLogger("ray.data.slow").warning("took %d s", seconds)
            logging.getLogger("vllm.engine").error(f"lost {seconds} of 3")
            logging.getLogger("ray.data").info("a block is done")
            logging.getLogger("raycast").warning("not Ray's")
        time.sleep(1)

    ray.get(warn.remote(counter))
    logged = list[LogEntry]()

    def are_heard() -> bool:  # the counter hears of it on its own way
        logged.extend(counter.take_logs())
        return len(logged) >= 2

    wait_until(are_heard, "the counter hears of nothing")
    reports = [(entry["level"], entry["logger"], entry["message"]) for entry in logged]
    assert reports == [
        ("WARNING", "ray.data.slow", "took 0 s"),
        ("ERROR", "vllm.engine", "lost 0 of 3"),
    ]
