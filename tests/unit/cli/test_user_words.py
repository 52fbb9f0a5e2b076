"""What a user reads, help, lists, reports and summaries, speaks of what the program does, not of
the documents that it was built after; options stand in groups."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.cli.app import GROUPS
from memray_eval.cli.options import JUDGING, MONEY, OUTPUT, WHAT
from memray_eval.report.console import render, render_brief
from memray_eval.report.html.page import render_html
from tests.conftest import REPOSITORY
from tests.runs import candidates, full_summary, plain_records, write_run

# "seed" alone is a number that draws are made from
FOUNDING = re.compile(
    r"\bseeds? \d{3}|\bseed's\b|\bthe seed\b(?! of)|founding document|\b00\d_\w", re.IGNORECASE
)
PANELS = {WHAT, JUDGING, MONEY, OUTPUT}


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_names_no_founding_document(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert FOUNDING.findall(done.output) == []


@pytest.mark.parametrize(
    "words", [["schema"], ["list", "metrics"], ["list", "suites"], ["list", "judges"]]
)
def test_lists_name_no_founding_document(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert len(done.output) > 500
    assert FOUNDING.findall(done.output) == []


def test_reports_and_summaries_name_no_founding_document(tmp_path: Path) -> None:
    summary = full_summary(40, candidates(2))
    folder = write_run(tmp_path / "run", plain_records(40), 40)
    for text in (
        render(summary),
        render_brief(summary, "results/x"),
        summary.model_dump_json(),
        render_html(folder),
    ):
        assert len(text) > 1000
        assert FOUNDING.findall(text) == []


def test_pages_for_users_and_shipped_jobs_name_no_founding_document() -> None:
    pages = [
        REPOSITORY / "README.md",
        REPOSITORY / "memray_eval" / "report" / "READING.md",
        REPOSITORY / "memray_eval" / "metrics" / "README.md",
        *(REPOSITORY / "jobs").glob("*.*"),
    ]
    assert len(pages) > 8
    hits = {page.name: FOUNDING.findall(page.read_text("utf-8")) for page in pages}
    assert {name: words for name, words in hits.items() if words} == {}


@pytest.mark.parametrize("name", ["run", "evaluate", "generate", "resume", "estimate"])
def test_options_of_what_runs_stand_in_groups(name: str) -> None:
    options = [item for item in COMMANDS[name,].params if item.param_type_name == "option"]
    assert len(options) >= 3
    panels = {item.name: getattr(item, "rich_help_panel", None) for item in options}
    panels.pop("help", None)
    assert set(panels.values()) <= PANELS, panels
    if name in ("run", "evaluate"):
        assert set(panels.values()) == PANELS


def test_every_command_stands_in_a_group() -> None:
    shown = [item.rich_help_panel for item in app.registered_commands]
    shown += [item.rich_help_panel for item in app.registered_groups]
    assert set(shown) == set(GROUPS)
