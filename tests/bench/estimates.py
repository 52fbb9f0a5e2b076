"""How far the estimate of memory_utilization and the rules of memory_conduct agree with labels.

The 60 responses of tests/data/memory_labels.jsonl were written and labelled blind to the rules, by
one labeller, to the samples in tests/data/memory_labels_samples.jsonl: dataset/samples has changed
since then. Cited keys are compared as sets over all responses."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from memray_eval.config.sections import EmbeddingConfig
from memray_eval.metric import Measured
from memray_eval.metrics._memory import find_citations, matching_texts
from memray_eval.metrics.assistant.memory_conduct import measure
from memray_eval.models.embeddings import build_embedder
from memray_eval.ports import Vectors
from memray_eval.types import Response, Sample
from tests.conftest import REPOSITORY, shipped_samples

LABELS = REPOSITORY / "tests" / "data" / "memory_labels.jsonl"
LABELLED_SAMPLES = LABELS.with_name("memory_labels_samples.jsonl")


@dataclass(frozen=True)
class Detection:
    """How well a rule finds what labellers found, by counts."""

    tp: int
    fp: int
    fn: int
    tn: int = 0

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool]]) -> Detection:
        """Of pairs of what the rule says and what is true."""
        counts = Counter(pairs)
        return cls(
            counts[True, True], counts[True, False], counts[False, True], counts[False, False]
        )

    @property
    def precision(self) -> float:
        return self.tp / (self.tp + self.fp) if self.tp + self.fp else 1.0

    @property
    def recall(self) -> float:
        return self.tp / (self.tp + self.fn) if self.tp + self.fn else 1.0

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / (self.precision + self.recall)

    def __str__(self) -> str:
        return (
            f"precision {self.precision:.3f} ({self.tp} of {self.tp + self.fp}), recall "
            f"{self.recall:.3f} ({self.tp} of {self.tp + self.fn}), n "
            f"{self.tp + self.fp + self.fn + self.tn}"
        )


def agreement(embed: Callable[[Sequence[str]], Vectors], *, is_enlarged: bool = False) -> Detection:
    """Runs the rules over the labelled responses; `embed` gives the vectors of some texts (or
    none). Enlarged: memory also holds the keys of today's dataset/samples, which no response could
    use, as its writer had not seen them."""
    lines = LABELLED_SAMPLES.read_text("utf-8").splitlines()
    samples = {sample.id: sample for sample in map(Sample.model_validate_json, lines)}
    if is_enlarged:
        today = {sample.id: sample.memory for sample in shipped_samples()}
        samples = {
            name: sample.model_copy(update={"memory": {**today[name], **sample.memory}})
            for name, sample in samples.items()
        }
    counts = Counter[str]()
    for line in LABELS.read_text("utf-8").splitlines():
        label = json.loads(line)
        counts.update(_compare(label, samples[label["sample_id"]], embed))
    return Detection(counts["tp"], counts["fp"], counts["fn"])


def _compare(
    label: dict[str, Any], sample: Sample, embed: Callable[[Sequence[str]], Vectors]
) -> dict[str, int]:
    response = Response(text=label["response"])
    vectors = embed(matching_texts(sample, response))
    found = {citation.key for citation in find_citations(sample, response, vectors)}
    wanted = set(label["cited_keys"])
    return {"tp": len(found & wanted), "fp": len(found - wanted), "fn": len(wanted - found)}


SENTENCES = REPOSITORY / "tests" / "data" / "memory_sentences.jsonl"


def labelled_sentences(split: str) -> list[dict[str, Any]]:
    rows = map(json.loads, SENTENCES.read_text("utf-8").splitlines())
    return [row for row in rows if row["split"] == split]


def sentence_agreement(
    split: str, embed: Callable[[Sequence[str]], Vectors]
) -> dict[str, Detection]:
    """The rules against the labels that both labellers gave, of keys that memory lacks and of those
    that it holds; a sentence on which the two differ is left out."""
    pairs: dict[str, list[tuple[bool, bool]]] = {"absent": [], "present": []}
    for row in labelled_sentences(split):
        where = "present" if row["key"] in row["memory"] else "absent"
        labels = {label["cited"] for label in row["labels"].values()}
        if len(labels) == 1:
            pairs[where].append((is_cited_by_rules(row, embed), labels.pop()))
    return {name: Detection.of(found) for name, found in pairs.items()}


def is_cited_by_rules(row: dict[str, Any], embed: Callable[[Sequence[str]], Vectors]) -> bool:
    """Returns True if the rules find the row's key cited."""
    absent = () if row["key"] in row["memory"] else (row["key"],)
    sample = Sample(id=row["id"], query=row["query"], memory=row["memory"], forbidden_keys=absent)
    response = Response(text=row["response"])
    vectors = embed(matching_texts(sample, response))
    keys = {citation.key for citation in find_citations(sample, response, vectors)}
    return row["key"] in keys


