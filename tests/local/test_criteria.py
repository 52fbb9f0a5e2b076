"""Whole runs of the metric of a sample's own criteria: what is asked, what a resume asks again, and
what is printed, exported and estimated."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.execution.runs import estimate_of
from memray_eval.report.console import render
from tests.build import finish, go_on, judging_job, write_lines
from tests.servers.judgments import message_texts
from tests.servers.provider import Outcome, Provider, serving

TEXT = "Call an ambulance now, and chew an aspirin."


def responses(folder: Path, n: int = 3, n_criteria: int = 4) -> Path:
    """Rows with a fault each, `bad`, that is worth as much as two criteria."""
    good = {"points": 1, "tags": ["axis:a"]}
    criteria = [{"criterion": f"good {at}", **good} for at in range(n_criteria)]
    own = {"response": TEXT, "criteria": [*criteria, {"criterion": "bad", "points": -2}]}
    rows = (
        {"id": f"r{at}", "query": f"Question {at}?", "example_tags": [f"theme:{at % 2}"], **own}
        for at in range(n)
    )
    return write_lines(folder / "rows.jsonl", rows)


def meets_good(body: dict[str, Any]) -> str:
    """Every good criterion is met, and no bad one."""
    text = "\n".join(message_texts(body))
    if "\n1. " in text:
        listed = text[text.index("<CRITERIA ") : text.index("</CRITERIA ")]
        verdicts = [
            {"number": int(number), "evidence": [], "reason": "r", "met": criterion != "bad"}
            for number, criterion in re.findall(r"^(\d+)\. (.*)$", listed, re.M)
        ]
        return json.dumps({"verdicts": verdicts})
    is_met = "<CRITERION" in text and "\nbad\n" not in text
    return json.dumps({"evidence": ["chew an aspirin"], "reason": "r", "met": is_met})


def job(folder: Path, server: Provider, rows: Path, **keys: Any) -> RunConfig:
    config = judging_job(rows, folder / "out", server.base_url, ("criteria",), "local")
    return RunConfig.model_validate(config.model_dump() | keys)


@pytest.mark.parametrize(("per", "n_calls"), [("criterion", 15), ("sample", 3)])
def test_a_run_and_a_resume_of_it(tmp_path: Path, per: str, n_calls: int) -> None:
    with serving(meets_good) as server:
        config = job(tmp_path, server, responses(tmp_path), criteria={"per": per})
        done = finish(config)
        assert server.n_requests == n_calls
        (metric,) = done.summary.metrics
        assert (metric.n_scored, metric.mean, metric.figure.value) == (3, 1.0, 1.0)
        figures = {name: metric.extras[f"tag:{name}"] for name in ("axis:a", "theme:0", "theme:1")}
        assert figures == {"axis:a": 1.0, "theme:0": 1.0, "theme:1": 1.0}
        printed = render(done.summary)
        assert "theme:0: 1.0000  (n 2)" in printed
        assert "Score (mean, clipped to 0-1): 1.0000" in printed
        go_on(done.folder.path)
        finish(config)  # another run finds the verdicts in the cache
        assert server.n_requests == n_calls


def test_a_call_that_fails_is_asked_again_and_no_other(tmp_path: Path) -> None:
    broken = {"good 2"}

    def reply(body: dict[str, Any]) -> str | Outcome:
        text = "\n".join(message_texts(body))
        return "no JSON" if any(f"\n{name}\n" in text for name in broken) else meets_good(body)

    with serving(reply) as server:
        config = job(tmp_path, server, responses(tmp_path, n=2), tolerance=2)
        done = finish(config)
        records = list(done.folder.each())
        errors = Counter(record.scores[0].error or "" for record in records)
        assert [*errors.values()] == [2]
        assert next(iter(errors)).startswith("Malformed: 1 of 5 calls gave no verdict; the first: ")
        n_asked = server.n_requests
        broken.clear()
        summary = go_on(done.folder.path).summary
        assert (summary.metrics[0].n_scored, server.n_requests - n_asked) == (2, 2)


@pytest.mark.parametrize(("per", "n_calls"), [("criterion", 135), ("sample", 9)])
def test_an_estimate_counts_calls_and_verdicts(tmp_path: Path, per: str, n_calls: int) -> None:
    with serving(meets_good) as server:
        rows = responses(tmp_path, n_criteria=44)
        (judge,) = estimate_of(job(tmp_path, server, rows, criteria={"per": per})).judges
    assert (judge.calls, judge.output_tokens) == (n_calls, 135 * 250)
