"""What strangers write is shown, not obeyed: on the console, in summary.txt, in CSV."""

import json
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.dataset as pads
import pytest

from memray_eval.cli.app import say, show
from memray_eval.report.console import render
from memray_eval.report.exports import write_csv
from memray_eval.results.schema import to_table
from memray_eval.text_processing.values import escape_controls
from memray_eval.types import Record
from tests.runs import candidates, full_summary

TITLE = "\x1b]0;owned\x07\x9b2J\x7f\ud800"


def test_controls_and_surrogates_are_escaped_and_text_is_not() -> None:
    assert escape_controls(TITLE) == r"\u001b]0;owned\u0007\u009b2J\u007f\ud800"
    assert escape_controls("naïve 中文 مرحبا\tand\nlines") == "naïve 中文 مرحبا\tand\nlines"
    assert json.loads(escape_controls(json.dumps({"a": "\x9b"}, ensure_ascii=False))) == {
        "a": "\x9b"
    }


def test_the_console_shows_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"sample {TITLE}")
    show(TITLE)
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\x9b" not in out + err
    assert r"\u001b]0;owned" in out


def test_a_summary_and_a_csv_show_escapes(record: Record, tmp_path: Path) -> None:
    named = tuple(row.model_copy(update={"name": f"m{TITLE[:-1]}"}) for row in candidates(1))
    text = render(full_summary(4, named))
    assert r"m\u001b]0;owned\u0007" in text
    assert "\x1b" not in text
    hostile = record.model_copy(update={"candidate": named[0], "scores": ()})
    write_csv(str(tmp_path / "run.csv"), pads.dataset(to_table([hostile])))
    written = (tmp_path / "run.csv").read_bytes()
    assert b"\x1b" not in written
    assert b"\x07" not in written
    assert pacsv.read_csv(tmp_path / "run.csv")["candidate"].to_pylist() == [
        r"m\u001b]0;owned\u0007\u009b2J\u007f"
    ]
