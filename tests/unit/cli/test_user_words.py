"""What a user reads, help, lists, reports and summaries, speaks of what the program does, not of
the documents that it was built after; options stand in groups."""

import re

import pytest
import typer
from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.cli.app import GROUPS
from memray_eval.cli.options import JUDGING, MONEY, OUTPUT, WHAT
from tests.conftest import REPOSITORY

# "seed" alone is a number that draws are made from
FOUNDING = re.compile(
    r"\bseeds? \d{3}|\bseed's\b|\bthe seed\b(?! of)|founding document|\b00\d_\w", re.IGNORECASE
)
PANELS = {WHAT, JUDGING, MONEY, OUTPUT}
COMMANDS = typer.main.get_group(app).commands


@pytest.mark.parametrize(
    "words", [["schema"], ["list", "metrics"], ["list", "suites"], ["list", "judges"]]
)
def test_lists_name_no_founding_document(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert len(done.output) > 500
    assert FOUNDING.findall(done.output) == []


def test_pages_shipped_jobs_and_goldens_name_no_founding_document() -> None:
    """The goldens are the help of every command, reports, summaries and pages of runs."""
    pages = [
        REPOSITORY / "README.md",
        REPOSITORY / "memray_eval" / "report" / "READING.md",
        REPOSITORY / "memray_eval" / "metrics" / "README.md",
        *(REPOSITORY / "jobs").glob("*.*"),
        *(REPOSITORY / "tests" / "golden" / "expected").rglob("*.*"),
    ]
    assert len(pages) > 100
    hits = {str(page): FOUNDING.findall(page.read_text("utf-8")) for page in pages}
    assert {name: words for name, words in hits.items() if words} == {}


@pytest.mark.parametrize("name", ["run", "evaluate", "generate", "resume", "estimate"])
def test_options_of_what_runs_and_commands_stand_in_groups(name: str) -> None:
    options = [item for item in COMMANDS[name].params if item.param_type_name == "option"]
    assert len(options) >= 3
    panels = {item.name: getattr(item, "rich_help_panel", None) for item in options}
    panels.pop("help", None)
    assert set(panels.values()) <= PANELS, panels
    if name in ("run", "evaluate"):
        assert set(panels.values()) == PANELS
    shown = [item.rich_help_panel for item in (*app.registered_commands, *app.registered_groups)]
    assert set(shown) == set(GROUPS)
