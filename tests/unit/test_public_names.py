"""The public names: each has a docstring with an example that is Python and uses it."""

import ast
import inspect
from textwrap import dedent
from typing import get_type_hints

import pytest

import memray_eval as me
from memray_eval.api.running import Overrides, Settings
from memray_eval.config.schema import RunConfig


def examples_of(docstring: str) -> str:
    """The indented lines of a docstring."""
    lines = docstring.splitlines()
    return dedent("\n".join(line for line in lines if line.startswith("    ") or not line))


RETURNED_BY = {"Run": "open_run", "Comparison": "compare", "Calibration": "calibrate"}


@pytest.mark.parametrize("name", me.__all__)
def test_it_has_an_example_that_uses_it(name: str) -> None:
    example = examples_of(inspect.getdoc(getattr(me, name)) or "")
    used = {node.attr for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Attribute)}
    assert RETURNED_BY.get(name, name) in used, example


def test_all_that_a_run_offers_has_a_docstring() -> None:
    offered = [name for name in vars(me.Run) if not name.startswith("_")]
    assert {"summary", "table", "samples", "compare", "report", "check"} <= set(offered)
    assert [name for name in offered if not inspect.getdoc(getattr(me.Run, name))] == []


def test_an_editor_completes_every_key_of_a_job() -> None:
    named = {"metrics", "judge", "suite", "out", "dataset", "columns", "candidates"}  # by evaluate
    assert {*get_type_hints(Overrides)} == {*RunConfig.model_fields} - {"pairs"}
    assert {*get_type_hints(Settings)} == {*get_type_hints(Overrides)} - named