REPLIES = LABELS.with_name("memory_conduct_replies.jsonl")


def conduct_pairs(of_baselines: bool = False) -> list[tuple[str, bool, bool]]:
    """Of each labelled reply, written by hand or by a baseline: its split, if memory_conduct takes
    it for right, and if it is."""
    rows = list(map(json.loads, REPLIES.read_text("utf-8").splitlines()))
    rows = [row for row in rows if ("writer" in row) == of_baselines]
    samples = [Sample.model_validate(row["sample"]) for row in rows]
    return [
        (sample.task, measure(sample, Response(text=row["response"])).value == 1.0, row["right"])
        for sample, row in zip(samples, rows, strict=True)
    ]


def measure_conduct(of_baselines: bool = False) -> Measured:
    """Right replies that score 1 (recall), wrong ones that score 0 (specificity), and kappa."""
    pairs = [(said, right) for _, said, right in conduct_pairs(of_baselines)]
    found = Detection.of(pairs)
    return Measured(
        n=len(pairs),
        what="replies",
        recall=found.recall,
        specificity=found.tn / (found.tn + found.fp),
        kappa=kappa(pairs),
    )


def kappa(pairs: Sequence[tuple[Any, Any]]) -> float:
    """Cohen's kappa of two labellers."""
    observed = sum(left == right for left, right in pairs) / len(pairs)
    lefts, rights = Counter(left for left, _ in pairs), Counter(right for _, right in pairs)
    chance = sum(lefts[value] * rights[value] for value in lefts) / len(pairs) ** 2
    return (observed - chance) / (1 - chance) if chance < 1 else 1.0


def labellers_kappa() -> float:
    """Of the two labellers, on cited keys over all sentences."""
    rows = [*labelled_sentences("tune"), *labelled_sentences("held")]
    labels = (row["labels"].values() for row in rows)
    return kappa([(one["cited"], two["cited"]) for one, two in labels])


def main() -> None:
    """Prints every figure that is published of the memory rules, on words alone and with the local
    embedding model."""
    embedder = build_embedder(EmbeddingConfig())

    def embed(texts: Sequence[str]) -> Vectors:
        unique = sorted(set(texts))
        return dict(zip(unique, asyncio.run(embedder.embed(unique)), strict=True))

    print(f"memory_conduct: {measure_conduct()}; of baselines {measure_conduct(True)}")
    for split, group in groupby(conduct_pairs(), lambda pair: pair[0]):
        print(f"  {split}: {Detection.of((said, right) for _, said, right in group)}")
    print(f"labellers' kappa: {labellers_kappa():.3f}")
    for way, vectors_of in (("words alone", lambda texts: {}), ("with vectors", embed)):
        keys = agreement(vectors_of)
        print(f"\n60 responses, {way}: {keys}, F1 {keys.f1:.3f}")
        print(f"in larger memories: {agreement(vectors_of, is_enlarged=True)}")
        for split in ("tune", "held"):
            for where, found in sentence_agreement(split, vectors_of).items():
                print(f"sentences, {split}, {way}, {where} keys cited: {found}")


if __name__ == "__main__":
    main()
