"""Pairwise runs through the command line: judged in both orders by a local server, resumed, kept,
and shown beside a comparison."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from memray_eval.cli import app
from memray_eval.results.run_folder import FIGURES_OF_PAIRS, RunFolder
from memray_eval.types import PAIR
from tests.build import GIVEN, build_config, finish, write_lines
from tests.servers.judgments import message_texts
from tests.servers.provider import Fault, Provider, serving

Answers = Callable[..., str]
Pairwise = Callable[..., Result]
SECTION = re.compile(r"<(FIRST|SECOND) (\w+)>\n(.*?)\n</\1 \2>", re.DOTALL)


def prefer_longer(body: dict[str, Any]) -> str:
    """A judge that takes the longer answer, wherever it stands."""
    shown = {name: text for name, _, text in SECTION.findall("\n".join(message_texts(body)))}
    preferred = "first" if len(shown["FIRST"]) > len(shown["SECOND"]) else "second"
    if len(shown["FIRST"]) == len(shown["SECOND"]):
        preferred = "tie"
    return json.dumps({"evidence": [], "reason": "It says more.", "preferred": preferred})


@pytest.fixture
def answers(tmp_path: Path) -> Answers:
    """Makes a run of a candidate's answers, without a judge, and returns its folder."""

    def make(name: str, texts: list[str | None], **keys: Any) -> str:
        rows = [
            {"id": f"Q{n}", "query": f"How do I rest on day {n}?", "candidate": name}
            | ({"error": "the server was gone"} if text is None else {"response": text})
            for n, text in enumerate(texts)
        ]
        config = build_config(
            dataset=str(write_lines(tmp_path / f"{name}.jsonl", rows)),
            suite="chat",
            out=str(tmp_path / "results"),
            candidates=[GIVEN],
            metrics=["lexical_diversity"],
            executor="local",
            tolerance=1.0,
            **keys,
        )
        return finish(config, run_id=f"run-{name}").folder.path

    return make


@pytest.fixture
def pairwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pairwise:
    """The command, asking a local server whose reply `judge.reply` may be replaced."""
    monkeypatch.chdir(tmp_path)

    def invoke(server: Provider, *words: str) -> Result:
        keys = {"base_urls.openai": server.base_url, "cache": tmp_path / "calls.sqlite"}
        flags = [f"--set=judging.{key}={value}" for key, value in keys.items()]
        flags += "--set executor=local --judge openai/local --yes".split()
        return CliRunner().invoke(app, ["pairwise", *words, *flags])

    return invoke


def test_two_runs_are_compared_in_both_orders_without_names(
    answers: Answers, pairwise: Pairwise, tmp_path: Path
) -> None:
    long = answers("verbose-model", ["Rest well, and walk a little each day."] * 6 + [None, "Yes."])
    short = answers("terse-model", ["Rest."] * 6 + ["Fine.", ""])
    with serving(prefer_longer) as server:
        done = pairwise(server, long, short, "--run-id", "cup")
        assert done.exit_code == 0, done.output
        sent = json.dumps(server.requests)
    assert len(server.requests) == 12  # six pairs in both orders; an empty answer loses unasked
    assert "verbose-model" not in sent
    assert "terse-model" not in sent
    output = " ".join(done.output.split())
    assert "verbose-model is preferred (preference): it wins 100.0 % of its pairs" in output
    assert "7 pairs on 7 questions, both orders, judged by openai/local" in output
    assert "preferred in 50.0 %" in output
    assert "no answer: terse-model on 1 questions (1 empty, 0 failed)" in output
    assert "no answer: verbose-model on 1 questions (0 empty, 1 failed)" in output
    folder = RunFolder(str(tmp_path / "results" / "cup"))
    rows = list(folder.each())
    assert len(rows) == 16
    typed = [row.scores[0] for row in rows if row.sample.metadata[PAIR]["unanswered"]]
    assert [score.status for score in typed] == ["not_applicable"] * 4
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(app, ["compare", long, short, "--html", str(page)])
    assert shown.exit_code == 0, shown.output
    assert "pairs: verbose-model is preferred (preference)" in " ".join(shown.output.split())
    assert '<section id="pairs">' in page.read_text()
    words = ["compare", long, f"{folder.path}:terse-model", "--html", str(page)]
    other = CliRunner().invoke(app, words)
    assert "pairs:" not in other.output  # of runs that no pairwise run compares


def test_a_run_that_excludes_empty_answers_loses_no_pair_by_them_and_leads_nowhere(
    answers: Answers, pairwise: Pairwise
) -> None:
    long = answers("long", ["Rest well, and walk a little."] * 6, on_no_answer="exclude")
    short = answers("short", ["Rest."] * 5 + [""], on_no_answer="exclude")
    with serving(prefer_longer) as server:
        output = " ".join(pairwise(server, long, short).output.split())
    assert "preference: not decided: 1 of 6 did not answer; nothing can be said" in output
    assert "5 pairs on 5 questions" in output
    assert "no answer: short on 1 questions (1 empty, 0 failed); left out (on_no_answer" in output


