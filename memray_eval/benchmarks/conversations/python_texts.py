"""Texts out of a benchmark's Python code, such as its judge prompts. The code is parsed, never
run."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from memray_eval.benchmarks.templates.files import find_beside, is_file, read_text
from memray_eval.errors import ConfigError


def find_file(path: str, names: Sequence[str]) -> str:
    """The file itself, or the first of these in the folder. Raises ConfigError if there is none."""
    if is_file(path):
        return path
    found = next((file for name in names if (file := find_beside(path, name))), None)
    if found is None:
        raise ConfigError(f"templates: {path} has none of {', '.join(names)}")
    return found


def parse_python(path: str) -> ast.Module:
    """The syntax of a file. Raises ConfigError for what is no Python."""
    try:
        return ast.parse(read_text(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"templates: {path} is no Python code: {error}") from None


def assigned_text(code: ast.AST, name: str) -> str | None:
    """The text that is assigned to a name anywhere, the first where there are several."""
    return next(_texts(ast.walk(code), name), None)


def texts_by_condition(code: ast.AST, name: str) -> dict[str, str]:
    """The texts that are assigned to a name in branches, by the words that the branch's condition
    compares with; that of the other branch of `if not X` by the name X."""
    found: dict[str, str] = {}
    for node in ast.walk(code):
        if not isinstance(node, ast.If):
            continue
        if text := next(_texts(node.body, name), None):
            words = (one.value for one in ast.walk(node.test) if isinstance(one, ast.Constant))
            found |= dict.fromkeys((word for word in words if isinstance(word, str)), text)
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        if negated and (text := next(_texts(node.orelse, name), None)):
            names = (one.id for one in ast.walk(node.test) if isinstance(one, ast.Name))
            found |= dict.fromkeys(names, text)
    return found


def _texts(nodes: Iterable[ast.AST], name: str) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            and any(isinstance(one, ast.Name) and one.id == name for one in node.targets)
        ):
            yield node.value.value
