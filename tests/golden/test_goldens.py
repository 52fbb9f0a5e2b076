"""What the product makes of stored run folders, kept byte for byte: figures in every export, and
the words of console, help and page. `pytest tests/golden --refresh-goldens` writes them again: read
the diff before you commit it."""

import hashlib
import html
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.report.console import render, render_brief
from tests.golden.make_runs import STORED
from tests.golden.odd_summary import odd_summary

# `calibrate` names a run of its own in a folder for this once
_OF_THIS_TRY = re.compile(r"/\S*memray-eval-calibrate-\S+|\d{8}-\d{6}-[\w-]+-[0-9a-f]{4}")
LONG = 63_000  # characters
EXPECTED = Path(__file__).parent / "expected"
RUNS = sorted(path.name for path in STORED.iterdir())
Golden = Callable[[str, str], None]
Command = Callable[..., str]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with the stored one of a name, or stores it; a long one by its digest and
    its first lines."""

    def check(name: str, text: str) -> None:
        file = EXPECTED / name
        if len(text) > LONG:
            digest = hashlib.sha256(text.encode()).hexdigest()
            text = f"{text[:2000]}\n... {len(text)} characters, sha256 {digest}\n"
        if request.config.getoption("--refresh-goldens"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        assert file.exists(), f"no golden {name}: run pytest tests/golden --refresh-goldens"
        assert text == file.read_text("utf-8"), f"{name} differs: see --refresh-goldens"

    return check


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs a command in a copy of the stored runs and returns what it prints."""
    shutil.copytree(STORED, tmp_path / "results")
    monkeypatch.chdir(tmp_path / "results")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")

    def invoke(*words: str) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return _OF_THIS_TRY.sub("RUN", re.sub(r" +\n", "\n", done.output))

    return invoke


@pytest.mark.parametrize("run", RUNS)
def test_figures(run: str, command: Command, golden: Golden) -> None:
    golden(f"{run}/report.json", command("report", run, "--json"))
    command("report", run, "--csv", "long.csv", "--parquet", "long.parquet")
    golden(f"{run}/scores.csv", Path("long.csv").read_text("utf-8"))
    table = pq.read_table("long.parquet")
    rows = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())
    golden(f"{run}/scores.parquet.txt", f"{table.schema.remove_metadata()}\n{rows}")
    command("report", run, "--evaluation", "eval.json")
    golden(f"{run}/eval.json", Path("eval.json").read_text("utf-8"))


@pytest.mark.parametrize("run", RUNS)
def test_words(run: str, command: Command, golden: Golden) -> None:
    golden(f"{run}/brief.txt", command("report", run))
    golden(f"{run}/full.txt", command("report", run, "--full"))
    command("report", run, "--html", "--out", "page.html")
    golden(f"{run}/page.txt", words_of(Path("page.html").read_text("utf-8")))


def test_words_of_an_odd_summary(golden: Golden) -> None:
    golden("odd/brief.txt", render_brief(odd_summary(), "results/odd"))
    golden("odd/full.txt", render(odd_summary()))


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        ("memory", ("memory", "memory-wordy")),
        ("instruction", ("instruction:terse", "instruction:wordy")),
        ("errors", ("errors:broken", "errors:terse", "memory")),
        ("sweep", ("text-sweep:wordy-t0", "text-sweep:wordy-t1")),
    ],
)
def test_comparisons(name: str, runs: tuple[str, ...], command: Command, golden: Golden) -> None:
    golden(f"compare/{name}.json", command("compare", *runs, "--json"))
    golden(f"compare/{name}.txt", command("compare", *runs, "--html", "page.html"))
    golden(f"compare/{name}.page.txt", words_of(Path("page.html").read_text("utf-8")))


LABELS = "id,query,response,answers,human\n" + "".join(
    f"q{n},What is the number of house {n}?,{'It is ' + str(n) if n % 3 else 'Nobody knows'}.,{n},"
    f"{int(n % 3 > 0 and n % 5 > 0)}\n"
    for n in range(60)
)


def test_calibration(command: Command, golden: Golden) -> None:
    Path("labels.csv").write_text(LABELS)
    columns = ",".join(f"{name}={name}" for name in ("query", "response", "answers", "human"))
    options = ("--metric", "semantic_correctness", "--judge", "rules", "--map", columns)
    words = ("calibrate", "labels.csv", *options)
    golden("calibrate/rules.json", command(*words, "--json"))
    golden("calibrate/rules.txt", command(*words))


def test_help(command: Command, golden: Golden) -> None:
    golden("help/memray-eval.txt", command("--help"))
    for name, group in sorted(get_command(app).commands.items()):  # type: ignore[attr-defined]
        texts = [command(name, "--help")]
        texts += [
            command(name, inner, "--help") for inner in sorted(getattr(group, "commands", ()))
        ]
        golden(f"help/{name}.txt", "\n".join(texts))


def words_of(page: str) -> str:
    """The words of an HTML page, a line for each element that has any; its data as it is."""
    body = re.sub(r"<(style|script)\b(?![^>]*json)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    lines = (" ".join(html.unescape(part).split()) for part in re.split(r"<[^>]+>", body))
    return "\n".join(line for line in lines if line) + "\n"
