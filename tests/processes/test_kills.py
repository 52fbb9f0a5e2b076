"""kill -9 of the driver, of a judge actor, of the limiter, of a node, at random moments: every unit
is in the output once, and what was paid twice is at most what was in flight. A run that asks a
server, or has memories, is ended at half of its answers. Every day a driver on the local executor
is killed, at night all, KILLS times each (`make night KILLS=3`); -s shows the books."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from memray_eval.config.sections import Budget
from memray_eval.judges.limits.budget import AHEAD
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table
from memray_eval.types import Record
from tests.build import go_on, served, wait_until, write_lines
from tests.clusters.fake_engine import read_asked
from tests.conftest import HANG_S, REPOSITORY
from tests.processes.killing import (
    IN_FLIGHT,
    ROUNDS,
    books,
    config_file,
    counted,
    end_after,
    evaluating,
    finish,
    finish_if_ended,
    gone,
    run_folder,
    some_moment,
    wait_for,
    workers,
)
from tests.servers.process import serving_process
from tests.servers.provider import serving

rounds = pytest.mark.parametrize("round_", range(ROUNDS))
night = pytest.mark.night
local_and_at_night_ray = pytest.mark.parametrize(
    "executor", ["local", pytest.param("ray", marks=night)]
)
LATENCY_S = 0.2
BUDGET_TOKENS = 10**7
MOST_TOKENS = 6000  # that a call may take, by its reservation


def tokens(stats: dict[str, Any]) -> int:
    """What the provider has answered with, and was asked, in tokens."""
    return int(stats["input_tokens"] + stats["output_tokens"])


@rounds
@local_and_at_night_ray
def test_the_driver(tmp_path: Path, executor: str, round_: int) -> None:
    with serving_process(latency_s=LATENCY_S) as server:
        budget = Budget(tokens=BUDGET_TOKENS)
        config = config_file(tmp_path, server, actors=1, budget=budget, executor=executor)
        with evaluating(config) as process:
            end_after(server, some_moment(), process)
        before = run_folder(tmp_path).parts()
        stats = server.stats()
        beyond = run_folder(tmp_path).read_spending()["tokens"] - tokens(stats)
        assert 0 <= beyond <= AHEAD * BUDGET_TOKENS + IN_FLIGHT * MOST_TOKENS
        finish(config)
        kept = books(run_folder(tmp_path), server)
        paid, spent = tokens(server.stats()), run_folder(tmp_path).read_spending()["tokens"]
    counted(f"driver, {len(before)} parts written before", kept)
    print(f"tokens at the kill: {beyond} counted too many; at the end {spent - paid}")
    assert spent - paid == pytest.approx(beyond, abs=IN_FLIGHT * MOST_TOKENS)
    kept.hold(IN_FLIGHT)
    killed, finished = run_folder(tmp_path).read_manifest()["sessions"]
    assert (killed["status"], finished["status"]) == ("killed", "finished")
    assert 0 < killed["total_s"] <= finished["started_s"] - killed["started_s"]


@night
@rounds
@pytest.mark.parametrize("victim", ["JudgeRecords", "LimiterActor", "CallsActor"])
def test_an_actor(tmp_path: Path, victim: str, round_: int) -> None:
    """The run survives it, or is resumed."""
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, actors=2)
        with evaluating(config) as process:
            wait_for(server, some_moment(), process)
            workers(process.pid, victim)[0].kill()
            code = process.wait(HANG_S)
        went = finish_if_ended(code, config)
        kept = books(run_folder(tmp_path), server)
    counted(f"{victim}, {went}", kept)
    kept.hold(2 * IN_FLIGHT)


@night
@rounds
def test_a_node(tmp_path: Path, round_: int) -> None:
    """The raylet of a second node, with the judges that run there."""
    with serving_process(latency_s=LATENCY_S) as server:
        config = config_file(tmp_path, server, actors=2)
        with evaluating(config, "tests.processes.victim_cluster") as process:
            code = process.wait(HANG_S)
            assert "second node killed" in (tmp_path / "log").read_text()
        went = finish_if_ended(code, config)
        kept = books(run_folder(tmp_path), server)
    counted(f"node, {went}", kept)
    kept.hold(2 * IN_FLIGHT)


# Runs that ask a server

ANSWERS_IN_FLIGHT = 16


def answered_turns(folder: RunFolder) -> dict[str, Record]:
    """The answered turns that a run's folder has, by unit."""
    tables = [
        table
        for kind in (RESPONSES, RECORDS)
        for table in folder.read_parts(folder.parts(kind), kind)
    ]
    records = (record for table in tables for record in from_table(table))
    return {r.unit_id: r for r in records if r.response and not r.response.error}


