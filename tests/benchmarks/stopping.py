"""What it costs and saves to stop a run when its question is decided: how often the decision is
wrong, and after what share of the answers it comes.

    python -m tests.benchmarks.stopping [--runs 5000]

Simulated runs are looked at after every group of answers (a group is one answer, or those of one
context), by the confidence sequence of `--stop-at`; beside it the plain 95 % interval at every
look, which is what a person does who watches a run and stops when it looks clear. A decision is
wrong if the interval at which the run stops does not hold the true mean, or if the wrong candidate,
or any of two equal ones, is called better. Then labelled files are replayed in random orders."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from memray_eval.datasets.labels import find_preset, read_labelled
from memray_eval.ports import FloatArray
from memray_eval.report.confidence_sequence import boundary
from memray_eval.report.statistics import difference_interval
from tests.conftest import REPOSITORY

N = 2000  # answers of a run
LEVEL = 0.95
RUNS_AT_ONCE = 250
DATA = REPOSITORY.parent / "shared/data/judge-validation"
REPLAYS = 200
_GRID = np.geomspace(1e-3, 1e5, 20_000)  # of variances, for looking up the boundary


class Runs(NamedTuple):
    """Runs as rows: the sum of each group's values (shares of the scale, or of differences (b - a +
    1) / 2), the size of a group, its stratum, and the true mean."""

    totals: FloatArray
    size: int
    strata: np.ndarray[tuple[int], np.dtype[np.int64]]
    truth: float


class Sequences(NamedTuple):
    """Means and half widths at each look of each run."""

    means: FloatArray
    halves: FloatArray


@lru_cache
def boundary_on_grid(alpha: float) -> FloatArray:
    return boundary(_GRID, alpha)


def look_up(variance: FloatArray, alpha: float) -> FloatArray:
    table = boundary_on_grid(alpha)
    # Between two points of a concave function the next higher point is on the safe side
    places = np.minimum(np.searchsorted(_GRID, variance), _GRID.size - 1)
    return np.asarray(table[places], np.float64)


def confidence_sequences(runs: Runs, level: float = LEVEL) -> Sequences:
    """ConfidenceSequence for many runs at once."""
    totals, size = runs.totals, runs.size
    n_looks = totals.shape[1]
    before = np.cumsum(totals, axis=1) - totals
    overall = (before + 0.5) / (size * np.arange(n_looks) + 1)
    seen, summed = np.zeros(n_looks), np.zeros(totals.shape)
    for stratum in np.unique(runs.strata):
        mine = runs.strata == stratum
        summed[:, mine] = np.cumsum(totals[:, mine], axis=1) - totals[:, mine]
        seen[mine] = size * np.arange(mine.sum())
    expected = (summed + overall) / (seen + 1)
    variance = np.cumsum(((totals - size * expected) / size) ** 2, axis=1)
    n = size * np.arange(1, n_looks + 1)
    return Sequences((before + totals) / n, size * look_up(variance, (1 - level) / 2) / n)


def plain_intervals(runs: Runs) -> Sequences:
    """The normal 95 % interval of the groups so far, as if it were the only look."""
    n = np.arange(1, runs.totals.shape[1] + 1)
    values = runs.totals / runs.size
    means = np.cumsum(values, axis=1) / n
    spread = np.maximum(0.0, np.cumsum(values**2, axis=1) / n - means**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        halves = 1.96 * np.sqrt(spread / np.maximum(n - 1, 1))
    halves[:, :20] = np.inf  # nobody stops so soon
    return Sequences(means, halves)


class Stops(NamedTuple):
    """How many of a scenario's runs stopped, and wrongly; and at what shares of their answers."""

    n: int
    stopped: int
    wrong: int
    shares: FloatArray


def stop(found: Sequences, truth: float, width: float | None) -> Stops:
    """Stops each run at its first decision: within `width` or, without one, apart from 1/2."""
    is_decided = (
        found.halves <= width if width is not None else np.abs(found.means - 0.5) > found.halves
    )
    first = is_decided.argmax(axis=1)
    has_stopped = is_decided.any(axis=1)
    rows = np.arange(len(first))
    mean, half = found.means[rows, first], found.halves[rows, first]
    if width is not None:
        is_wrong = np.abs(mean - truth) > half
    else:
        is_wrong = (np.sign(mean - 0.5) != np.sign(truth - 0.5)) | (truth == 0.5)
    shares = np.where(has_stopped, (first + 1) / found.means.shape[1], 1.0)
    return Stops(len(first), int(has_stopped.sum()), int((is_wrong & has_stopped).sum()), shares)


