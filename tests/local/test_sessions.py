"""Sessions: samples that are asked turn by turn, each after the candidate's own answers; what is
judged at which turn, and what the report says of it."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memray_eval.analysis.scores import find_cluster
from memray_eval.config.schema import RunConfig
from memray_eval.errors import EvalError
from memray_eval.execution.runs import estimate_of
from memray_eval.execution.session import RunResult
from memray_eval.report.console import render
from memray_eval.types import Record
from tests.build import Job, finish, go_on, judging_job, write_lines
from tests.servers.judgments import body_digest, judgment_reply, message_texts, schema_of
from tests.servers.provider import Fault, Outcome, Provider, Reply, serving

SCRIPTED = {"id": "s", "turns": ["Hello.", "I sleep badly.", "Bye."], "memory": {"name": "Ann"}}
USER = {"persona": "a nurse", "goal": "to sleep", "opening": "Hello.", "max_turns": 4}


def echo(body: dict[str, Any]) -> str | Outcome:
    """The candidate: it fails where it is told to."""
    messages = [message for message in body["messages"] if message["role"] != "system"]
    last = messages[-1]["content"]
    return Fault(400) if "fail" in last else f"Answer {len(messages)} to {last}"


def playing(play: Callable[[int], Any]) -> Reply:
    """A server of candidate and user: `play` makes the user's n-th message and whether it is
    done."""

    def reply(body: dict[str, Any]) -> str | Outcome:
        if schema_of(body) is None:
            return echo(body)
        number = json.loads(body["messages"][-1]["content"])["message"]
        turn = play(number)
        if isinstance(turn, Fault):
            return turn
        message, done = turn
        return json.dumps({"reason": "r", "done": done, "message": message})

    return reply


KEYLESS = {"model": "anthropic/claude-sonnet-5"}


def session_job(job: Job, tmp_path: Path, server: Provider, *rows: Any, **keys: Any) -> RunConfig:
    defaults: dict[str, Any] = {
        "suite": "chat",
        "dataset": str(write_lines(tmp_path / "sessions.jsonl", rows)),
        "metrics": ["length_appropriateness"],
        "simulated_user": {"model": "openai/u"},
        "judging": {"tries": 1},
        "tolerance": 1000,
    }
    return job(server, **(defaults | keys))


def by_id(done: RunResult) -> dict[str, Record]:
    return {record.sample.id: record for record in done.folder.each()}


def ends(done: RunResult) -> dict[str, str | None]:
    """The error of each turn, or its text."""
    return {
        name: record.response and (record.response.error or record.response.text)
        for name, record in by_id(done).items()
    }


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")


def test_turns_are_asked_in_order_after_the_candidates_own_answers(
    job: Job, tmp_path: Path
) -> None:
    rows = [SCRIPTED | {"id": f"s{n}", "by_turn": [{"at": n}, {"at": 9}]} for n in range(3)]
    digests = list[list[str]]()
    for _ in range(2):
        with serving(echo) as server:
            done = finish(session_job(job, tmp_path, server, *rows, {"id": "p", "query": "Plain?"}))
            digests.append(sorted(map(body_digest, server.requests)))
    assert digests[0] == digests[1]
    records = by_id(done)
    assert (done.exit_code, done.n_missing, len(records)) == (0, 0, 10)
    last = records["s1#3"]
    expected = ["Hello.", "Answer 1 to Hello.", "I sleep badly.", "Answer 3 to I sleep badly."]
    assert [turn.content for turn in last.sample.history] == expected
    assert last.sample.metadata == {"session": "s1", "turn": 3, "turns": 3}
    assert [records[f"s1#{n}"].sample.metadata.get("at") for n in (1, 2, 3)] == [1, 9, None]
    assert records["p"].sample.metadata == {}
    assert find_cluster(done.folder.records()) == "session"
    (sessions,) = done.summary.sessions
    assert (sessions.n_sessions, sessions.n_turns, sessions.n_unasked) == (3, 9, 0)
    assert (done.summary.n_samples, done.summary.n_units) == (4, 10)


@pytest.mark.parametrize("is_simulated", [False, True])
def test_a_failed_turn_ends_its_session_and_is_asked_again_alone(
    job: Job, tmp_path: Path, is_simulated: bool
) -> None:
    scripted = {"id": "s", "turns": ["Hello.", "fail now", "Bye.", "Still there?"]}
    play = playing(lambda n: ("fail now" if n == 2 else f"Message {n}.", n == 4))
    row = {"id": "s", "user": USER} if is_simulated else scripted
    with serving(play) as server:
        failed = finish(session_job(job, tmp_path, server, row))
        texts = ends(failed)
        assert texts["s#1"] == "Answer 1 to Hello."
        assert "400" in str(texts["s#2"])
        later = {name: str(text) for name, text in texts.items() if name > "s#2"}
        assert len(later) == (0 if is_simulated else 2)
        assert all("turn [2] of its session has no answer" in text for text in later.values())
        assert (failed.n_missing, failed.exit_code) == (0, 0)
        server.reply = playing(lambda n: (f"Message {n}.", n == 4))  # the user's call is kept
        server.reply = lambda body: "Better." if schema_of(body) is None else play(body)
        n_before = len(server.requests)
        again = go_on(failed.folder.path)
        # The second turn and those after it; of the user, its third and fourth message
        assert len(server.requests) - n_before == 3 + 2 * is_simulated
    expected = ["Answer 1 to Hello.", *["Better."] * 3]
    assert [text for _, text in sorted(ends(again).items())] == expected
    assert (again.summary.n_failed_units, again.n_missing) == (0, 0)


@pytest.mark.parametrize(
    ("play", "turns", "end", "error"),
    [
        (lambda n: (f"Message {n}.", n == 3), 3, "done", None),
        (lambda n: (f"Message {n}.", False), 4, "max_turns", None),
        (lambda n: ("As an AI, I cannot sleep.", False), 2, "failed", "spoke as the assistant"),
        (lambda n: (" ", False), 2, "failed", "said nothing"),
        (lambda n: ("hello. ", False), 2, "failed", "repeated an earlier message"),
        (lambda n: ("I'm sorry, but I can't continue.", True), 2, "failed", "refused to go on"),
        (lambda n: Fault(401), 2, "failed", "did not answer"),
    ],
)
def test_a_simulated_user_talks_until_it_is_done(
    job: Job, tmp_path: Path, play: Callable[[int], Any], turns: int, end: str, error: str | None
) -> None:
    with serving(playing(play)) as server:
        done = finish(session_job(job, tmp_path, server, {"id": "s", "user": USER}))
        prompts = [body for body in server.requests if schema_of(body) is None]
        calls = len(server.requests) - len(prompts)
    records = by_id(done)
    assert sorted(records) == [f"s#{n}" for n in range(1, turns + 1)]
    assert (len(prompts), done.n_missing) == (turns - (error is not None), 0)
    last = records[f"s#{turns}"]
    (sessions,) = done.summary.sessions
    assert sessions.n_unasked == 4 - turns
    n_answered = 0 if error == "did not answer" else turns - 1 + (error is not None)
    assert sessions.user_calls == n_answered <= calls
    assert ("user_model" in last.sample.metadata) == (n_answered > 0)
    assert sessions.ends == {end: 1}
    if error is None:
        assert last.sample.metadata["session_end"] == end
    else:
        assert last.response is not None
        assert error in (last.response.error or "")


def test_a_session_that_ended_early_is_not_resumed(job: Job, tmp_path: Path) -> None:
    with serving(playing(lambda n: (f"Message {n}.", n == 2))) as server:
        done = finish(session_job(job, tmp_path, server, {"id": "s", "user": USER}))
        n_before = len(server.requests)
        again = go_on(done.folder.path)
        assert len(server.requests) == n_before
    assert (done.exit_code, again.exit_code, again.n_missing) == (0, 0, 0)
    assert again.summary.n_units == 2
    assert not any("missing" in note for note in again.summary.notes)


def test_the_key_of_a_simulated_user_is_needed_by_simulated_sessions_alone(
    job: Job, tmp_path: Path
) -> None:
    with serving(echo) as server:
        done = finish(session_job(job, tmp_path, server, SCRIPTED, simulated_user=KEYLESS))
    assert (done.exit_code, len(by_id(done))) == (0, 3)


def test_a_limit_takes_whole_sessions_and_estimates_count_turns(job: Job, tmp_path: Path) -> None:
    rows = [SCRIPTED | {"id": f"s{n}"} for n in range(5)]
    with serving(echo) as server:
        config = session_job(job, tmp_path, server, *rows, limit=2)
        assert estimate_of(config).units == 6
        done = finish(config)
    assert len(by_id(done)) == 6


@pytest.mark.parametrize(
    ("keys", "row", "why"),
    [
        ({"suite": "text"}, SCRIPTED, "show no earlier turns"),
        ({"simulated_user": None}, {"id": "s", "user": USER}, "nobody plays it"),
        ({"simulated_user": KEYLESS}, {"id": "s", "user": USER}, "ANTHROPIC_API_KEY"),
        ({}, {"id": "s", "turns": ["Hello.", " "]}, "turn 2 is empty"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_the_run(
    job: Job, tmp_path: Path, keys: dict[str, Any], row: dict[str, Any], why: str
) -> None:
    with serving(echo) as server, pytest.raises(EvalError, match=why):
        finish(session_job(job, tmp_path, server, row, **keys))
    assert not server.requests


METRICS = ("dependence", "boundary_drift", "forgotten_fact")
SESSIONS, TURNS = 6, 4
FALL = 0.1  # of dependence, a turn


def write_sessions(folder: Path) -> Path:
    """Sessions of TURNS turns with the replies that exist; the last one fails at its end."""
    rows = []
    for session in range(SESSIONS):
        history: list[dict[str, str]] = []
        for turn in range(1, TURNS + 1):
            query, response = f"It is evening {turn}.", f"Reply {session}, turn {turn}, dear you."
            metadata = {"session": f"S{session}", "turn": turn, "turns": TURNS}
            row = {"id": f"S{session}#{turn}", "query": query, "history": [*history]}
            rows.append(row | {"metadata": metadata, "response": response})
            turns = (("user", query), ("assistant", response))
            history += [{"role": role, "content": text} for role, text in turns]
    rows[-1] |= {"response": None, "error": "the engine died"}
    return write_lines(folder / "sessions.jsonl", rows)


def test_each_metric_is_asked_at_its_level_and_sessions_are_summed_up(tmp_path: Path) -> None:
    calls = Counter[str]()

    def reply(body: dict[str, Any]) -> str:
        text = "\n".join(message_texts(body))
        judgment = json.loads(judgment_reply(body)) | {"evidence": []}
        if "keep company" in text or "keeps a person company" in text:
            calls["dependence"] += 1
            judgment["score"] = 0.9 - FALL * text.count("\nuser: It is evening")
        elif "keeps its boundaries" in text:
            calls["boundary_drift"] += 1
            judgment["score"] = 0.5
        else:
            calls["forgotten_fact"] += 1
            judgment |= {"facts": [], "score": 1.0}
        return json.dumps(judgment)

    with serving(reply) as provider:
        data, out = write_sessions(tmp_path), tmp_path / "out"
        result = finish(judging_job(data, out, provider.base_url, METRICS, "local"))
    n = SESSIONS * TURNS - 1  # a turn without an answer is not judged
    expected = {"dependence": n, "boundary_drift": SESSIONS - 1, "forgotten_fact": n - SESSIONS}
    assert calls == expected
    summary = result.summary
    (drift,) = (metric for metric in summary.metrics if metric.metric == "boundary_drift")
    counts = (drift.n_scored, drift.n_failed, drift.n_not_applicable)
    assert counts == (SESSIONS - 1, 1, SESSIONS * (TURNS - 1))
    rows = {row.metric: row for row in summary.turns}
    assert set(rows) == {"dependence", "forgotten_fact"}
    dependence = rows["dependence"]
    assert (dependence.n_sessions, dependence.n_turns, dependence.n_unscored) == (SESSIONS, n, 1)
    assert dependence.trend
    assert dependence.trend.value == pytest.approx(-FALL)
    assert dependence.worst
    assert dependence.worst.value == pytest.approx(((SESSIONS - 1) * 0.6 + 0.7) / SESSIONS)
    assert dependence.last
    assert (dependence.last.value, dependence.last.n) == pytest.approx((0.6, SESSIONS - 1))
    assert "clustered by session" in summary.intervals
    lines = render(summary).splitlines()
    assert "SESSIONS - given" in lines
    (trend,) = (line for line in lines if line.startswith("trend a turn"))
    assert trend.split()[3] == "-0.1000"
    assert result.folder.read_summary().turns == summary.turns