def test_a_run_that_stopped_goes_on_and_pays_nothing_twice(
    answers: Answers, pairwise: Pairwise, tmp_path: Path
) -> None:
    runs = [answers("a", ["Long enough to win."] * 5), answers("b", ["No."] * 5)]
    n_asked = 0

    def failing(body: dict[str, Any]) -> str | Fault:
        nonlocal n_asked
        n_asked += 1
        return Fault(400) if n_asked > 6 else prefer_longer(body)

    with serving(failing) as server:
        first = pairwise(server, *runs, "--run-id", "cup", "--set", "tolerance=0")
        assert first.exit_code == 1
        n_asked = -1000
        again = CliRunner().invoke(app, ["resume", "results/cup"])
        assert again.exit_code == 0, again.output
        assert "5 pairs on 5 questions" in again.output
        answered = len(server.requests)
        same = pairwise(server, *runs, "--run-id", "cup", "--set", "tolerance=0")
        assert same.exit_code == 0, same.output
        assert len(server.requests) == answered
        other = pairwise(server, *reversed(runs), "--run-id", "cup")
        assert "compares other runs" in str(other.exception)


def test_every_two_of_many_are_compared_in_one_run(
    answers: Answers, pairwise: Pairwise, tmp_path: Path
) -> None:
    runs = [answers(f"m{n}", ["word " * (n + 1)] * 8) for n in range(6)]
    with serving(prefer_longer) as server:
        done = pairwise(server, *runs, "--run-id", "cup", "--json", "--limit", "3")
        assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    criterion = report["criteria"][0]
    assert (report["runs"], report["is_whole"]) == (["cup"], True)
    assert criterion["n_pairs"] == 3 * 15
    assert "".join(row["candidate"] for row in criterion["standings"]) == "m5m4m3m2m1m0"
    kept = RunFolder(str(tmp_path / "results" / "cup")).read_json(FIGURES_OF_PAIRS)
    assert kept == report
    with serving(prefer_longer) as server:
        again = CliRunner().invoke(app, ["resume", "results/cup", "--json"])
    assert json.loads(again.stdout) == report


def test_swiss_rounds_of_an_earlier_version_say_that_not_every_two_were_compared(
    answers: Answers, pairwise: Pairwise, tmp_path: Path
) -> None:
    runs = [answers(name, [f"{name} rests."] * 2) for name in ("a", "bb", "ccc")]
    with serving(prefer_longer) as server:
        pairwise(server, runs[0], runs[1], "--run-id", "cup-round1")
        pairwise(server, runs[0], runs[2], "--run-id", "cup-round2")
    last = RunFolder(str(tmp_path / "results" / "cup-round2"))
    pairs = {"runs": runs, "rounds": 3, "earlier": ["results/cup-round1"]}
    last.write_config(last.read_config() | {"pairs": pairs})
    rounds = {"runs": ["cup-round1", "cup-round2"], "n_rounds": 3, "is_whole": False}
    last.write_json(FIGURES_OF_PAIRS, last.read_json(FIGURES_OF_PAIRS) | rounds)
    for words in (["report", last.path], ["resume", last.path], ["report", last.path]):
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output
        assert "Not every two candidates were compared" in " ".join(shown.output.split())
    assert "4 pairs on 2 questions" in shown.output
    assert "a against ccc" in shown.output
    assert "bb against ccc" not in shown.output


def test_criteria_of_one_s_own_are_compared_side_by_side(
    answers: Answers, pairwise: Pairwise, tmp_path: Path
) -> None:
    runs = [answers("a", ["Long enough."] * 3), answers("b", ["No."] * 3)]
    (tmp_path / "warmth.md").write_text("Which answer sounds warmer?")
    with serving(prefer_longer) as server:
        done = pairwise(
            server, *runs, "--metric", "warmth.md", "--metric", "Which is shorter to read?",
            "--metric", "tone=Which fits the tone?", "--json",
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        requests = json.dumps(server.requests)
    names = [criterion["metric"] for criterion in json.loads(done.stdout)["criteria"]]
    assert sorted(names) == ["tone", "warmth", "which_is_shorter_to"]
    assert "Which answer sounds warmer?" in requests


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["{a}"], "compares 2 to 26 candidates"),
        (["{a}", "nowhere"], "no manifest.json"),
        (["{a}", "{b}", "--metric", "politeness"], "scores one answer"),
        (["{a}", "{b}", "--metric", "prefrence"], "no metric 'prefrence'"),
        (["{a}", "{b}", "--judge", "rules"], "no estimate by rules"),
        (["{a}", "{b}", "--run-id", "a/b"], "--run-id"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_line(
    answers: Answers, tmp_path: Path, words: list[str], wrong: str
) -> None:
    places = {"a": answers("a", ["Yes."]), "b": answers("b", ["No."])}
    arguments = [word.format(**places) for word in words]
    if "--judge" not in arguments:
        arguments += ["--judge", "openai/gpt-4o"]
    done = CliRunner().invoke(app, ["pairwise", *arguments, "--out", str(tmp_path / "out")])
    assert wrong in str(done.exception)
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").glob("pairs-*"))