def zeros_and_ones(
    random: np.random.Generator, runs: int, size: int, means: tuple[float, ...], alike: float
) -> Runs:
    """Groups of answers in strata with these means, that take turns; `alike` is the correlation
    within a group."""
    n_groups = N // size
    strata = np.arange(n_groups) % len(means)
    shares = np.broadcast_to(np.array(means)[strata], (runs, n_groups))
    if size > 1:
        left = (1 - alike) / alike
        shares = random.beta(shares * left, (1 - shares) * left)
    totals = random.binomial(size, shares).astype(np.float64)
    return Runs(totals, size, strata, float(np.mean(means)))


def ratings(random: np.random.Generator, runs: int) -> Runs:
    """Ratings 1-5, as shares."""
    chances = (0.03, 0.1, 0.22, 0.4, 0.25)
    values = random.choice(5, p=chances, size=(runs, N)) / 4
    truth = float(np.dot(np.arange(5) / 4, chances))
    return Runs(values, 1, np.zeros(N, np.int64), truth)


def differences(random: np.random.Generator, runs: int, up: float, down: float) -> Runs:
    """Pairs of zeros and ones of which shares go up and down, as (b - a + 1) / 2."""
    change = random.choice((1.0, 0.5, 0.0), p=(up, 1 - up - down, down), size=(runs, N))
    return Runs(change, 1, np.zeros(N, np.int64), 0.5 + (up - down) / 2)


SCENARIOS: dict[str, tuple[Callable[[np.random.Generator, int], Runs], float | None]] = {
    "share 0.7, +-0.05": (lambda random, n: zeros_and_ones(random, n, 1, (0.7,), 0), 0.05),
    "share 0.97, +-0.03": (lambda random, n: zeros_and_ones(random, n, 1, (0.97,), 0), 0.03),
    "strata 0.2 0.5 0.95, +-0.05": (
        lambda random, n: zeros_and_ones(random, n, 1, (0.2, 0.5, 0.95), 0),
        0.05,
    ),
    "contexts of 5, share 0.7, +-0.1": (
        lambda random, n: zeros_and_ones(random, n, 5, (0.7,), 0.3),
        0.1,
    ),
    "ratings 1-5, +-0.2": (ratings, 0.05),
    "compare: no difference": (lambda random, n: differences(random, n, 0.15, 0.15), None),
    "compare: +0.05": (lambda random, n: differences(random, n, 0.2, 0.15), None),
    "compare: +0.1": (lambda random, n: differences(random, n, 0.2, 0.1), None),
    "compare: +0.2": (lambda random, n: differences(random, n, 0.3, 0.1), None),
}


def simulate(n_runs: int) -> None:
    print(
        f"{n_runs} runs of {N} answers       {'stopped':>9}{'wrong':>8}{'median at':>11}   "
        "plain interval at every look: stopped, wrong"
    )
    for name, (draw, width) in SCENARIOS.items():
        random, found = np.random.default_rng(3), ([], [])
        for start in range(0, n_runs, RUNS_AT_ONCE):
            runs = draw(random, min(RUNS_AT_ONCE, n_runs - start))
            for kept, looks in zip(
                found, (confidence_sequences(runs), plain_intervals(runs)), strict=True
            ):
                kept.append(stop(looks, runs.truth, width))
        ours, plain = (
            Stops(
                sum(one.n for one in each),
                sum(one.stopped for one in each),
                sum(one.wrong for one in each),
                np.concatenate([one.shares for one in each]),
            )
            for each in found
        )
        print(
            f"{name:<34}{ours.stopped / ours.n:>9.1%}{ours.wrong / ours.n:>8.2%}"
            f"{np.median(ours.shares):>11.0%}   {plain.stopped / plain.n:.1%}, "
            f"{plain.wrong / plain.n:.1%}",
            flush=True,
        )


class Replayed(NamedTuple):
    """A question to a labelled file: whether the whole file decides it, and what replays did."""

    name: str
    decided: str
    same: float
    saved: float


def labelled_files(folder: Path) -> Iterator[tuple[str, str, list[tuple[str, str, float]]]]:
    """Each file with a metric, and its answers: the item, the system, people's label as a share."""
    for preset, file, metric in (
        ("evouna", "evouna_NQ_300.json", None),
        ("begin", "begin_dev_wow.tsv", None),
        ("topical_chat", "topical_chat_180.json", "conversational_quality"),
    ):
        if not (folder / file).exists():
            continue
        name, labelling = find_preset(preset, metric)
        low, high = labelling.scale or (0.0, 1.0)
        rows = read_labelled(folder / file, labelling, (low, high))
        answers = []
        for row in rows:
            _, _, system = row.id.partition("-")[2].partition("-")
            given = [label for label in row.people if label is not None]
            share = (sum(given) / len(given) - low) / (high - low)
            answers.append((row.cluster, system, share))
        yield preset, name, answers


