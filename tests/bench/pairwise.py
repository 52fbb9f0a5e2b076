"""Pairs: what a judge without a mind of its own makes of them, whether planted strengths are found,
and whether Swiss rounds find the leader that all pairs find.

    python -m tests.bench.pairwise                     # some minutes
    python -m tests.bench.pairwise --cups 20 --questions 40

The first part is runs of made-up answers and a pairwise run over them, judged by a local server
that always prefers the answer it is shown first. The others simulate verdicts: each order of a pair
falls to one answer, the other or neither by Davidson's model, with a bias for the answer that is
shown first."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from memray_eval.analysis.agreement import midranks
from memray_eval.analysis.pairs.figures import draw_strengths, measure_pairs
from memray_eval.analysis.pairs.models import PairwiseReport
from memray_eval.analysis.pairs.swiss import Two, all_pairs, pair_round, rounds_for
from memray_eval.analysis.pairs.verdicts import PairVerdicts
from memray_eval.config.schema import RunConfig
from memray_eval.execution.pairwise import run_pairwise
from memray_eval.execution.runs import run
from memray_eval.ports import FloatArray
from memray_eval.types import EXISTING
from tests.servers.provider import serving

CANDIDATES = 8
GAP = 0.25  # log-odds between neighbours
TIES = -0.5  # ln of Davidson's nu
FIRST_BIAS = 0.4  # log-odds for the answer that is shown first


def always_first(body: dict[str, Any]) -> str:
    return json.dumps({"evidence": [], "reason": "It stands first.", "preferred": "first"})


def judge_always_first(folder: Path, questions: int, names: Sequence[str]) -> PairwiseReport:
    """Runs of made-up answers, compared by a judge that takes the first of two."""
    with serving(always_first) as server:
        runs = []
        for name in names:
            rows = [
                {"id": f"Q{n}", "query": f"Question {n}?", "response": f"{name} says {'so ' * n}"}
                for n in range(questions)
            ]
            path = folder / f"{name}.jsonl"
            path.write_text("".join(json.dumps(row | {"candidate": name}) + "\n" for row in rows))
            done = run(_job(folder, str(path), server.base_url), lambda text: None, quiet=True)
            runs.append(done.folder.path)
        pairs = _job(folder, "pairs", server.base_url).model_copy(
            update={"suite": "pairs", "metrics": ("preference",), "judge": "openai/local"}
        )
        return run_pairwise(runs, pairs, lambda text: None, quiet=True).report


def _job(folder: Path, dataset: str, base_url: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "dataset": dataset,
            "suite": "chat",
            "out": str(folder / "results"),
            "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
            "metrics": ["lexical_diversity"],
            "judge": "rules",
            "judging": {"base_urls": {"openai": base_url}, "cache": "off"},
            "executor": "local",
        }
    )


def simulate(
    pairs: Sequence[tuple[int, Two]], strengths: FloatArray, random: np.random.Generator
) -> PairVerdicts:
    """Verdicts on pairs (question, two candidates) by planted strengths."""
    question = np.array([one for one, _ in pairs])
    i, j = np.array([two for _, two in pairs]).T
    gap = strengths[i] - strengths[j]
    return PairVerdicts(
        "preference",
        question,
        question,
        i,
        j,
        _verdict(gap + FIRST_BIAS, random),
        _verdict(-gap + FIRST_BIAS, random),
        np.zeros(len(pairs)),
    )


def _verdict(gap: FloatArray, random: np.random.Generator) -> FloatArray:
    """1 for the answer shown first, which is better by `gap`, 0 for the other, 0.5 for neither."""
    first, second, tie = np.exp(gap / 2), np.exp(-gap / 2), np.full(gap.size, np.exp(TIES))
    drawn = random.random(gap.size) * (first + second + tie)
    return np.where(drawn < first, 1.0, np.where(drawn < first + second, 0.0, 0.5))


def play_swiss(
    questions: int, strengths: FloatArray, random: np.random.Generator
) -> tuple[int, int]:
    """The leader after all rounds, and how many pairs they had."""
    n = strengths.size
    players = [list(range(n))] * questions
    met: list[dict[int, frozenset[int]]] = [{} for _ in players]
    pairs: list[tuple[int, Two]] = []
    found: list[PairVerdicts] = []
    drawn = None
    for number in range(1, rounds_for(n) + 1):
        for place, chosen in enumerate(pair_round(players, met, drawn, number)):
            pairs += [(place, two) for two in chosen]
            for i, j in chosen:
                met[place][i] = met[place].get(i, frozenset()) | {j}
                met[place][j] = met[place].get(j, frozenset()) | {i}
        start = sum(one.i.size for one in found)
        found.append(simulate(pairs[start:], strengths, random))
        columns = (
            np.concatenate([getattr(one, field.name) for one in found])
            for field in fields(PairVerdicts)[1:8]
        )
        fitted, drawn = draw_strengths(PairVerdicts("preference", *columns), n, draws=100)
    return int(np.argmax(fitted[0])), len(pairs)


def find_leader(questions: int, strengths: FloatArray, random: np.random.Generator) -> int:
    """The leader of all pairs."""
    pairs = [(place, two) for place in range(questions) for two in all_pairs(range(strengths.size))]
    one = simulate(pairs, strengths, random)
    fitted, _ = draw_strengths(one, strengths.size, draws=2)
    return int(np.argmax(fitted[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--cups", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pairwise_") as folder:
        found = judge_always_first(Path(folder), asked.questions, ("ada", "bo", "cy")).criteria[0]
    rates = {one.candidate: one.rate.value or 0.0 for one in found.standings}
    told = ", ".join(f"{name} {100 * rate:.1f} %" for name, rate in rates.items())
    print(
        f"a judge that takes the first, {found.n_pairs} pairs: win rates {told}; first "
        f"{100 * (found.first_share.value or 0):.0f} %, flips "
        f"{100 * (found.flips.value or 0):.0f} %"
    )
    assert all(abs(rate - 0.5) <= 0.01 for rate in rates.values())

    random = np.random.default_rng(0)
    planted = GAP * np.arange(CANDIDATES)[::-1].astype(np.float64)
    pairs = [
        (place, two) for place in range(asked.questions) for two in all_pairs(range(CANDIDATES))
    ]
    names = [str(number) for number in range(CANDIDATES)]
    measured = measure_pairs(simulate(pairs, planted, random), names)
    strengths = np.array(
        [one.strength or 0.0 for one in sorted(measured.standings, key=lambda one: one.candidate)]
    )
    spearman = np.corrcoef(midranks(strengths), midranks(planted))[0, 1]
    inside = sum(
        (one.rank_low or 0) <= int(one.candidate) + 1 <= (one.rank_high or 0)
        for one in measured.standings
    )
    print(
        f"{CANDIDATES} planted strengths, {asked.questions} questions, all pairs: Spearman "
        f"{spearman:.3f}; {inside} of {CANDIDATES} true ranks within their intervals; first "
        f"{100 * (measured.first_share.value or 0):.1f} %, flips "
        f"{100 * (measured.flips.value or 0):.1f} %"
    )
    same, right, n_pairs = 0, 0, 0
    for _ in range(asked.cups):
        order = random.permutation(planted)
        leader, n_pairs = play_swiss(asked.questions, order, random)
        of_all = find_leader(asked.questions, order, random)
        same += leader == of_all
        right += leader == int(np.argmax(order))
    of = asked.questions * CANDIDATES * (CANDIDATES - 1) // 2
    print(
        f"{asked.cups} cups of {CANDIDATES}: Swiss rounds and all pairs have the same leader in "
        f"{same}, the planted one in {right}; {n_pairs:,} of {of:,} pairs "
        f"({100 * n_pairs / of:.0f} %)"
    )


if __name__ == "__main__":
    main()
