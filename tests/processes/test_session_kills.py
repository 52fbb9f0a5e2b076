"""A run that asks a server, ended at half of its answers: none that was kept is asked again. After
SIGTERM that is all of them; after kill -9 all but the calls in flight."""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.results.run_folder import RECORDS, RESPONSES, RunFolder
from memray_eval.results.schema import from_table
from memray_eval.types import Record
from tests.build import served, write_lines
from tests.conftest import HANG_S
from tests.processes.killing import evaluating, gone, run_folder, wait_for
from tests.servers.process import serving_process

IN_FLIGHT = 16


def kept(folder: RunFolder) -> dict[str, Record]:
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
    """What a run has that was ended at half of its answers, and resumed."""
    with serving_process(latency_s=0.1) as server:
        job = RunConfig.model_validate(
            {
                "suite": "chat",
                "dataset": str(write_lines(tmp_path / "rows.jsonl", rows)),
                "candidates": [served(server, "c")],
                "metrics": ["length_appropriateness"],
                "judge": "rules",
                "server": {"max_in_flight": IN_FLIGHT},
                "judging": {"cache": str(tmp_path / "calls.sqlite")},
                "rows_per_block": 64,
                "out": str(tmp_path / "out"),
                "cluster": {"num_cpus": 2},
                "executor": executor,
            }
        )
        config = tmp_path / "job.json"
        config.write_text(job.model_dump_json())
        with evaluating(config, tmp_path / "log") as process:
            wait_for(server, n_answers // 2, process)
            children = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(ended_by)
            process.wait(HANG_S)
        gone(children)
        before, answered = kept(run_folder(tmp_path)), server.stats()["n_answered"]
        with evaluating(config, tmp_path / "log") as process:
            assert process.wait(HANG_S) == 0, (tmp_path / "log").read_text()[-2000:]
        stats = server.stats()
    after = kept(run_folder(tmp_path))
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


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.night)])
def test_no_kept_answer_is_asked_again(tmp_path: Path, executor: str) -> None:
    """Blocks of 64, none of which need be whole."""
    rows = [{"id": f"s{n}", "query": f"Message {n}"} for n in range(160)]
    killed_and_resumed(tmp_path, rows, len(rows), executor, signal.SIGKILL, IN_FLIGHT)


@pytest.mark.parametrize(
    ("n_sessions", "n_turns", "executor", "ended_by"),
    [
        (20, 4, "local", signal.SIGKILL),
        pytest.param(200, 10, "local", signal.SIGKILL, marks=pytest.mark.night),
        pytest.param(200, 10, "local", signal.SIGTERM, marks=pytest.mark.night),
        pytest.param(40, 6, "ray", signal.SIGKILL, marks=pytest.mark.night),
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
    for record in after.values():
        notes, history = record.sample.metadata, record.sample.history
        assert len(history) == 2 * (notes["turn"] - 1)
        by_query = {r.sample.query: r for r in after.values()}
        for user, assistant in zip(history[::2], history[1::2], strict=True):
            answer = by_query[user.content].response
            assert answer is not None
            assert answer.text == assistant.content
