"""Counts that say how the package reads: `python -m tests.house [FOLDER]`. They are a mirror, not a
gate.

A private helper is a top-level function whose name begins with one underscore; its callers are the
places in its own file that name it. Sizes count from `def` to the last line."""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SHORT = 6
WIDE = 100
_LOG_CALL = re.compile(
    r"\b_?(?:log|logger)\.(?:debug|info|warning|error|exception|critical)\(", re.IGNORECASE
)
_RUN_CONFIG = re.compile(
    r"^\s*(?:from memray_eval\S* import [^\n]*\bRunConfig\b|from memray_eval\S* import "
    r"\([^)]*\bRunConfig\b)",
    re.M,
)


def main(folder: str = "memray_eval") -> None:
    root = Path(folder)
    texts = {path: path.read_text("utf-8") for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    sizes = [
        _size(node)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS)
    ]
    private, once = [], []
    for tree in trees.values():
        named = Counter(_names(tree))
        helpers = [
            node for node in tree.body if isinstance(node, _FUNCTIONS) and _is_private(node.name)
        ]
        private += helpers
        once += [node for node in helpers if named[node.name] == 1]
    lines = [line for text in texts.values() for line in text.splitlines()]
    wide = sum(len(line) > WIDE for line in lines)
    readers = [
        str(path.relative_to(root)) for path, text in texts.items() if _RUN_CONFIG.search(text)
    ]
    print(f"files {len(texts)}, lines {len(lines)}")
    print(
        f"private top-level helpers {len(private)}; with one caller {len(once)}; of those <= "
        f"{SHORT} lines {sum(_size(node) <= SHORT for node in once)}"
    )
    print(
        f"function lines: median {statistics.median(sizes):.0f}, p90 "
        f"{statistics.quantiles(sizes, n=10)[-1]:.0f}, longest {max(sizes)}"
    )
    print(f"lines over {WIDE} characters: {wide} ({wide / len(lines):.1%})")
    print(f"logger calls: {sum(len(_LOG_CALL.findall(text)) for text in texts.values())}")
    print(f"modules that import RunConfig: {len(readers)}: {', '.join(readers)}")


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _size(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _names(tree: ast.AST) -> Iterator[str]:
    """Every name that is read or imported, once a place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


if __name__ == "__main__":
    main(*sys.argv[1:2])
