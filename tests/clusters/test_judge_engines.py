"""Engines of a judge's model behind one port, on GPUs that are not there: one that is lost, the
port itself, and engines that never come up."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.errors import JudgeError
from memray_eval.execution.ray.executor import judge_port
from memray_eval.execution.ray.placement_groups import NodeReservation
from tests.build import embedded_job, finish, served, wait_until
from tests.clusters.conftest import Fakes, Nodes
from tests.clusters.fake_engine import Deaths, read_starts
from tests.clusters.observing import groups
from tests.servers.provider import serving

pytestmark = pytest.mark.night

UNITS, METRICS = 12, ("helpfulness", "empathy", "safety")
CALLS = UNITS * len(METRICS)


def test_each_call_to_an_engine_that_is_lost_is_answered_once_by_another(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(row_s=1.0, answers_from=2)
    journal = tmp_path / "asked"

    def kill_first() -> None:
        wait_until(lambda: len(read_starts(tmp_path)) == 2, "the second does not come up")
        first = read_starts(tmp_path)[0]
        while True:  # it has just been asked: that call is under way
            lines = journal.read_text().splitlines() if journal.exists() else []
            if len(lines) > CALLS // 3 and lines[-1].endswith(first.actor):
                break
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGKILL)

    threading.Thread(target=kill_first, daemon=True).start()
    with serving(lambda body: "Rest more.") as server:
        job = embedded_job(
            tmp_path / "results",
            limit=UNITS,
            candidates=[served(server)],
            metrics=METRICS,
            judge="embedded",
            judging={"actors": 1, "max_in_flight": 8, "cache": "off"},
            engine={"device": "gpu"},
            engines={"embedded": {"replicas": 2}},
        )
        done = finish(job)
    assert (done.exit_code, done.summary.n_units, done.summary.n_failed_units) == (0, UNITS, 0)
    scores = [score for record in done.folder.each() for score in record.scores]
    assert [(score.judge, score.status) for score in scores] == [("embedded", "scored")] * CALLS
    lost, *others = [start.actor for start in read_starts(tmp_path)]
    assert {score.served_model for score in scores} == {lost, *others}
    by_call = defaultdict[str, list[str]](list)
    for key, actor in map(str.split, journal.read_text().splitlines()):
        by_call[key].append(actor)
    again = [actors for actors in by_call.values() if len(actors) > 1]
    print(f"{len(by_call)} calls, of which {len(again)} were under way at the engine that was lost")
    assert len(by_call) == CALLS
    assert all(actors[0] == lost and len(actors) == 2 for actors in again)
    assert 0 < len(again) <= 8
    assert groups() == []


@contextmanager
def port_of(replicas: int, failures: list[str]) -> Iterator[str]:
    config = EngineConfig(replicas=replicas, cpus=0.1)
    with judge_port("m", config, "gpu", None, NodeReservation(), failures.append) as url:
        yield url


async def ask(url: str, n_calls: int, text: str = "") -> list[str]:
    """The engines that answer so many calls at once."""
    schema = {"name": "v", "schema": {"type": "object", "properties": {}, "required": []}}
    client = openai.AsyncOpenAI(base_url=url, api_key="-", max_retries=8)
    calls = (
        client.chat.completions.create(
            model="judge",
            messages=[{"role": "user", "content": f"{number} {text}"}],
            response_format={"type": "json_schema", "json_schema": schema},  # type: ignore[arg-type, misc]
        )
        for number in range(n_calls)
    )
    async with client:
        return [reply.model for reply in await asyncio.gather(*calls)]


def test_a_port_that_dies_comes_again_and_a_call_that_kills_engines_is_given_up(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(row_s=0.1, answers_from=2, deaths=Deaths(prompt_bytes=9_000))
    failures = list[str]()
    with port_of(2, failures) as url:
        wait_until(lambda: len(set(asyncio.run(ask(url, 16)))) == 2, "one is never asked")
        engines = asyncio.run(ask(url, 16))
        assert min(Counter(engines).values()) >= 6
        (port,) = [
            actor
            for actor in ray._private.state.actors().values()
            if actor["State"] == "ALIVE" and "JudgePort" in actor["ActorClassName"]
        ]
        os.kill(int(port["Pid"]), signal.SIGKILL)
        assert set(asyncio.run(ask(url, 16))) <= set(engines)
        with pytest.raises(openai.BadRequestError, match="5 engines of m died while they were"):
            asyncio.run(ask(url, 1, "deadly " * 1_500))
        assert len(asyncio.run(ask(url, 4))) == 4
    assert failures == []


def test_a_judge_whose_engine_never_comes_up_is_told_with_its_log(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(deaths=Deaths(times=9, how="error", of_all=True))
    failed = pytest.raises(JudgeError, match="an engine of m failed 3 times: ")
    with failed as error, port_of(1, []):
        pass
    assert "CUDA error: an illegal memory access" in str(error.value)
    assert groups() == []


def test_a_judge_whose_engine_never_comes_up_again_is_told_of_later(
    nodes: Nodes, tmp_path: Path, fakes: Fakes
) -> None:
    fakes(row_s=0.1, deaths=Deaths(times=9, how="error"))
    victim, failures = tmp_path / "victim", list[str]()
    victim.write_text("nobody")
    with port_of(1, failures) as url:
        (actor,) = asyncio.run(ask(url, 1))
        victim.write_text(actor)
        os.kill(read_starts(tmp_path)[0].pid, signal.SIGKILL)
        with pytest.raises(openai.APIConnectionError):
            asyncio.run(ask(url, 1))
        wait_until(lambda: bool(failures), "nobody is told")
    assert failures[0].startswith("an engine of m failed 3 times: ")
    assert groups() == []
