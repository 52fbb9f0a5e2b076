"""Every command that the product prints as advice is one that the command line takes."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from memray_eval.cli import app
from memray_eval.metrics import all_metrics
from tests.conftest import REPOSITORY

PAGE = REPOSITORY / "jobs" / "COMING_FROM.md"
FILLED = "1"  # in the place of what is known only when it is printed
_COMMAND = re.compile(r"`memray-eval ([^`]+)`")


def texts(tree: ast.AST) -> Iterator[str]:
    """The strings of a module without its docstrings, what is formatted into them filled."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in docstrings:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else FILLED
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def advice() -> dict[str, str]:
    """By command, the file that prints it, or the page for those who come from elsewhere."""
    commands = {}
    for file in sorted((REPOSITORY / "memray_eval").rglob("*.py")):
        source = file.read_text("utf-8")
        for text in texts(ast.parse(source)) if "`memray-eval " in source else ():
            for command in _COMMAND.findall(" ".join(text.split())):
                commands.setdefault(command, str(file.relative_to(REPOSITORY)))
    for command in _COMMAND.findall(PAGE.read_text("utf-8")):
        commands.setdefault(command, str(PAGE.relative_to(REPOSITORY)))
    return commands


ADVICE = advice()


def parse(words: list[str]) -> None:
    """Raises click's UsageError, as the command line would."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        if words == ["--help"]:
            return
        name, *words = words
        assert name in command.commands, f"no command {name}"
        command = command.commands[name]
    command.make_context(str(command.name), words)


@pytest.mark.parametrize("command", ADVICE)
def test_a_command_that_is_advised_parses(command: str) -> None:
    runnable = command.partition(" > ")[0]
    parse(shlex.split(re.sub(rf"^{FILLED}(?= )", "run", runnable)))


def test_advice_is_found() -> None:
    assert len(ADVICE) > 20
    assert Path(ADVICE["doctor JOB"]).name == "breaker.py"
    assert [*ADVICE.values()].count("jobs/COMING_FROM.md") > 50


def test_the_keys_and_metrics_of_the_page_are_there() -> None:
    keys = (REPOSITORY / "jobs" / "keys.md").read_text("utf-8")
    rows = (line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|"))
    text = "\n".join(row.split(" | ")[-1] for row in rows)  # what is here
    named = re.findall(r"--set (?:candidates\.0\.)?([\w.]+)=|`(\w+): [{\[]", text)
    assert len(named) > 12
    last = {key.rpartition(".")[2] for pair in named for key in pair if key}
    assert [key for key in last if f"{key}`" not in keys] == []
    metrics = re.findall(r"(?:--metrics|list metrics) (\w+)(?![\w.])", text)
    assert {*metrics} <= {*all_metrics()}
