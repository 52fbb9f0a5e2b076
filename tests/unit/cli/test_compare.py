"""memray-eval compare: which folders and candidates it takes, what it prints, messages and exit
codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.build import build_folder, build_record, build_sample, build_score
from tests.unit.cli.conftest import Call


def write_run(folder: Path, values: dict[str, float], n: int = 6, users: int = 0) -> str:
    """A run with a candidate for each of `values`, whose even units score that and whose odd units
    0, of so many users."""
    records = [
        build_record(
            build_sample(id=str(i), suite="memory", metadata={"user": i % users} if users else {}),
            f"answer {i}",
            build_score("empathy", 0.0 if i % 2 else value),
            candidate=name,
            unit_id=f"{i}/{name}",
        )
        for name, value in values.items()
        for i in range(n)
    ]
    manifest = {"status": "finished", "dataset": {"path": "d", "fingerprint": "f"}}
    return build_folder(folder, records, manifest).path


@pytest.fixture
def call(cli: Call) -> Call:
    return lambda *words: cli("compare", *words)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    return write_run(tmp_path / "one", {"small": 0.4}), write_run(
        tmp_path / "two", {"small": 0.8, "llama3:8b": 0.2}
    )


def test_two_runs_and_a_candidate_of_several(call: Call, runs: tuple[str, str]) -> None:
    code, out, err = call(runs[0], f"{runs[1]}:llama3:8b", f"{runs[1]}:small", "--json")
    assert (code, err) == (0, "")
    comparison = json.loads(out)
    assert (comparison["baseline"], comparison["others"]) == ("one", ["two:llama3:8b", "two:small"])
    assert [metric["paired"]["difference"] for metric in comparison["metrics"]] == pytest.approx(
        [-0.1, 0.2]
    )
    code, out, _ = call(runs[0], f"{runs[1]}:small", "--flips", "3", "--bootstrap")
    assert code == 0
    assert "B: two:small" in out
    assert "bootstrap (BCa, expanded)" in out


def test_a_gate_fails_with_exit_code_1_and_says_which(call: Call, runs: tuple[str, str]) -> None:
    words = (runs[0], f"{runs[1]}:llama3:8b", "--fail-if", "empathy > 1", "--fail-if")
    code, out, err = call(*words, "empathy < -0.05")
    assert code == 1
    assert "B: two:llama3:8b" in out
    assert err == "failed: empathy < -0.05: two:llama3:8b differs by -0.1000\n"
    assert call(*words, "empathy < -0.15")[0] == 0
    assert json.loads(call(*words, "empathy < -0.05", "--json")[1])["failed_gates"] == [
        "empathy < -0.05: two:llama3:8b differs by -0.1000"
    ]


def test_the_page_lists_changed_units_and_the_text_stays_short(
    call: Call, runs: tuple[str, str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    code, out, err = call(runs[0], f"{runs[1]}:small", "--html", str(page))
    assert (code, err) == (0, f"{page}\n")
    assert "changed most" not in out
    text = page.read_text("utf-8")
    assert "3 of 3 units that changed most" in text
    assert "(not in the records)" not in text
    assert call(runs[0], f"{runs[1]}:small", "--html", str(page), "--flips", "0")[0] == 0
    assert "changed most" not in page.read_text("utf-8")
    code, _, err = call(runs[0], f"{runs[1]}:small", "--html", str(tmp_path / "none" / "page.html"))
    assert code == 2
    assert "name another place with --html" in err


def test_units_are_clustered_by_the_user_that_samples_name_unless_told(
    call: Call, tmp_path: Path
) -> None:
    first, two = (
        write_run(tmp_path / name, {"small": value}, users=3)
        for name, value in (("one", 0.4), ("two", 0.8))
    )
    assert json.loads(call(first, two, "--json")[1])["cluster"] == "user"
    assert json.loads(call(first, two, "--json", "--cluster", "none")[1])["cluster"] is None
    comparison = json.loads(call(first, two, "--json", "--cluster", "sample_id")[1])
    assert (comparison["cluster"], comparison["metrics"][0]["paired"]["n_clusters"]) == (
        "sample_id",
        6,
    )


def test_bad_input_is_a_message_and_exit_code_2(
    call: Call, runs: tuple[str, str], tmp_path: Path
) -> None:
    first, two = runs
    for name, manifest in (("broken", "{"), ("listed", "[1]")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(manifest)
    damaged = write_run(tmp_path / "damaged", {"small": 0.5})
    for part in (tmp_path / "damaged" / "records").iterdir():
        part.write_bytes(b"PAR1 cut off")
    small, no_metric = f"{two}:small", "no metric 'humour' in common; there are: empathy"
    for words, message in [
        ((first,), "takes two or more run folders"),
        ((first, str(tmp_path)), f"{tmp_path} has no manifest.json; give the folder of a run"),
        ((first, f"{tmp_path}:small"), "has no manifest.json"),
        ((first, f"{tmp_path}/broken"), "manifest.json is not JSON"),
        ((first, f"{tmp_path}/listed"), "manifest.json is not JSON of a run"),
        ((first, damaged), f"the records of {damaged} cannot be read"),
        ((first, two), f"{two} has several candidates: llama3:8b, small; pick one with"),
        ((first, f"{two}:large"), "no candidate 'large'; there are: llama3:8b, small"),
        ((first, first), "is given twice"),
        ((first, small, "--fail-if", "empathy is bad"), "cannot read the gate 'empathy is bad'"),
        ((first, small, "--fail-if", "humour < 0"), no_metric),
        ((first, small, "--metrics", "humour"), no_metric),
        ((first, small, "--cluster", "user"), "no unit names a 'user' to cluster by"),
    ]:
        code, out, err = call(*words)
        assert (code, out) == (2, ""), words
        assert message in err


def test_runs_of_one_name_go_by_their_paths(call: Call, tmp_path: Path) -> None:
    paths = [write_run(tmp_path / parent / "run", {"small": 0.5}) for parent in ("x", "y")]
    assert json.loads(call(*paths, "--json")[1])["others"] == [paths[1]]