def killed_and_resumed(
    tmp_path: Path,
    rows: Sequence[Mapping[str, object]],
    n_answers: int,
    executor: str,
    ended_by: signal.Signals,
    most_in_flight: int,
) -> dict[str, Record]:
    """What a run has that was ended at half of its answers, and resumed: none that was kept is
    asked again. After SIGTERM that is all of them; after kill -9 all but the calls in flight."""
    with serving_process(latency_s=0.1) as server:
        config = write_job(
            tmp_path,
            suite="chat",
            dataset=str(write_lines(tmp_path / "rows.jsonl", rows)),
            candidates=[served(server, "c")],
            metrics=["length_appropriateness"],
            server={"max_in_flight": ANSWERS_IN_FLIGHT},
            judging={"cache": str(tmp_path / "calls.sqlite")},
            rows_per_block=64,
            cluster={"num_cpus": 2},
            executor=executor,
        )
        with evaluating(config) as process:
            end_after(server, n_answers // 2, process, ended_by)
        before, answered = answered_turns(run_folder(tmp_path)), server.stats()["n_answered"]
        finish(config)
        stats = server.stats()
    after = answered_turns(run_folder(tmp_path))
    print(
        f"\n{len(rows)} samples, {n_answers} answers on {executor}: {ended_by.name} with "
        f"{len(before)} of {answered} kept, {stats['paid_again']} asked again",
        file=sys.__stdout__,
    )
    assert len(after) == n_answers
    assert {unit: after[unit].response for unit in before} == {
        unit: record.response for unit, record in before.items()
    }
    # What was asked again had been in flight: answered, and not kept yet
    in_flight = answered - len(before)
    assert stats["paid_again"] <= in_flight <= most_in_flight
    if ended_by == signal.SIGTERM:
        assert in_flight == 0
    assert stats["n_answered"] == n_answers + stats["paid_again"]
    return after


def write_job(tmp_path: Path, **fields: Any) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"judge": "rules", "out": str(tmp_path / "out"), **fields}))
    return path


@local_and_at_night_ray
def test_no_kept_answer_is_asked_again(tmp_path: Path, executor: str) -> None:
    """Blocks of 64, none of which need be whole."""
    rows = [{"id": f"s{n}", "query": f"Message {n}"} for n in range(160)]
    killed_and_resumed(tmp_path, rows, len(rows), executor, signal.SIGKILL, ANSWERS_IN_FLIGHT)


@pytest.mark.parametrize(
    ("n_sessions", "n_turns", "executor", "ended_by"),
    [
        (20, 4, "local", signal.SIGKILL),
        pytest.param(200, 10, "local", signal.SIGKILL, marks=night),
        pytest.param(200, 10, "local", signal.SIGTERM, marks=night),
        pytest.param(40, 6, "ray", signal.SIGKILL, marks=night),
    ],
)
def test_no_kept_turn_is_asked_again(
    tmp_path: Path, n_sessions: int, n_turns: int, executor: str, ended_by: signal.Signals
) -> None:
    rows = [
        {"id": f"s{n}", "turns": [f"Message {k} of session {n}" for k in range(n_turns)]}
        for n in range(n_sessions)
    ]
    after = killed_and_resumed(
        tmp_path, rows, n_sessions * n_turns, executor, ended_by, most_in_flight=n_sessions
    )
    answers = {r.sample.query: r.response and r.response.text for r in after.values()}
    for record in after.values():
        notes, history = record.sample.metadata, record.sample.history
        assert len(history) == 2 * (notes["turn"] - 1)
        for user, assistant in zip(history[::2], history[1::2], strict=True):
            assert answers[user.content] == assistant.content


