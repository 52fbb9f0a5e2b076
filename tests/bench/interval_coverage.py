"""What `compare` and the report print as a 95 % interval, held against the truth; and how often a
comparison finds a difference where there is none. By kind of score, number of units, and interval.

    python -m tests.bench.interval_coverage [--draws 4000]

Coverage is a share of draws, whose own standard error is 0.34 points at 4,000 draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from memray_eval.analysis.statistics import (
    Interval,
    Settings,
    bca_interval,
    bootstrap_means,
    difference_interval,
    jackknife_means,
    mean_interval,
    paired,
)
from memray_eval.ports import FloatArray

SIZES = (30, 100, 300)
RESAMPLES = 500
Draw = Callable[[np.random.Generator, int], FloatArray]


def _of(scores: tuple[float, ...], shares: tuple[float, ...]) -> tuple[Draw, float]:
    return lambda random, n: random.choice(scores, p=shares, size=n), float(np.dot(scores, shares))


VALUES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda random, n: random.normal(size=n), 0.0),
    "shares near 1": (lambda random, n: random.beta(4.0, 1.5, size=n), 4.0 / 5.5),
    "ratings 1-5": _of((1, 2, 3, 4, 5), (0.05, 0.1, 0.2, 0.35, 0.3)),
    "changes of ratings": _of((-2, -1, 0, 1, 2), (0.03, 0.15, 0.5, 0.25, 0.07)),
    "skewed (exponential)": (lambda random, n: random.exponential(size=n), 1.0),
    "0 and 1, half": _of((0, 1), (0.5, 0.5)),
    "0 and 1, 9 in 10": _of((0, 1), (0.1, 0.9)),
}
FLIPS = ((0.05, 0.05), (0.1, 0.02), (0.2, 0.1), (0.3, 0.3))


def covered(found: Interval | None, truth: float) -> bool:
    return found is not None and found.low <= truth <= found.high


def means(draws: int) -> None:
    print(
        f"{'mean of':<24}{'n':>5}  {'Student or Wilson':>18}  {'BCa, expanded':>14}  "
        f"{'BCa as scipy':>13}"
    )
    for name, (draw, truth) in VALUES.items():
        for n in SIZES:
            random, hits = np.random.default_rng(1), np.zeros(3)
            for seed in range(draws):
                values = draw(random, n).astype(np.float64)
                how = Settings(bootstrap=True, resamples=RESAMPLES, seed=seed)
                plain = bca_interval(
                    bootstrap_means(values, None, how),
                    float(values.mean()),
                    jackknife_means(values),
                )
                hits += [
                    covered(one, truth)
                    for one in (mean_interval(values), mean_interval(values, None, how), plain)
                ]
            print(
                "{:<24}{:>5}  {:>18.1%}  {:>14.1%}  {:>13.1%}".format(name, n, *hits / draws),
                flush=True,
            )


def flips(draws: int) -> None:
    print(f"\n{'0/1 pairs: up, down':<24}{'n':>5}  {'Tango':>18}  {'Student':>14}")
    for up, down in FLIPS:
        for n in SIZES:
            random, hits = np.random.default_rng(2), np.zeros(2)
            for _ in range(draws):
                change = random.choice((1.0, -1.0, 0.0), p=(up, down, 1 - up - down), size=n)
                a, b = np.where(change < 0, 1.0, 0.0), np.where(change > 0, 1.0, 0.0)
                hits += [
                    covered(difference_interval(a, b), up - down),
                    covered(mean_interval(change), up - down),
                ]
            print(
                f"{f'{up:.0%}, {down:.0%}':<24}{n:>5}  {hits[0] / draws:>18.1%}  "
                f"{hits[1] / draws:>14.1%}",
                flush=True,
            )


def clustered(draws: int) -> None:
    """Users of whom each has 1 to 9 units, and who differ as much as their units do."""
    print(f"\n{'clustered mean, users':<24}{'':>5}  {'clustered':>18}  {'plain':>14}")
    for users in (10, 30, 100):
        random, hits = np.random.default_rng(3), np.zeros(2)
        for _ in range(draws):
            clusters = np.repeat(np.arange(users), random.integers(1, 10, size=users))
            values = random.normal(size=users)[clusters] + random.normal(size=clusters.size)
            hits += [
                covered(mean_interval(values, clusters), 0.0),
                covered(mean_interval(values), 0.0),
            ]
        print(f"{users:<24}{'':>5}  {hits[0] / draws:>18.1%}  {hits[1] / draws:>14.1%}", flush=True)


def found_by_chance(draws: int) -> None:
    print(f"\n{'found at p <= 0.05':<24}{'n':>5}  {'plain':>18}  {'clustered by 5':>14}")
    for name, (draw, _) in VALUES.items():
        for n in SIZES[:2]:
            random, hits = np.random.default_rng(4), np.zeros(2)
            for seed in range(draws):
                a, b = draw(random, n).astype(np.float64), draw(random, n).astype(np.float64)
                how = Settings(resamples=RESAMPLES, seed=seed)
                hits += [
                    (paired(a, b, clusters, how).p_value or 0.0) <= 0.05
                    for clusters in (None, np.arange(n) // 5)
                ]
            print(
                f"{name:<24}{n:>5}  {hits[0] / draws:>18.1%}  {hits[1] / draws:>14.1%}", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=4000)
    wanted = parser.parse_args().draws
    for measure in (means, flips, clustered, found_by_chance):
        measure(wanted)


if __name__ == "__main__":
    main()
