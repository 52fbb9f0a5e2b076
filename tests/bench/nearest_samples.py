"""The nearest questions of the memory suite (dataset/samples, splits), by the local embeddings.

    python -m tests.bench.nearest_samples [--show 10]

Questions of one case are not compared: twins and changes of a case are alike by design."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from memray_eval.benchmarks.conversations.retrieval import load_encoder
from memray_eval.benchmarks.memory.generator import TASKS, samples
from tests.conftest import shipped_samples


def nearest(texts: Sequence[str], groups: Sequence[str], n: int) -> list[tuple[float, int, int]]:
    """The n nearest pairs of texts of different groups: cosine and places."""
    vectors = load_encoder("local")(texts)
    alike = np.triu(vectors @ vectors.T, 1)
    alike[np.equal.outer(np.asarray(groups), np.asarray(groups))] = -1
    best = np.argsort(-alike, axis=None)[:n]
    return [(float(alike.flat[at]), *map(int, divmod(int(at), len(texts)))) for at in best]


def nearest_questions(n: int) -> list[tuple[float, str, str]]:
    """The n nearest pairs of questions of different cases: cosine and the samples' ids."""
    rows = {s.query: s for s in (*shipped_samples(), *samples(TASKS, [40]))}
    ids = [sample.id for sample in rows.values()]
    groups = [sample.metadata.get("case", sample.id) for sample in rows.values()]
    return [(cosine, ids[one], ids[two]) for cosine, one, two in nearest([*rows], groups, n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", type=int, default=10)
    for cosine, *ids in nearest_questions(parser.parse_args().show):
        print(f"{cosine:.3f}", *ids)


if __name__ == "__main__":
    main()
