"""Of eight engines one answers the questions on a context, in blocks that any client is given."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, cast

import pytest
import ray

from memray_eval.config.sections import EngineConfig
from memray_eval.execution.plan import fit_engine
from memray_eval.execution.ray import engine
from memray_eval.execution.ray.engine import add_engines
from memray_eval.execution.ray.pipeline import set_up_data_context
from memray_eval.execution.ray.placement_groups import (
    EnginePlacement,
    NodeReservation,
    group_of_engine,
)
from memray_eval.execution.ray.progress_counter import ProgressCounter, RemoteCounter
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.stage_context import StageContext
from memray_eval.types import Candidate
from tests.clusters.conftest import Nodes
from tests.clusters.fake_engine import fake_engine, read_starts

ENGINES, CONTEXTS, QUESTIONS, BATCH = 8, 64, 50, 16
JOB = {"replicas": ENGINES, "device": "cpu", "cpus": 0.1, "batch_size": BATCH}


def key_of(context: int, question: int) -> bytes:
    return f"{context} {question}".encode()


def rows(has_prefix: bool) -> list[dict[str, Any]]:
    candidate = Candidate(name="c", model="embedded").model_dump_json()
    return [
        {
            "prompt_tokens_int32": key_of(context, question),
            "sampling_params": json.dumps({"seed": 0}),
            "prompt_prefix": f"{context}" if has_prefix else None,
            "candidate_config": candidate,
        }
        for context in range(CONTEXTS)
        for question in range(QUESTIONS)
    ]


def read_askings(books: Path) -> list[tuple[int, str]]:
    """The context and the engine of each question that was asked, in order."""
    contexts = {
        hashlib.sha1(key_of(context, question)).hexdigest(): context
        for context in range(CONTEXTS)
        for question in range(QUESTIONS)
    }
    pairs = [line.split() for line in (books / "asked").read_text().splitlines()]
    return [(contexts[key], actor) for key, actor in pairs]


def run(books: Path, monkeypatch: pytest.MonkeyPatch, has_prefix: bool = True) -> list[str]:
    """Has the engines answer, and returns the prompts that were answered."""
    config = fit_engine(EngineConfig.model_validate(JOB), 1.0, "cpu")
    engine_class = fake_engine(books, row_s=1.0, answers_from=ENGINES)
    monkeypatch.setattr(engine, "telling_engine", lambda context: engine_class)
    set_up_data_context(no_progress_timeout_s=300)
    counter = RemoteCounter(ProgressCounter.remote())  # type: ignore[attr-defined]
    context = StageContext(str(books), cast(RunCounter, counter))
    asked = rows(has_prefix)
    for row in asked:
        row["key"] = row["prompt_tokens_int32"].decode()
    with EnginePlacement(group_of_engine(config, "cpu"), NodeReservation()) as placement:
        prompts = ray.data.from_items(asked, override_num_blocks=len(asked) // BATCH)
        answered = add_engines(prompts, config, "embedded", "cpu", placement, context)
        return [row["key"] for row in answered.iter_rows()]


def at_home(askings: list[tuple[int, str]]) -> tuple[float, float, Counter[str]]:
    """The share of questions at their context's engine, the least of a context, and the questions
    of each engine."""
    by_context, by_engine = defaultdict[int, Counter[str]](Counter), Counter[str]()
    for context, actor in askings:
        by_context[context][actor] += 1
        by_engine[actor] += 1
    most = [max(engines.values()) / engines.total() for engines in by_context.values()]
    return sum(most) / len(most), min(most), by_engine


@pytest.mark.night
def test_a_context_is_at_one_engine_and_none_is_starved(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {}
    for has_prefix in (False, True):
        books = tmp_path / f"{has_prefix}"
        books.mkdir()
        answered = run(books, monkeypatch, has_prefix)
        assert len(answered) == len(set(answered)) == CONTEXTS * QUESTIONS
        askings = read_askings(books)
        assert len(askings) == CONTEXTS * QUESTIONS
        shares[has_prefix], least, by_engine = at_home(askings)
        print(
            f"prefix {has_prefix}: {shares[has_prefix]:.1%} of a context's questions at one engine "
            f"(least {least:.0%}); questions of the engines {sorted(by_engine.values())}"
        )
        assert len(by_engine) == ENGINES
        assert min(by_engine.values()) > 0.5 * CONTEXTS * QUESTIONS / ENGINES
    assert shares[True] >= 0.9 > shares[False]


@pytest.mark.night
def test_the_contexts_of_a_lost_engine_move_and_no_answer_is_asked_again(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill_one() -> None:
        asked = tmp_path / "asked"
        while not asked.exists() or len(asked.read_text().splitlines()) < 1_600:
            time.sleep(0.05)
        os.kill(read_starts(tmp_path)[0].pid, signal.SIGKILL)

    threading.Thread(target=kill_one, daemon=True).start()
    answered = run(tmp_path, monkeypatch)
    assert len(answered) == len(set(answered)) == CONTEXTS * QUESTIONS
    lost, lines = read_starts(tmp_path)[0].actor, (tmp_path / "asked").read_text().splitlines()
    by_question = defaultdict[str, list[str]](list)
    for line in lines:
        key, actor = line.split()
        by_question[key].append(actor)
    again = [actors for actors in by_question.values() if len(actors) > 1]
    share, least, _ = at_home(read_askings(tmp_path))
    print(f"{len(again)} questions asked again; {share:.1%} at one engine, least {least:.0%}")
    assert {len(actors) for actors in again} == {2}
    assert {actors[0] for actors in again} == {lost}, "what it worked on"
    assert share >= 0.85
