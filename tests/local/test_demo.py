"""`demo`: shipped answers and verdicts through a whole run, from a fresh folder."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_command
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "dataset" / "demo"


def read_lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (DEMO / name).read_text("utf-8").splitlines()]


def test_what_it_prints_is_computed_from_what_is_shipped(tmp_path: Path) -> None:
    done = run_command("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    uses = {verdict["response"]: set(verdict["uses"]) for verdict in read_lines("verdicts.jsonl")}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    leaks: Counter[str] = Counter()
    for row in read_lines("answers.jsonl"):
        used = uses[row["response"]]
        required, forbidden = (
            set(row.get(f"{kind}_keys", ())) for kind in ("required", "forbidden")
        )
        counts[row["model"]] += Counter(
            tp=len(used & required), fp=len(used & forbidden), fn=len(required - used)
        )
        leaks[row["model"]] += bool(used & forbidden)
    (path,) = (tmp_path / "results").iterdir()
    figures = {
        row.candidate: row.micro["f1"]
        for row in RunFolder(str(path)).read_summary().metrics
        if row.metric == "memory_utilization"
    }
    f1 = {name: 2 * n["tp"] / (2 * n["tp"] + n["fp"] + n["fn"]) for name, n in counts.items()}
    assert figures == pytest.approx(f1)
    assert all(of["eager"] > of["careful"] for of in (f1, leaks))
    for name, n in leaks.items():
        assert f"{name} reveals what it must not in {n} of 40 answers" in done.stdout
    assert f"open results/{path.name}/report.html" in done.stdout
    assert "caught it from him" in (path / "report.html").read_text("utf-8")


def test_each_recorded_quote_is_of_its_answer() -> None:
    for verdict in read_lines("verdicts.jsonl"):
        assert all(quote in verdict["response"] for quote in verdict["uses"].values())
