"""How many labels an adjusted score needs for a half-width, drawn by the queue of `view --label`
and at random.

    python -m tests.bench.active_labels [--half-width 0.03] [--draws 40]

Runs of 4,000 answers, judged in five ways. Labels are drawn by the queue (its sizes are those of
`doubt_of`) or with equal sizes; the interval is that of the adjusted mean (PPI++) with the queue's
weights. The number of labels is found by bisection of the mean half-width over the draws; the mean
error and the coverage of the 95 % intervals are at that number."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from memray_eval.analysis.adjusted.estimators import Labelled, Verdicts, prediction_powered
from memray_eval.metric import DISAGREEMENT
from memray_eval.ports import FloatArray
from memray_eval.report.labelling.queue import Queue, UnitColumns, doubt_of

N, RIGHT = 4000, 0.6  # answers of a run, and the share that people call right
EDGES = np.array([-1.2, -0.5, 0.3, 1.1])  # between the ratings of a normal taste
Random = np.random.Generator


class Judged(NamedTuple):
    """Verdicts and people's labels as shares, and the doubt of each verdict."""

    judge: FloatArray
    people: FloatArray
    doubts: FloatArray


class Needed(NamedTuple):
    labels: int
    error: float
    standard_error: float
    covered: float


def jury_of_three(random: Random) -> Judged:
    """Three jurors, right on 97 % of easy and 62 % of hard answers (a quarter)."""
    people = (random.random(N) < RIGHT).astype(float)
    accuracy = np.where(random.random(N) < 0.25, 0.62, 0.97)
    votes = np.where(random.random((3, N)) < accuracy, people, 1 - people)
    return Judged(np.median(votes, axis=0), people, doubts(np.median(votes, axis=0), votes))


def graded_jury(random: Random) -> Judged:
    """Three jurors who rate 1-5, a third of a standard deviation too kind; noisy on 30 %."""
    taste = random.normal(size=N)
    noise = np.where(random.random(N) < 0.3, 1.2, 0.3)
    votes = np.searchsorted(EDGES, taste + 0.3 + noise * random.normal(size=(3, N))) / 4
    people = np.searchsorted(EDGES, taste) / 4
    return Judged(np.median(votes, axis=0), people, doubts(np.median(votes, axis=0), votes))


def doubts(verdicts: FloatArray, votes: FloatArray) -> FloatArray:
    apart = np.ptp(votes, axis=0).tolist()
    rows = zip(verdicts.tolist(), apart, strict=True)
    return np.array([doubt_of({"value": v, "parts": {DISAGREEMENT: d}}, (0, 1)) for v, d in rows])


def confident(random: Random, is_calibrated: bool = True) -> Judged:
    """A judge whose confidence is the chance that it is right, or tells nothing of it."""
    low = random.random(N) < 0.3
    confidence = np.where(low, random.uniform(0.5, 0.9, N), random.uniform(0.94, 1, N))
    errs = 1 - confidence if is_calibrated else np.full(N, 0.11)
    return Judged(*zeros_and_ones(random, lambda judge: errs), 1 - confidence)


def lenient(random: Random) -> Judged:
    """A judge that errs on a quarter of what it calls right, and has no doubts."""
    return Judged(
        *zeros_and_ones(random, lambda judge: np.where(judge > 0, 0.25, 0.04)), np.zeros(N)
    )


def zeros_and_ones(
    random: Random, errs: Callable[[FloatArray], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    judge = (random.random(N) < RIGHT).astype(float)
    return judge, np.where(random.random(N) < errs(judge), 1 - judge, judge)


SETTINGS: dict[str, Callable[[Random], Judged]] = {
    "jury of three, yes or no": jury_of_three,
    "confidence that is true": confident,
    "jury of three, 1 to 5": graded_jury,
    "no doubts, errs on one side": lenient,
    "confidence that tells nothing": lambda random: confident(random, is_calibrated=False),
}


def halves(answers: Judged, queue: Queue, n: int) -> tuple[float, float, bool]:
    """The half-width by the first n labels, the error, and if the interval holds the truth."""
    weights = queue.weights([("", place) for place in range(n)])
    rows = np.array([queue.locate(place)[1] for place in weights], dtype=np.intp)
    labels = Labelled(
        answers.judge[rows], answers.people[rows], rows, np.array(list(weights.values()))
    )
    found = prediction_powered(Verdicts(answers.judge, np.arange(N)), labels)
    truth = float(answers.people.mean())
    is_held = found.interval.low <= truth <= found.interval.high
    return (found.interval.high - found.interval.low) / 2, found.value - truth, is_held


def needed(make: Callable[[Random], Judged], half_width: float, draws: int, active: bool) -> Needed:
    runs = []
    for draw in range(draws):
        answers, units = make(np.random.default_rng(draw)), UnitColumns(f"{draw}")
        for number, doubt in enumerate(answers.doubts.tolist()):
            units.add(f"u{number}", 0, number, doubt if active else 0.0)
        runs.append((answers, Queue(units)))
    low, high = 30, N
    while high - low > 2:
        n = (low + high) // 2
        mean = np.mean([halves(*run, n)[0] for run in runs])
        low, high = (low, n) if mean <= half_width else (n, high)
    table = np.array([halves(*run, high) for run in runs])
    spread = float(table[:, 1].std() / np.sqrt(draws))
    return Needed(high, float(table[:, 1].mean()), spread, float(table[:, 2].mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half-width", type=float, default=0.03)
    parser.add_argument("--draws", type=int, default=40)
    wanted = parser.parse_args()
    print("| judge | at random | by the queue | of them | mean error (± se), covered |")
    print("|---|---|---|---|---|")
    for name, make in SETTINGS.items():
        by_chance, queued = (
            needed(make, wanted.half_width, wanted.draws, active) for active in (False, True)
        )
        print(
            f"| {name} | {by_chance.labels} | {queued.labels} "
            f"| {queued.labels / by_chance.labels:.0%} | {queued.error:+.4f} "
            f"(± {queued.standard_error:.4f}), {queued.covered:.0%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
