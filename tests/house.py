"""Says how large the package is and how it reads, and holds each room to its lines:
`python -m tests.house` exits with 1 if a room, the tests or tests/bench have more than LINES says.

Bound names are those of variables, attributes, parameters,
functions and classes where they get their value; dialect among them are names that do not say what
a thing is. A private helper is a top-level function whose name begins with one underscore; its
callers are the places in its own file that name it."""

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

PRODUCT, TESTS = Path("memray_eval"), Path("tests")
# The most lines of each room, of the tests, and of tests/bench; lowered to what each step reaches
LINES: Mapping[str, int] = {
    ".": 1_746,
    "affect": 1_028,
    "analysis": 6_863,
    "api": 1_363,
    "benchmarks": 8_888,
    "cli": 2_374,
    "config": 2_191,
    "datasets": 5_040,
    "execution": 12_050,
    "judges": 6_540,
    "metrics": 5_284,
    "models": 1_094,
    "provider_http": 1_659,
    "report": 5_954,
    "results": 1_280,
    "sinks": 756,
    "storage": 564,
    "stores": 1_476,
    "submission": 382,
    "text_processing": 2_163,
    "types": 1_911,
    "tests": 55_142,
    "bench": 3_323,
}
PRODUCT_LINES, TEST_LINES, DIALECT_SHARE = 60_000, 52_000, 0.003  # goals
SAME_CLASS_NAMES, SMALL_FILES = 5, 60  # goals
SMALL = 60  # lines of a file that may be part of a neighbour
SHORT = 6
WIDE = 100
NOT_COUNTED = ("bench", "benchmarks")  # measuring scripts
DIALECT = frozenset("one each found made told said given asked known mine place here there".split())
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_LOG_CALL = re.compile(
    r"\b_?(?:log|logger)\.(?:debug|info|warning|error|exception|critical)\(", re.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """A Python file."""

    path: Path
    room: str
    text: str
    tree: ast.Module

    @property
    def n_lines(self) -> int:
        return self.text.count("\n")


def main() -> int:
    product, tests = read_sources(PRODUCT), read_sources(TESTS)
    print(
        f"{'room':<18}{'lines':>8}{'budget':>8}{'files':>7}{'small':>7}{'dialect':>9}{'tests':>9}"
    )
    for room in sorted({source.room for source in product}):
        files = [source for source in product if source.room == room]
        print(_describe_room(room, files, _lines_of_tests(room, tests)))
    counted = [source for source in tests if source.room not in NOT_COUNTED]
    bench = sum(source.n_lines for source in tests) - sum(source.n_lines for source in counted)
    small = [source for source in product if source.n_lines <= SMALL]
    print()
    print(_against("product, lines", sum(source.n_lines for source in product), PRODUCT_LINES))
    print(_against("tests, lines", sum(source.n_lines for source in counted), TEST_LINES))
    print(f"measuring scripts, lines: {bench:,}")
    print(_against(f"files of at most {SMALL} lines", len(small), SMALL_FILES))
    for title, sources in (("product", product), ("tests", counted)):
        share, worst = measure_dialect(sources)
        print(f"dialect in {title}: {share:.2%} of bound names (goal {DIALECT_SHARE:.1%}); {worst}")
    same = same_class_names(product)
    print(_against("class names that stand twice", len(same), SAME_CLASS_NAMES))
    for name, rooms in same.items():
        print(f"  {name}: {', '.join(rooms)}")
    for line in _describe_functions(product):
        print(line)
    sizes = Counter({"tests": sum(source.n_lines for source in counted), "bench": bench})
    for source in product:
        sizes[source.room] += source.n_lines
    over = {room: n for room, n in sizes.items() if n > LINES.get(room, 0)}
    for room, n in over.items():
        print(
            f"error: {room} has {n:,} lines, and its line is at {LINES.get(room, 0):,}",
            file=sys.stderr,
        )
    return 1 if over else 0


def read_sources(root: Path) -> list[Source]:
    """The Python files below a folder; its own files are of the room "." """
    sources = []
    for path in sorted(root.rglob("*.py")):
        parts, text = path.relative_to(root).parts, path.read_text("utf-8")
        room = parts[0] if len(parts) > 1 else "."
        sources.append(Source(path, room, text, ast.parse(text)))
    return sources


def bound_names(tree: ast.AST) -> Iterator[str]:
    """Every name that gets a value, once for each place."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name
            case _:
                pass


def measure_dialect(sources: list[Source]) -> tuple[float, str]:
    """The share of dialect in the names that are bound, and the commonest of them."""
    names = Counter(name for source in sources for name in bound_names(source.tree))
    dialect = Counter({name: n for name, n in names.items() if name.strip("_") in DIALECT})
    worst = ", ".join(f"{name} {n}" for name, n in dialect.most_common(6))
    return dialect.total() / max(1, names.total()), worst


def same_class_names(sources: list[Source]) -> dict[str, list[str]]:
    """The public class names that several files define, with the files' rooms."""
    rooms = defaultdict(list)
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                rooms[node.name].append(str(source.path.relative_to(PRODUCT)))
    return {name: paths for name, paths in sorted(rooms.items()) if len(set(paths)) > 1}


def _lines_of_tests(room: str, tests: list[Source]) -> int:
    return sum(test.n_lines for test in tests if test.path.parts[1:3] == ("unit", room))


def _describe_room(room: str, files: list[Source], n_tests: int) -> str:
    lines, budget = sum(file.n_lines for file in files), LINES.get(room)
    small = sum(file.n_lines <= SMALL for file in files)
    mark = "" if budget is None or lines <= budget else f"  +{lines - budget:,}"
    limit = "" if budget is None else f"{budget:,}"
    share, _ = measure_dialect(files)
    return (
        f"{room:<18}{lines:>8,}{limit:>8}{len(files):>7}{small:>7}{share:>9.2%}{n_tests:>9,}{mark}"
    )


def _against(what: str, value: int, budget: int) -> str:
    return f"{what}: {value:,} (goal {budget:,})"


def _describe_functions(sources: list[Source]) -> Iterator[str]:
    """Lines about helpers, the length of functions and lines, and calls of loggers."""
    sizes = [
        _size(node)
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, _Function)
    ]
    private: list[_Function] = []
    once: list[_Function] = []
    for source in sources:
        named = Counter(_read_names(source.tree))
        helpers = [
            node
            for node in source.tree.body
            if isinstance(node, _Function) and re.match("_[^_]", node.name)
        ]
        private += helpers
        once += [node for node in helpers if named[node.name] == 1]
    lines = [line for source in sources for line in source.text.splitlines()]
    yield (
        f"private top-level helpers {len(private)}; with one caller {len(once)}; of those <= "
        f"{SHORT} lines {sum(_size(node) <= SHORT for node in once)}"
    )
    yield (
        f"function lines: median {statistics.median(sizes):.0f}, p90 "
        f"{statistics.quantiles(sizes, n=10)[-1]:.0f}, longest {max(sizes)}"
    )
    yield f"lines over {WIDE} characters: {sum(len(line) > WIDE for line in lines)}"
    yield f"logger calls: {sum(len(_LOG_CALL.findall(source.text)) for source in sources)}"


def _size(node: _Function) -> int:
    """A function's lines, from `def` to the last."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _read_names(tree: ast.AST) -> Iterator[str]:
    """Every name that is read or imported, once a place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name


if __name__ == "__main__":
    sys.exit(main())
