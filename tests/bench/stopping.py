"""What it costs and saves to stop a run when its question is decided: how often the decision is
wrong, and after what share of the answers it comes.

    python -m tests.bench.stopping [--runs 5000] [--only compare] [--replays 200]

Simulated runs are looked at after every group of answers (a group is one answer, or those of one
context) as `--stop-at` does it: means by their confidence sequence, comparisons by bets. Beside it
the plain 95 % interval at every look, which is what a person does who watches a run and stops when
it looks clear. A decision is wrong if the interval at which the run stops does not hold the true
mean, or if the wrong candidate, or any of two equal ones, is called better.

Then labelled files are replayed in random orders, beside what the interval of a fixed size says on
all of their units: people's labels of two systems' answers to the same items."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from memray_eval.analysis.betting import Capital
from memray_eval.analysis.confidence_sequence import boundary
from memray_eval.analysis.statistics import difference_interval
from memray_eval.datasets.labels import PRESETS, find_preset, read_labelled
from memray_eval.ports import FloatArray
from tests.conftest import REPOSITORY

N = 2000  # answers of a run
LEVEL = 0.95
RUNS_AT_ONCE = 250
DATA = REPOSITORY.parent / "shared/data/judge-validation"
REPLAYS = 200
FEWEST = 20  # items that both of a pair answered
_GRID = np.geomspace(1e-3, 1e5, 20_000)  # of variances, for looking up the boundary


class Runs(NamedTuple):
    """Runs as rows: the sum of each group's values (shares of the scale, or of differences (b - a +
    1) / 2), the size of a group, its stratum, and the true mean."""

    totals: FloatArray
    size: int
    strata: npt.NDArray[np.int64]
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


def decide_by_bets(
    differences: FloatArray, level: float = LEVEL
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """DifferenceBets for many runs at once, a row each: the sign that it gives to the mean (0: it
    never does), and after how many looks (all of them where it never does)."""
    n_runs, n_looks = differences.shape
    sides = np.tile([1.0, -1.0], (n_runs, 1))
    capital = Capital(np.zeros_like(sides), sides, n_looks, (1 - level) / 2)
    said, looks = np.zeros(n_runs, np.int64), np.full(n_runs, n_looks)
    for look in range(n_looks):
        capital.add(differences[:, look, None])
        won = capital.has_won
        is_new = (said == 0) & won.any(axis=1)
        said[is_new], looks[is_new] = np.where(won[is_new, 0], 1, -1), look + 1
    return said, looks


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


def stop_by_bets(runs: Runs) -> Stops:
    """Stops each run when bets on its differences are won."""
    said, looks = decide_by_bets(2 * runs.totals / runs.size - 1)
    is_wrong = (said != 0) & (said != np.sign(runs.truth - 0.5))
    n_looks = runs.totals.shape[1]
    return Stops(len(said), int(np.count_nonzero(said)), int(is_wrong.sum()), looks / n_looks)


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


def differences(random: np.random.Generator, runs: int, up: float, down: float, n: int = N) -> Runs:
    """Pairs of zeros and ones of which shares go up and down, as (b - a + 1) / 2."""
    change = random.choice((1.0, 0.5, 0.0), p=(up, 1 - up - down, down), size=(runs, n))
    return Runs(change, 1, np.zeros(n, np.int64), 0.5 + (up - down) / 2)


def skewed(random: np.random.Generator, runs: int, n: int) -> Runs:
    """Differences of +0.1 that now and then are -1, and 0 on average."""
    change = random.choice((0.55, 0.0), p=(10 / 11, 1 / 11), size=(runs, n))
    return Runs(change, 1, np.zeros(n, np.int64), 0.5)


def opposed(random: np.random.Generator, runs: int, n: int, size: int = 1) -> Runs:
    """Two strata that take turns: in one of them b is better, in the other one as much worse.
    Groups of `size` are quite alike."""
    strata = np.arange(n) % 2
    shares = np.broadcast_to(np.where(strata, 0.7, 0.3), (runs, n))
    if size > 1:
        shares = random.beta(shares, 1 - shares)
    return Runs(random.binomial(size, shares).astype(np.float64), size, strata, 0.5)


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
    "compare, 200 answers: no difference": (
        lambda random, n: differences(random, n, 0.15, 0.15, 200),
        None,
    ),
    "compare, 200 answers: +0.15": (lambda random, n: differences(random, n, 0.3, 0.15, 200), None),
    "compare, 200 skewed: no difference": (lambda random, n: skewed(random, n, 200), None),
    "compare, 2,000 skewed: no difference": (lambda random, n: skewed(random, n, N), None),
    "compare, opposed strata": (lambda random, n: opposed(random, n, N), None),
    "compare, opposed contexts of 5": (lambda random, n: opposed(random, n, 400, 5), None),
}


def simulate(n_runs: int, only: str) -> None:
    print(
        f"{f'{n_runs} runs of {N} answers':<38}{'stopped':>9}{'wrong':>8}{'median at':>11}   "
        "plain interval at every look: stopped, wrong"
    )
    for name, (draw, width) in SCENARIOS.items():
        if only not in name:
            continue
        random, found = np.random.default_rng(3), (list[Stops](), list[Stops]())
        for start in range(0, n_runs, RUNS_AT_ONCE):
            runs = draw(random, min(RUNS_AT_ONCE, n_runs - start))
            found[0].append(
                stop_by_bets(runs)
                if width is None
                else stop(confidence_sequences(runs), runs.truth, width)
            )
            found[1].append(stop(plain_intervals(runs), runs.truth, width))
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
            f"{name:<38}{ours.stopped / ours.n:>9.1%}{ours.wrong / ours.n:>8.2%}"
            f"{np.median(ours.shares):>11.0%}   {plain.stopped / plain.n:.1%}, "
            f"{plain.wrong / plain.n:.1%}",
            flush=True,
        )


class Replayed(NamedTuple):
    """A question to a labelled file, and what replays in random orders did: how many `stopped`
    before the last unit, how many of those said otherwise than the whole file, and the units used
    (a median over all orders). `whole` is the decision of the interval of a fixed size on all
    units, which is also that of an order that does not stop."""

    name: str
    n_units: int
    whole: str
    orders: int
    stopped: int
    unequal: int
    used: float

    @property
    def saved(self) -> float:
        return 1 - self.used / self.n_units

    def __str__(self) -> str:
        return (
            f"{self.name:<84}{self.n_units:>6}{self.whole:>14}{self.stopped / self.orders:>9.0%}"
            f"{self.unequal:>9}{self.used:>8.0f}{self.saved:>8.0%}"
        )


Answers = list[tuple[str, str, float]]  # the item, the system, people's label as a share


def labelled_files(folder: Path) -> Iterator[tuple[str, Answers]]:
    """The answers of each file by each metric that people labelled."""
    for preset, file, system_column in (
        ("evouna", "evouna_NQ_300.json", None),  # a column a system
        ("begin", "begin_dev_wow.tsv", "model_name"),
        ("topical_chat", "topical_chat_180.json", "system_id"),
    ):
        for metric in PRESETS[preset] if (folder / file).exists() else ():
            _, labelling = find_preset(preset, metric)
            if system_column is not None:
                columns = labelling.columns | {"task": system_column}
                labelling = labelling.model_copy(update={"columns": columns})
            low, high = labelling.scale or (0.0, 1.0)
            answers = []
            for row in read_labelled(folder / file, labelling, (low, high)):
                system = row.fields.get("task") or row.id.partition("-")[2].partition("-")[2]
                given = [label for label in row.people if label is not None]
                share = (sum(given) / len(given) - low) / (high - low)
                answers.append((row.cluster, system, share))
            yield f"{preset} {metric}", answers


def replays(folder: Path, n: int) -> Iterator[Replayed]:
    for name, answers in labelled_files(folder):
        for width in (0.1, 0.15, 0.2):
            yield replay_width(f"{name} +-{width} of the scale", answers, width, n)
        yield from replay_pairs(name, answers, n)


def replay_pairs(name: str, answers: Answers, n: int) -> Iterator[Replayed]:
    """Each two systems on the items that both answered."""
    by_item = {(item, system): share for item, system, share in answers}
    items = dict.fromkeys(item for item, _, _ in answers)
    for a, b in combinations(sorted({system for _, system, _ in answers if system}), 2):
        both = [item for item in items if (item, a) in by_item and (item, b) in by_item]
        if len(both) >= FEWEST:
            of_a, of_b = (np.array([by_item[item, one] for item in both]) for one in (a, b))
            yield replay_compare(f"{name}: {a}, {b}", of_a, of_b, n)


def replay_width(name: str, answers: Answers, width: float, n: int) -> Replayed:
    """Answers to one item stay together; those to items with fewer answers count too."""
    by_item: dict[str, list[float]] = {}
    for item, _, share in answers:
        by_item.setdefault(item, []).append(share)
    groups = list(by_item.values())
    largest, whole = max(map(len, groups)), float(np.mean([share for _, _, share in answers]))
    random, used, unequal = np.random.default_rng(5), [], 0
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
        is_close = halves <= width
        first = int(is_close.argmax()) if is_close.any() else len(groups) - 1
        used.append(int(np.cumsum(sizes)[first]))
        unequal += bool(is_close.any() and abs(means[first] - whole) > halves[first])
    n_units = sum(map(len, groups))
    stopped = sum(one < n_units for one in used)
    return Replayed(
        name, n_units, f"{whole:.3f}", n, stopped, unequal, float(np.median(used))
    )  # fmt: skip


def replay_compare(name: str, a: FloatArray, b: FloatArray, n: int) -> Replayed:
    found = difference_interval(a, b)
    whole = 0 if found is None or found.low <= 0 <= found.high else 1 if found.low > 0 else -1
    random = np.random.default_rng(5)
    orders = np.array([random.permutation(a.size) for _ in range(n)])
    said, looks = decide_by_bets((b - a)[orders])
    is_early = looks < a.size
    return Replayed(
        name, a.size, {-1: "the first", 0: "undecided", 1: "the second"}[whole], n,
        int(is_early.sum()), int((is_early & (said != whole)).sum()), float(np.median(looks)),
    )  # fmt: skip


def report(kind: str, found: Sequence[Replayed]) -> None:
    """What was saved where the whole file decides, and how often a stop said otherwise."""
    decided = [one for one in found if one.whole != "undecided"]
    equal = [one.saved for one in decided if not one.unequal]
    often = [o.saved for o in decided if not o.unequal and o.stopped > o.orders / 2]
    print(
        f"{kind}: {len(found)} questions, of which all units decide {len(decided)}; of "
        f"{sum(one.stopped for one in found)} stops {sum(one.unequal for one in found)} say "
        f"otherwise than all units. Where every stop says the same ({len(equal)}), the median "
        f"saving is {np.median(equal or [0.0]):.0%}, and {np.median(often or [0.0]):.0%} in the "
        f"{len(often)} of them that stop in most orders"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--only", default="", help="simulated runs whose name holds this")
    parser.add_argument("--replays", type=int, default=REPLAYS)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder judge-validation")
    wanted = parser.parse_args()
    if wanted.runs:
        simulate(wanted.runs, wanted.only)
    if not wanted.replays:
        return
    print(
        f"\n{wanted.replays} orders of each labelled file{'':<54}{'units':>6}{'all units say':>14}"
        f"{'stopped':>9}{'unequal':>9}{'used':>8}{'saved':>8}"
    )
    found = []
    for one in replays(wanted.data, wanted.replays):
        found.append(one)
        print(one, flush=True)
    of_means = [one for one in found if "+-" in one.name]
    for kind, some in ("means", of_means), ("comparisons", [o for o in found if o not in of_means]):
        if some:
            report(kind, some)


if __name__ == "__main__":
    main()
