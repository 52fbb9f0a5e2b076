"""`improve` from labels to a rubric that a job uses: a judge with a bias that a rubric mends gains,
a judge of noise does not, and nothing is asked where labels say too little."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.config.loading import load_config
from memray_eval.types import EXISTING
from tests.build import finish, write_lines
from tests.conftest import REPOSITORY

DATA = REPOSITORY.parent / "shared" / "data" / "judge-validation"
# Reads its own sections, and knows people's labels; `biased` takes what is long for worthless,
# unless the rubric says that length is no fault.
JUDGE = """
import hashlib, json, re
from pathlib import Path

CALLS = Path(__file__).with_name("calls")
LABELS = json.loads(Path(__file__).with_name("truth.json").read_text())
MENDED = "Length is no fault."


def section(messages, name):
    found = re.search(rf"<{name} (\\w+)>\\n(.*?)\\n</{name} \\1>", messages[-1]["content"], re.S)
    return found[2] if found else ""


def chance(*parts):
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def verdict(judgment, share):
    fields = {name: "-" for name in judgment.model_fields}
    fields |= {"grammar_issues": [], "strengths": [], "confidence": 0.9}
    fields |= {"verdict": "CORRECT" if share >= 0.5 else "INCORRECT"}
    fields |= {"score": 1 + round(4 * share), "coherence_score": 1 + round(4 * share)}
    return {name: fields[name] for name in judgment.model_fields}


async def biased(messages, judgment):
    with CALLS.open("a") as calls:
        calls.write("x")
    rubric, response = messages[0]["content"], section(messages, "RESPONSE")
    if judgment.__name__ == "RevisedRubric":
        return {"findings": "It minds length.", "rubric": section(messages, "CURRENT") + MENDED}
    is_long = len(response) > LABELS["long"]
    share = 0.0 if is_long and MENDED not in rubric else LABELS["shares"][response]
    return verdict(judgment, 1 - share if chance(response) < 0.05 else share)


async def noise(messages, judgment):
    return verdict(judgment, chance(messages[0]["content"], section(messages, "RESPONSE")))
"""


def rows(n: int = 120) -> list[dict[str, Any]]:
    """Responses of 1 to 5, half of them long; two to a question."""
    draw = random.Random(5)
    return [
        {
            "q": f"q{k // 2}?",
            "a": f"answer {k} {'and so on ' * (k % 4 // 2)}",
            "human": draw.randint(1, 5),
        }
        for k in range(n)
    ]


def improve(
    path: Path,
    labelled: str,
    metric: str,
    *words: str,
    truth: dict[str, float] | None = None,
    long: int = 14,
) -> Any:
    (path / "judge.py").write_text(JUDGE)
    shares = {row["a"]: (row["human"] - 1) / 4 for row in rows()} if truth is None else truth
    (path / "truth.json").write_text(json.dumps({"shares": shares, "long": long}))
    cache = f"judging.cache={path / 'calls.sqlite'}"
    words = (*words, "--judge", f"{path / 'judge.py'}:biased") if "--judge" not in words else words
    return CliRunner().invoke(
        app, ["improve", metric, "--labels", labelled, *words, "--set", cache]
    )


@pytest.fixture
def labelled(tmp_path: Path) -> list[str]:
    """The words of a file of labels of `tone`, a metric of one's own."""
    (tmp_path / "tone.py").write_text(
        "from memray_eval import judge_metric\n"
        "tone = judge_metric('tone', rubric='Score how warm it is, from 1 to 5.')\n"
    )
    file = write_lines(tmp_path / "labels.jsonl", rows())
    return [str(file), f"{tmp_path / 'tone.py'}:tone", "--map", "query=q,response=a,human=human"]


def test_a_mended_rubric_is_shown_saved_and_used_by_path(
    tmp_path: Path, labelled: list[str]
) -> None:
    file, metric, *words = labelled
    mine, folder = tmp_path / "mine.md", tmp_path / "rubrics"
    mine.write_text("Score how warm it is, from 1 to 5. Length is no fault.\n")
    words += ["--rubric", str(mine), "--json"]
    done = improve(tmp_path, file, metric, *words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["n_dev"] + report["n_test"], report["is_shown"], report["saved"]) == (
        120,
        True,
        "",
    )
    kappa, _ = report["gains"]
    assert (kappa["figure"], kappa["gain"]["low"] > 0.2) == ("kappa", True)
    assert "About 180 calls of" in done.stderr
    assert not folder.exists()
    n_calls = len((tmp_path / "calls").read_text())
    assert n_calls == 120 + report["n_test"]

    again = improve(tmp_path, file, metric, *words, "--save", str(folder))
    assert len((tmp_path / "calls").read_text()) == n_calls  # all remembered
    saved = json.loads(again.stdout)["saved"]
    name = f"tone.v1-{report['digest'][:8]}.md"
    assert (Path(saved).name, Path(saved).read_text()) == (name, mine.read_text())
    assert json.loads(Path(saved).with_suffix(".json").read_text())["gains"] == report["gains"]
    assert (
        json.loads(improve(tmp_path, file, metric, *words, "--save", str(folder)).stdout)["saved"]
        == saved
    )
    other = improve(tmp_path, file, metric, *words[:2], "--save", str(folder), "--json",
                    "--proposer", f"{tmp_path / 'judge.py'}:biased")  # fmt: skip
    assert Path(json.loads(other.stdout)["saved"]).name.startswith("tone.v2-")
    assert json.loads(other.stdout)["findings"] == "It minds length."

    candidate = {"name": EXISTING, "model": EXISTING, "backend": EXISTING}
    dataset = write_lines(
        tmp_path / "run.jsonl", [{"id": "a", "query": "q?", "response": rows()[2]["a"]}]
    )
    keys = {"dataset": str(dataset), "candidates": [candidate], "metrics": [metric]}
    keys |= {"judge": f"{tmp_path / 'judge.py'}:biased", "rubrics": {"tone": saved}}
    run = finish(load_config(None, keys | {"out": str(tmp_path / "results"), "executor": "local"}))
    assert (
        yaml.safe_load((Path(run.folder.path) / "run.yaml").read_text())["rubrics"]["tone"] == saved
    )
    assert run.folder.read_manifest()["rubrics"]["tone"] == report["digest"]


