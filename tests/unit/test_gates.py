"""Every test is in exactly one of `make quick`, `make test` and `make night`: of each folder with
tests, one line of the Makefile runs those with each combination of the markers."""

import re
from itertools import product

import pytest

from tests.conftest import REPOSITORY

MARKERS = ("heavy", "night")
TESTS = REPOSITORY / "tests"


def commands() -> list[tuple[set[str], str]]:
    """The folders and the marker expression of each line of the Makefile that runs tests."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    (parts,) = re.findall(r"^PARTS \?= (.+)$", makefile, re.M)
    makefile = makefile.replace("$* -o", f"{parts} -o")
    lines = re.findall(r"\$\(PYTEST\) (.*tests/.*)", makefile)
    expressions = [re.search(r"-m (\"[^\"]+\"|\S+)", line) for line in lines]
    return [
        (set(re.findall(r"tests/(\w+)", line)), mark[1].strip('"') if mark else "not night")
        for line, mark in zip(lines, expressions, strict=True)
    ]


FOLDERS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")})


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_test_is_run_by_one_line(folder: str) -> None:
    for present in product((True, False), repeat=len(MARKERS)):
        markers = dict(zip(MARKERS, present, strict=True))
        runs = [
            expression
            for folders, expression in commands()
            if folder in folders and eval(expression, {}, markers)
        ]
        assert len(runs) == 1, (folder, markers, runs)


def test_no_other_marker_or_variable_takes_a_test_out() -> None:
    """Skips are for what a machine lacks; they ask for no variable."""
    settings = (REPOSITORY / "pyproject.toml").read_text("utf-8")
    assert "-m 'not night'" in settings
    assert re.findall(r'^  "(\w+): ', settings.partition("markers = [")[2], re.M) == [*MARKERS]
    switch = re.compile(r'"MEMRAY_EVAL_(?!CACHE|KILLS)\w*" (?:not )?in os\.environ')
    assert [path for path in TESTS.rglob("*.py") if switch.search(path.read_text("utf-8"))] == []
