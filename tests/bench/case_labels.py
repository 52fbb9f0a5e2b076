"""Cohen's kappa of two blind labellers of the memory suite's splits: of the roles of keys,
and of what a good reply does, by split, of the cases and of those held back.

    python -m tests.bench.case_labels"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from tests.bench.estimates import kappa

LABELS = Path(__file__).parents[1] / "data" / "memory_case_labels.jsonl"
HELD_BACK = LABELS.parent / "memory_held_back" / "labels.jsonl"

BOTH = {"labeller_1", "labeller_2"}


def pairs_by_split(
    file: Path = LABELS,
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[tuple[str, str]]]]:
    """The labels of keys, by split, and those of samples, by split. An unsure label
    counts as the label; what one of them has not labelled is left out."""
    roles, samples = defaultdict(list), defaultdict(list)
    for line in file.read_text("utf-8").splitlines():
        case = json.loads(line)
        for by in filter(BOTH.issubset, case["roles"].values()):
            roles[case.get("split", "cases")].append((by["labeller_1"], by["labeller_2"]))
        for name, by in case["samples"].items():
            if BOTH.issubset(by):
                both = by["labeller_1"].rstrip("?"), by["labeller_2"].rstrip("?")
                samples[name.partition("-")[0]].append(both)
    return roles, samples


def main() -> None:
    for file in (LABELS, HELD_BACK):
        print(f"{file.relative_to(LABELS.parent)}:")
        for what, pairs in zip(("key", "sample"), pairs_by_split(file), strict=True):
            for split, labels in pairs.items():
                print(f"  {split}: kappa {kappa(labels):.2f} on {len(labels)} {what}s")


if __name__ == "__main__":
    main()