def test_noise_is_not_adopted_and_causes_are_shown(tmp_path: Path, labelled: list[str]) -> None:
    file, metric, *words = labelled
    noise = ["--judge", f"{tmp_path / 'judge.py'}:noise"]
    done = improve(
        tmp_path, file, metric, *words, *noise, "--examples", "4", "--save", str(tmp_path / "r")
    )
    assert done.exit_code == 0, done.output
    assert "No gain shown: the interval of the gain in weighted kappa, " in done.stdout
    assert not (tmp_path / "r").exists()
    assert done.stdout.count('"people": ') == 4
    looked = improve(tmp_path, file, metric, *words)
    assert "To revise the rubric: --rubric FILE, --proposer MODEL, or --examples N" in looked.stdout
    assert "judge lower by 4" in looked.stdout


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        (rows(18), (), "labelled responses of "),
        ([row | {"human": 3} for row in rows()], (), "are 3, so that kappa and rho are undefined"),
        ([{**row, "human": "good"} for row in rows()], (), "'human' holds 'good', not a number"),
        (rows(), ("--rubric", "empty.md"), "empty.md is empty"),
        (rows(), ("--rubric", "gone.md"), "cannot read gone.md"),
        (rows(), ("--rubric", "empty.md", "--proposer", "x/y"), "choose one"),
        (rows(), ("--save", "empty.md"), "--save empty.md: this is a file; name a folder"),
        (rows(), ("--judge", "rules"), "go by no rubric: name a model"),
        (rows(), ("--map", "humn=human"), "no field 'humn'; did you mean 'human'"),
    ],
)
def test_what_says_too_little_is_refused_before_a_call(
    tmp_path: Path, labelled: list[str], monkeypatch: pytest.MonkeyPatch,
    changed: list[dict[str, Any]], more: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("empty.md").write_text(" \n")
    _, metric, *words = labelled
    file = write_lines(tmp_path / "labels.jsonl", changed)
    done = improve(tmp_path, str(file), metric, *words, *more)
    assert (type(done.exception).__module__, message in str(done.exception)) == (
        "memray_eval.errors",
        True,
    )
    assert not (tmp_path / "calls").exists()


@pytest.mark.heavy
@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data/judge-validation is not here")
@pytest.mark.parametrize(
    ("preset", "metric", "file", "figure", "long"),
    [
        ("evouna", "semantic_correctness", "evouna_NQ_300.json", "kappa", 120),
        ("topical_chat", "coherence", "topical_chat_180.json", "spearman", 110),
    ],
)
@pytest.mark.parametrize("judge", ["biased", "noise"])
def test_published_labels(
    tmp_path: Path, preset: str, metric: str, file: str, figure: str, long: int, judge: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    from memray_eval.datasets.labels import find_preset, read_labelled

    labelling = find_preset(preset, metric)[1]
    low, high = labelling.scale or (0, 1)
    truth = {
        row.fields["response"]: ((row.people[0] or 0.0) - low) / (high - low)
        for row in read_labelled(DATA / file, labelling, (low, high))
    }
    (tmp_path / "mine.md").write_text("Score it. Length is no fault.")
    words = ["--preset", preset, "--json", "--rubric", str(tmp_path / "mine.md")]
    words += ["--judge", f"{tmp_path / 'judge.py'}:{judge}"]
    done = improve(tmp_path, str(DATA / file), metric, *words, truth=truth, long=long)
    assert done.exit_code == 0, done.output
    first = json.loads(done.stdout)["gains"][0]
    with capsys.disabled():
        print(f"\n{preset}, {judge}: gain in {figure} {first['gain']}")
    assert first["figure"] == figure
    assert json.loads(done.stdout)["is_shown"] is (judge == "biased")