def replays(folder: Path, n: int) -> Iterator[Replayed]:
    for preset, metric, answers in labelled_files(folder):
        for width in (0.1, 0.15, 0.2):
            yield replay_width(f"{preset}: {metric} +-{width} of the scale", answers, width, n)
        systems = sorted({system for _, system, _ in answers if system})
        by_item = {(item, system): share for item, system, share in answers}
        items = sorted({item for item, _, _ in answers})
        for a, b in combinations(systems, 2):
            both = [item for item in items if (item, a) in by_item and (item, b) in by_item]
            of_a, of_b = (np.array([by_item[item, system] for item in both]) for system in (a, b))
            yield replay_compare(f"{preset}: compare {a}, {b}", of_a, of_b, n)


def replay_width(
    name: str, answers: list[tuple[str, str, float]], width: float, n: int
) -> Replayed:
    """Answers to one item stay together; those to items with fewer answers count too."""
    by_item: dict[str, list[float]] = {}
    for item, _, share in answers:
        by_item.setdefault(item, []).append(share)
    groups = list(by_item.values())
    largest, whole = max(map(len, groups)), float(np.mean([share for _, _, share in answers]))
    random, shares, right = np.random.default_rng(5), [], []
    for _ in range(n):
        order = random.permutation(len(groups))
        totals = np.array([sum(groups[place]) for place in order])
        sizes = np.array([len(groups[place]) for place in order])
        seen = np.cumsum(sizes) - sizes
        before = np.cumsum(totals) - totals
        expected = (before + (before + 0.5) / (seen + 1)) / (seen + 1)
        variance = np.cumsum(((totals - sizes * expected) / largest) ** 2)
        halves = largest * look_up(variance, (1 - LEVEL) / 2) / np.cumsum(sizes)
        means = np.cumsum(totals) / np.cumsum(sizes)
        if (halves <= width).any():
            first = int((halves <= width).argmax())
            shares.append(float(np.cumsum(sizes)[first] / sizes.sum()))
            right.append(abs(means[first] - whole) <= halves[first])
    told = f"in {len(shares) / n:.0%} of the orders"
    saved = 1 - float(np.median(shares)) if shares else 0.0
    return Replayed(name, told, float(np.mean(right)) if right else 1.0, saved)


def replay_compare(name: str, a: FloatArray, b: FloatArray, n: int) -> Replayed:
    found = difference_interval(a, b)
    whole = 0 if found is None or found.low <= 0 <= found.high else 1 if found.low > 0 else -1
    random, shares, same = np.random.default_rng(5), [], []
    for _ in range(n):
        order = random.permutation(a.size)
        runs = Runs(((b - a)[order] + 1)[None] / 2, 1, np.zeros(a.size, np.int64), 0.5)
        looks = confidence_sequences(runs)
        is_apart = np.abs(looks.means[0] - 0.5) > looks.halves[0]
        first = int(is_apart.argmax()) if is_apart.any() else a.size - 1
        said = int(np.sign(looks.means[0, first] - 0.5)) if is_apart.any() else 0
        if said:
            shares.append((first + 1) / a.size)
            same.append(said == whole)
    told = f"{'no one' if not whole else 'b' if whole > 0 else 'a'} in the file, here in "
    told += f"{len(shares) / n:.0%} of the orders"
    saved = 1 - float(np.median(shares)) if shares else 0.0
    return Replayed(name, told, float(np.mean(same)) if same else 1.0, saved)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--replays", type=int, default=REPLAYS)
    parser.add_argument("--data", type=Path, default=DATA)
    wanted = parser.parse_args()
    simulate(wanted.runs)
    found = list(replays(wanted.data, wanted.replays))
    for one in found:
        print(
            f"{one.name:<58}{one.decided}; same as the whole file {one.same:.0%}, saved "
            f"{one.saved:.0%}"
        )
    stopped = [one.saved for one in found if one.saved > 0]
    if stopped:
        same = float(np.mean([one.same for one in found if one.saved > 0]))
        print(
            f"median saving where it stopped: {np.median(stopped):.0%} of the answers; the "
            f"decision was that of the whole file in {same:.1%}"
        )


if __name__ == "__main__":
    main()