# Runs with memories

OWN = REPOSITORY / "tests/servers/stores.py"
N_QUESTIONS, N_SESSIONS, MEMORY_IN_FLIGHT = 14, 6, 2


@pytest.mark.parametrize("half", [pytest.param(1, marks=night), 7, pytest.param(13, marks=night)])
def test_a_killed_run_writes_once_and_asks_once(tmp_path: Path, half: int) -> None:
    victim: list[int] = []

    def reply(body: dict[str, Any]) -> str:
        if victim and len(server.requests) > half:
            os.kill(victim.pop(), signal.SIGKILL)
        return "Not mentioned in the conversation"

    with serving(reply) as server:
        path = memory_job(tmp_path, served(server), executor="local")
        command = [sys.executable, "-m", "memray_eval", "run", str(path)]
        quiet: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        with subprocess.Popen(command, cwd=REPOSITORY, **quiet) as process:
            victim.append(process.pid)
            assert process.wait(HANG_S) == -signal.SIGKILL
        n_before = len(server.requests)
        done = go_on(run_folder(tmp_path).path)
        times = Counter(json.dumps(body["messages"]) for body in server.requests)
    assert done.summary.n_failed_units == 0
    assert n_before < N_QUESTIONS or half == 13
    check_once(tmp_path, times)


def test_an_engine_answers_once(tmp_path: Path) -> None:
    """All questions are of one block, of which the engine answers MEMORY_IN_FLIGHT at a time."""
    engine = {"max_num_seqs": MEMORY_IN_FLIGHT, "max_model_len": 4096}
    path = memory_job(tmp_path, {"model": "embedded"}, engine=engine, cluster={"num_cpus": 2})
    victim, half = "tests.processes.engine_victim", N_QUESTIONS // 2 + MEMORY_IN_FLIGHT
    with evaluating(path, victim) as process:
        wait_until(
            lambda: len(read_asked(tmp_path)) >= half or process.poll() is not None, "none is asked"
        )
        assert process.poll() is None
        processes = psutil.Process(process.pid).children(recursive=True)
        for running in (process, *processes):  # else the engine goes on without its driver
            running.kill()
    gone(processes)
    n_before = len(read_asked(tmp_path))
    finish(path, victim)
    assert n_before < N_QUESTIONS
    check_once(tmp_path, Counter(read_asked(tmp_path)))


def memory_job(tmp_path: Path, candidate: dict[str, Any], **fields: Any) -> Path:
    return write_job(
        tmp_path,
        suite="locomo",
        dataset=str(REPOSITORY / "dataset/locomo"),
        candidates=[{**candidate, "name": "c", "memory": f"{OWN}:Plain"}],
        metrics=["rule_score"],
        server={"max_in_flight": MEMORY_IN_FLIGHT},
        **fields,
    )


def check_once(tmp_path: Path, times: Counter[str]) -> None:
    """Each question asked, and again at most what was under way; a record for each, each session
    written and each question searched for once, and both conversations deleted."""
    print("asked again:", times.total() - N_QUESTIONS)
    assert len(times) == N_QUESTIONS
    assert times.total() - N_QUESTIONS <= MEMORY_IN_FLIGHT
    folder = run_folder(tmp_path)
    units = [record.unit_id for record in folder.each()]
    assert len(units) == len(set(units)) == N_QUESTIONS
    lines = Path(folder.path, "stores/calls.log").read_text().splitlines()
    calls = [json.loads(line) for line in lines]
    written = Counter(call["session"] + call["partition"] for call in calls if "session" in call)
    assert set(written.values()) == {1}
    assert len(written) == N_SESSIONS
    searched = Counter(call["query"] for call in calls if call["what"] == "search")
    assert set(searched.values()) == {1}
    assert [call["what"] for call in calls].count("delete") == 2
