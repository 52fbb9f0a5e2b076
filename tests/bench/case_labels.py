"""Cohen's kappa of two blind labellers of the memory suite's splits: of the roles of keys,
and of what a good reply does, by split.

    python -m tests.bench.case_labels"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

LABELS = Path(__file__).parents[1] / "data" / "memory_case_labels.jsonl"

BOTH = {"labeller_1", "labeller_2"}


def kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Cohen's kappa of two labellers; 1 where both give one label throughout."""
    n = len(pairs)
    agreed = sum(first == second for first, second in pairs) / n
    firsts, seconds = (Counter(labels) for labels in zip(*pairs, strict=True))
    by_chance = sum(firsts[label] * seconds[label] for label in firsts) / n**2
    return 1.0 if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)


def pairs_by_split() -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[tuple[str, str]]]]:
    """The labels of keys, by split, and those of samples, by split. An unsure label
    counts as the label; what one of them has not labelled is left out."""
    roles, samples = defaultdict(list), defaultdict(list)
    for line in LABELS.read_text("utf-8").splitlines():
        case = json.loads(line)
        for by in filter(BOTH.issubset, case["roles"].values()):
            roles[case.get("split", "cases")].append((by["labeller_1"], by["labeller_2"]))
        for name, by in case["samples"].items():
            if BOTH.issubset(by):
                both = by["labeller_1"].rstrip("?"), by["labeller_2"].rstrip("?")
                samples[name.partition("-")[0]].append(both)
    return roles, samples


def main() -> None:
    for what, pairs in zip(("key", "sample"), pairs_by_split(), strict=True):
        for split, labels in pairs.items():
            print(f"{split}: kappa {kappa(labels):.2f} on {len(labels)} {what}s")


if __name__ == "__main__":
    main()
