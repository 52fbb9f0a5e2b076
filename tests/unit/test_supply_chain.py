"""Packages that are known to be vulnerable are told, and no file of the package runs what comes
from outside."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.supply_chain import find_vulnerable, pins, sbom

LOCKS = REPOSITORY / "cluster/locks"
FILES = sorted((REPOSITORY / "memray_eval").rglob("*.py"))
# Modules that run or build objects from bytes; cloudpickle alone, of the caller's own metric
RUNS = {"pickle", "_pickle", "dill", "joblib", "marshal", "shelve", "code", "codeop"}
CALLS = {"eval", "exec", "compile", "__import__"}
METHODS = {("os", "system"), ("os", "popen"), ("torch", "load"), ("pd", "read_pickle")}
UNSAFE_YAML = {"unsafe_load", "full_load", "UnsafeLoader", "FullLoader", "Loader", "load_all"}


def unsafe(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in RUNS)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in RUNS:
            yield str(node.module)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from {node.func.id} & CALLS
        elif isinstance(node, ast.keyword) and node.arg in ("shell", "allow_pickle"):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = node.value.id, node.attr
            if (owner, name) in METHODS or (owner == "yaml" and name in UNSAFE_YAML):
                yield f"{owner}.{name}"


@pytest.mark.parametrize(
    "code",
    "import pickle|from marshal import loads|eval(text)|yaml.unsafe_load(text)|torch.load(file)|"
    "subprocess.run(text, shell=True)|np.load(file, allow_pickle=True)".split("|"),
)
def test_what_runs_code_from_outside_is_found(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


def test_nothing_from_outside_is_run() -> None:
    calls = {str(path): list(unsafe(ast.parse(path.read_text("utf-8")))) for path in FILES}
    assert len(calls) > 250
    assert {path: names for path, names in calls.items() if names} == {}


def test_yaml_is_loaded_by_the_strict_loader_alone() -> None:
    loads = [path.name for path in FILES if "yaml.load(" in path.read_text("utf-8")]
    assert loads == ["strict_yaml.py"]


@pytest.mark.parametrize(
    ("pinned", "id_"),
    [("setuptools==77.0.3", "CVE-2025-47273"), ("setuptools==78.1.1", ""), ("other==1", "")],
)
def test_a_vulnerable_pin_is_told_with_its_advisory(tmp_path: Path, pinned: str, id_: str) -> None:
    (lock := tmp_path / "lock.txt").write_text(f"{pinned}\n")
    lines = "\n".join(find_vulnerable(lock, (LOCKS / "advisories.txt").read_text("utf-8")))
    assert id_ in lines
    assert bool(lines) == bool(id_)


def test_the_bill_of_materials_has_every_package_of_the_locks_and_its_hashes() -> None:
    parts = {(part["name"], part["version"]): part for part in sbom(LOCKS)["components"]}
    hashed = [pin for lock in ("gpu.txt", "cpu.txt") for pin in pins(LOCKS / lock)]
    assert len(hashed) > 350
    for pin in (*hashed, *pins(LOCKS / "cpu-torch.txt")):
        assert parts[pin[:2]]["purl"] == f"pkg:pypi/{pin.name}@{pin.version}"
    assert all(parts[pin[:2]]["hashes"] for pin in hashed)
