"""What the package brings along: `python -m tests.supply_chain audit` compares the locks with the
versions of cluster/locks/advisories.txt, offline, and ends with 1 if one is vulnerable; `sbom`
prints the installed packages of the locks as CycloneDX 1.6."""

import importlib.metadata
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from packaging.specifiers import SpecifierSet

LOCKS = Path("cluster/locks")
PRODUCT = ("cpu.txt", "cpu-torch.txt", "gpu.txt")


class Pin(NamedTuple):
    name: str
    version: str
    hashes: tuple[str, ...]


def pins(lock: Path) -> Iterator[Pin]:
    """The packages of a lock, with the SHA-256 of their files if it has these."""
    for entry in re.split(r"\n(?=\S)", lock.read_text("utf-8")):
        if pinned := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", entry):
            yield Pin(pinned[1], pinned[2], tuple(re.findall(r"sha256:([0-9a-f]{64})", entry)))


def find_vulnerable(lock: Path, advisories: str) -> Iterator[str]:
    """Lines about pins of a lock that an advisory (NAME SPECIFIER ID) is about."""
    versions = {pin.name.lower().replace("_", "-"): pin.version for pin in pins(lock)}
    for line in advisories.splitlines():
        name, _, rest = line.partition("#")[0].partition(" ")
        specifier, _, advisory = rest.strip().partition(" ")
        version = versions.get(name)
        if version is not None and SpecifierSet(specifier).contains(version, prereleases=True):
            yield f"{lock}: {name} {version} is vulnerable ({advisory}): take one not {specifier}"


def sbom(locks: Path) -> dict[str, Any]:
    """CycloneDX 1.6 of the locks of a CPU and a GPU; the licence of what is installed here."""
    pinned = {pin[:2]: pin for name in PRODUCT for pin in pins(locks / name)}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "memray-eval"}},
        "components": [_component(pinned[key]) for key in sorted(pinned)],
    }


def _component(pin: Pin) -> dict[str, Any]:
    try:
        about = importlib.metadata.metadata(pin.name)
    except importlib.metadata.PackageNotFoundError:
        licence = None
    else:
        licence = about.get("License-Expression") or about.get("License")
    return {
        "type": "library",
        "name": pin.name,
        "version": pin.version,
        "purl": f"pkg:pypi/{pin.name}@{pin.version}",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in pin.hashes],
        "licenses": [{"license": {"name": licence.splitlines()[0][:80]}}] if licence else [],
    }


def main() -> None:
    if sys.argv[1:] == ["sbom"]:
        print(json.dumps(sbom(LOCKS), indent=1))
        return
    advisories = (LOCKS / "advisories.txt").read_text("utf-8")
    locks = (LOCKS / name for name in (*PRODUCT, "dev.txt"))
    sys.exit("\n".join(line for lock in locks for line in find_vulnerable(lock, advisories)) or 0)


if __name__ == "__main__":
    main()
