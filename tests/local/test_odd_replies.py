"""Whole runs in which 23 of 83 units get a reply that is none, from their judge or candidate: every
unit is a row, the others are scored, and the run ends by its tolerance. Each form of each provider
by itself: tests/wire."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import Unreadable
from memray_eval.execution.session import RunResult
from memray_eval.judges.limits import breaker
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.results.schema import from_table
from memray_eval.types import EXISTING, Record
from tests.build import finish, go_on, write_lines
from tests.servers.judgments import instance_of, judgment_reply
from tests.servers.provider import Provider, Raw, Reply, serving
from tests.wire.odd_replies import Cases, openai_cases, stream_cases

UNITS, N_ODD = 83, 23
UNIT = re.compile(r"\bunit-(\d+)\b")
EMPATHY = all_metrics()["empathy"]
assert isinstance(EMPATHY, JudgedMetric)
# Its evidence is in every response
SCHEMA = EMPATHY.judgment.model_json_schema()
VERDICT = json.dumps(instance_of(SCHEMA, quoted=("Rest", "more")))


def placed(cases: Cases, expected: Any) -> dict[int, Raw]:
    """Up to N_ODD of the replies that are expected to come to that, each at a unit of its own,
    spread over the run."""
    replies = [raw for raw, outcome in cases.values() if outcome is expected]
    step = max(1, len(replies) // N_ODD)
    return {3 * n + 1: raw for n, raw in enumerate(replies[::step][:N_ODD])}


def unit_of(body: dict[str, Any]) -> int:
    """The unit that a request names last: an earlier turn may quote others."""
    return int(UNIT.findall(json.dumps(body))[-1])


def answer(body: dict[str, Any]) -> str:
    return f"Rest more, {unit_of(body) % 9}."


@contextmanager
def answering(odd: dict[int, Raw], good: Reply) -> Iterator[Provider]:
    with serving(lambda body: odd.get(unit_of(body)) or good(body)) as server:
        yield server


def prompts_of(server: Provider) -> Counter[int]:
    return Counter(map(unit_of, server.requests))


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Provider], RunConfig]:
    """A job that judges UNITS answers, however many fail in a row."""
    monkeypatch.setattr(breaker, "FAILURES", 1000)
    rows = (
        {"id": f"s{n}", "query": "I am tired.", "response": f"Rest more, unit-{n} says."}
        for n in range(UNITS)
    )
    path = write_lines(tmp_path / "answers.jsonl", rows)

    def make(server: Provider) -> RunConfig:
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
                "judging": {**judging, "timeout_s": 5},
                "out": str(tmp_path / "results"),
                "rows_per_block": 20,
            }
        )

    return make


@pytest.fixture
def answered(job: Callable[..., RunConfig], tmp_path: Path) -> Callable[[Provider], RunConfig]:
    """A job that asks UNITS queries of a candidate."""
    rows = ({"id": f"s{n}", "query": f"I am tired, unit-{n}."} for n in range(UNITS))
    options = {"metrics": ["lexical_diversity"], "tolerance": 0.3, "server": {"timeout_s": 3}}
    path = write_lines(tmp_path / "samples.jsonl", rows)
    return lambda server: job(server, dataset=str(path), rows_per_block=20, **options)


def by_unit(done: RunResult) -> dict[int, Record]:
    records = list(from_table(done.folder.records().to_table()))
    assert len(records) == len({record.unit_id for record in records}) == UNITS
    assert done.stopped is None
    return {int(record.sample.id[1:]): record for record in records}


def assert_contained(done: RunResult, odd: dict[int, Raw]) -> None:
    """Every unit is a row; those with a good reply are scored, the others are errors with a
    reason."""
    for unit, record in by_unit(done).items():
        (score,) = record.scores
        expected = ("error", True) if unit in odd else ("scored", False)
        assert (score.status, bool(score.error)) == expected, (unit, score)
    assert done.summary.n_failed_units == len(odd)


def test_a_judge_of_which_a_quarter_of_the_replies_is_odd(
    judged: Callable[[Provider], RunConfig],
) -> None:
    odd = placed(openai_cases(VERDICT), Unreadable)
    assert len(odd) == N_ODD
    with answering(odd, judgment_reply) as server:
        first = finish(judged(server))
        assert first.exit_code == 1  # the tolerance is 5 %
        assert_contained(first, odd)
        before, again = prompts_of(server), set(odd)
        odd.clear()
        second = go_on(first.folder.path)
    assert set(prompts_of(server) - before) == again  # nothing else is asked twice
    assert second.exit_code == 0
    assert_contained(second, {})


def test_a_candidate_of_which_a_quarter_of_the_replies_is_odd(
    answered: Callable[[Provider], RunConfig],
) -> None:
    odd = placed(stream_cases(), Unreadable)
    assert len(odd) == N_ODD
    with answering(odd, answer) as server:
        first = finish(answered(server))
        assert first.exit_code == 0
        assert_contained(first, odd)
        records = by_unit(first)
        assert all((response := records[unit].response) and response.error for unit in odd)
        odd.clear()
        second = go_on(first.folder.path)
    assert second.exit_code == 0
    assert_contained(second, {})


def test_odd_usages_and_half_a_surrogate_pair_end_nothing(
    judged: Callable[[Provider], RunConfig], answered: Callable[[Provider], RunConfig]
) -> None:
    """In verdicts, and in answers."""
    for cases, good, make in (
        (openai_cases(VERDICT), judgment_reply, judged),
        (stream_cases(), answer, answered),
    ):
        with answering(placed(cases, None), good) as server:
            assert_contained(finish(make(server)), {})
