"""A whole run over sessions: what is judged at which turn, and what the report says of it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.report.console import render
from tests.build import finish, judging_job, write_lines
from tests.servers.judgments import judgment_reply, message_texts
from tests.servers.provider import serving

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
            fails = session == SESSIONS - 1 and turn == TURNS
            rows.append(
                {
                    "id": f"S{session}#{turn}",
                    "query": query,
                    "history": [*history],
                    "response": None if fails else response,
                    **({"error": "the engine died"} if fails else {}),
                    "metadata": {"session": f"S{session}", "turn": turn, "turns": TURNS},
                }
            )
            history += [
                {"role": "user", "content": query},
                {"role": "assistant", "content": response},
            ]
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
        job = judging_job(
            write_sessions(tmp_path), tmp_path / "out", provider.base_url, METRICS, "local"
        )
        result = finish(job)
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
