"""How often the interval of a score that people's labels adjust holds the truth, and how far the
adjusted score is from people's, beside the raw one.

    python -m tests.bench.adjusted_scores [--draws 2000] [--only TEXT] [--judges rules]

First a simulation: runs of 1,000 answers, or of 200 clusters of 5, judged by a judge of known
sensitivity and specificity (Rogan-Gladen, labels of other answers), or on a graded scale, or with
labels drawn among the run's own answers, unsure ones more often (PPI++). Within a cluster both what
is right and how the judge errs are alike. Coverage has a standard error of 0.5 points at 2,000
draws. Then the answers of ../shared/data/judge-validation/evouna_NQ_300.json: 200 of them are
labelled, the others held back, 200 times; the judge's verdicts come of `memray-eval calibrate`."""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

import memray_eval.cli  # noqa: F401 (its commands join the app)
from memray_eval.analysis.adjusted.estimators import (
    MIN_YOUDEN,
    Labelled,
    Verdicts,
    prediction_powered,
    rogan_gladen,
    youden,
)
from memray_eval.analysis.adjusted.labelled_verdicts import JudgeCalibration, read_calibrations
from memray_eval.analysis.statistics import Clusters, Interval, mean_interval
from memray_eval.cli.app import app
from memray_eval.ports import FloatArray
from tests.conftest import REPOSITORY

N, CLUSTER = 1000, 5  # answers of a run, and of a cluster
PREVALENCES, LABELS = (0.2, 0.5, 0.8), (50, 100, 200, 500)
JUDGES = ((0.9, 0.9), (0.95, 0.7), (0.7, 0.7))  # sensitivity, specificity
ALIKE = 0.2  # the correlation within a cluster of what is right, and of how the judge errs
DATA = REPOSITORY.parent / "shared/data/judge-validation/evouna_NQ_300.json"


class Outcome(NamedTuple):
    """Of one setting: its name, the share of draws in which each interval held the truth, their
    mean widths, and how many draws were refused."""

    setting: str
    raw: float
    adjusted: float
    raw_width: float
    adjusted_width: float
    refused: int


class Answers(NamedTuple):
    people: FloatArray
    judge: FloatArray
    clusters: Clusters


def shares(random: np.random.Generator, mean: float, size: int, clusters: Clusters) -> FloatArray:
    """A share for each unit: `mean` throughout, or drawn for each cluster."""
    if np.unique(clusters).size == size:
        return np.full(size, mean)
    left = (1 - ALIKE) / ALIKE
    drawn = random.beta(mean * left, (1 - mean) * left, size=int(clusters.max()) + 1)
    return np.asarray(drawn[clusters], np.float64)


def clusters_of(size: int, is_clustered: bool) -> Clusters:
    return np.arange(size) // (CLUSTER if is_clustered else 1)


def zeros_and_ones(
    random: np.random.Generator, size: int, is_clustered: bool, prevalence: float,
    judge: tuple[float, float],
) -> Answers:  # fmt: skip
    clusters = clusters_of(size, is_clustered)
    right = random.random(size) < shares(random, prevalence, size, clusters)
    said_right = shares(random, judge[0], size, clusters)
    said_wrong = shares(random, judge[1], size, clusters)
    said = random.random(size) < np.where(right, said_right, 1 - said_wrong)
    return Answers(right.astype(float), said.astype(float), clusters)


def graded(
    random: np.random.Generator, size: int, is_clustered: bool, noise: float
) -> tuple[Answers, float]:
    """Ratings 1-5 of people, as shares, and of a judge that is half a point too kind."""
    clusters = clusters_of(size, is_clustered)
    n_clusters = int(clusters.max()) + 1
    common = random.normal(size=n_clusters)[clusters] if is_clustered else 0.0
    taste = np.sqrt(ALIKE) * common + np.sqrt(1 - ALIKE if is_clustered else 1.0) * random.normal(
        size=size
    )
    edges = np.array([-1.2, -0.5, 0.3, 1.1])
    people = np.searchsorted(edges, taste) / 4
    judge = np.searchsorted(edges, taste + 0.5 + noise * random.normal(size=size)) / 4
    return Answers(people, judge, clusters), graded_mean(edges)


def graded_mean(edges: FloatArray) -> float:
    """What people give on average: of a normal taste, the mean of the rating that it falls into."""
    return float(sum(1 - NormalDist().cdf(edge) for edge in edges.tolist()) / 4)


def covers(found: Interval | None, truth: float) -> bool:
    return found is not None and found.low <= truth <= found.high


def width(found: Interval | None) -> float:
    return np.nan if found is None else found.high - found.low


def measure(
    setting: str, draws: Iterator[tuple[Interval | None, Interval | None, float]]
) -> Outcome:
    """`draws` are the raw interval, the adjusted one (None: refused), and the truth."""
    rows = [
        (covers(raw, truth), covers(adjusted, truth), width(raw), width(adjusted))
        for raw, adjusted, truth in draws
    ]
    table = np.array(rows, np.float64)
    kept = ~np.isnan(table[:, 3])
    refused = int((~kept).sum())
    if not kept.any():
        return Outcome(
            setting, table[:, 0].mean(), np.nan, np.nanmean(table[:, 2]), np.nan, refused
        )
    return Outcome(
        setting, table[:, 0].mean(), table[kept, 1].mean(), float(np.nanmean(table[:, 2])),
        float(table[kept, 3].mean()), refused,
    )  # fmt: skip


def by_rogan_gladen(
    draws: int, n_labels: int, is_clustered: bool, prevalence: float, judge: tuple[float, float]
) -> Iterator[tuple[Interval | None, Interval | None, float]]:
    random = np.random.default_rng([n_labels, is_clustered, int(100 * prevalence)])
    for _ in range(draws):
        run = zeros_and_ones(random, N, is_clustered, prevalence, judge)
        of = zeros_and_ones(random, n_labels, is_clustered, prevalence, judge)
        labels = Labelled(of.judge, of.people, of.clusters + N, np.ones(n_labels))
        raw = mean_interval(run.judge, run.clusters if is_clustered else None)
        is_refused = not youden(labels) >= MIN_YOUDEN
        found = None if is_refused else rogan_gladen(Verdicts(run.judge, run.clusters), labels)
        yield raw, found and found.interval, prevalence


def by_labels_like_them(
    draws: int, n_labels: int, is_clustered: bool, noise: float
) -> Iterator[tuple[Interval | None, Interval | None, float]]:
    random = np.random.default_rng([n_labels, is_clustered, int(100 * noise)])
    for _ in range(draws):
        run, truth = graded(random, N, is_clustered, noise)
        of, _ = graded(random, n_labels, is_clustered, noise)
        labels = Labelled(of.judge, of.people, of.clusters + N, np.ones(n_labels))
        raw = mean_interval(run.judge, run.clusters if is_clustered else None)
        yield raw, prediction_powered(Verdicts(run.judge, run.clusters), labels).interval, truth


def by_own_labels(
    draws: int, n_labels: int, is_clustered: bool, prevalence: float, judge: tuple[float, float]
) -> Iterator[tuple[Interval | None, Interval | None, float]]:
    """Labels of the run's own answers; what the judge calls wrong is drawn twice as often."""
    random = np.random.default_rng([n_labels, is_clustered, int(100 * prevalence), 1])
    for _ in range(draws):
        run = zeros_and_ones(random, N, is_clustered, prevalence, judge)
        wanted = np.where(run.judge > 0, 1.0, 2.0)
        chance = np.minimum(1.0, n_labels * wanted / wanted.sum())
        rows = np.flatnonzero(random.random(N) < chance)
        raw = mean_interval(run.judge, run.clusters if is_clustered else None)
        labels = Labelled(run.judge[rows], run.people[rows], run.clusters[rows], 1 / chance[rows])
        is_refused = np.ptp(labels.people) == 0
        verdicts = Verdicts(run.judge, run.clusters)
        found = None if is_refused else prediction_powered(verdicts, labels)
        yield raw, found and found.interval, prevalence


def settings(draws: int, only: str) -> Iterator[Outcome]:
    for is_clustered, judge, prevalence, n in product((False, True), JUDGES, PREVALENCES, LABELS):
        how = "clustered" if is_clustered else "independent"
        name = f"RG, {how}, se {judge[0]:.2f} sp {judge[1]:.2f}, right {prevalence:.0%}, {n} labels"
        if only in name:
            yield measure(name, by_rogan_gladen(draws, n, is_clustered, prevalence, judge))
    for is_clustered, noise, n in product((False, True), (0.3, 1.0), LABELS):
        how = "clustered" if is_clustered else "independent"
        name = f"PPI++, {how}, graded 1-5, noise {noise:.1f}, {n} labels"
        if only in name:
            yield measure(name, by_labels_like_them(draws, n, is_clustered, noise))
    for is_clustered, judge, prevalence, n in product(
        (False, True), JUDGES[:2], PREVALENCES[1:], LABELS[1:]
    ):
        how = "clustered" if is_clustered else "independent"
        name = f"PPI++, {how}, own, se {judge[0]:.2f} sp {judge[1]:.2f}, right {prevalence:.0%}, "
        name += f"{n} labels"
        if only in name:
            yield measure(name, by_own_labels(draws, n, is_clustered, prevalence, judge))


def simulate(draws: int, only: str) -> None:
    print(f"{'coverage of 95 % intervals':<62}{'raw':>7}{'adjusted':>10}{'width':>8}{'refused':>9}")
    outcomes = []
    for one in settings(draws, only):
        outcomes.append(one)
        print(
            f"{one.setting:<62}{one.raw:>7.1%}{one.adjusted:>10.1%}{one.adjusted_width:>8.3f}"
            f"{one.refused:>9}",
            flush=True,
        )
    biased = [one for one in outcomes if one.raw < 0.5 and one.refused < draws / 2]
    inside = [one for one in biased if 0.93 <= one.adjusted <= 0.97]
    print(
        f"\nwhere the raw interval covers under 50 %: the adjusted one covers 93-97 % in "
        f"{len(inside)} of {len(biased)} settings "
        f"({min((one.adjusted for one in biased), default=np.nan):.1%} to "
        f"{max((one.adjusted for one in biased), default=np.nan):.1%})"
    )


class Errors(NamedTuple):
    """Mean absolute errors against people, over draws; NaN where it was refused."""

    raw: float
    rogan_gladen: float
    prediction_powered: float
    n_refused: int
    covered: float


def hold_back(known: JudgeCalibration, n_labels: int, draws: int) -> Errors:
    """Labels `n_labels` of the answers and adjusts the judge's mean of the others."""
    random = np.random.default_rng(7)
    judge, people, clusters = columns(known)
    rows = []
    for _ in range(draws):
        chosen = np.zeros(judge.size, np.bool_)
        chosen[random.choice(judge.size, n_labels, replace=False)] = True
        labels = Labelled(judge[chosen], people[chosen], clusters[chosen], np.ones(n_labels))
        run, truth = Verdicts(judge[~chosen], clusters[~chosen]), float(people[~chosen].mean())
        by_labels = prediction_powered(run, labels)
        corrected = rogan_gladen(run, labels).value if youden(labels) >= MIN_YOUDEN else np.nan
        rows.append(
            (
                abs(float(run.judge.mean()) - truth),
                abs(corrected - truth),
                abs(by_labels.value - truth),
                covers(by_labels.interval, truth),
            )
        )
    table = np.array(rows, np.float64)
    refused = np.isnan(table[:, 1])
    of_rg = float(table[~refused, 1].mean()) if not refused.all() else np.nan
    return Errors(
        table[:, 0].mean(), of_rg, table[:, 2].mean(), int(refused.sum()), table[:, 3].mean()
    )


def columns(known: JudgeCalibration) -> tuple[FloatArray, FloatArray, Clusters]:
    judge = np.array([one.judge for one in known.verdicts])
    people = np.array([one.people for one in known.verdicts])
    _, clusters = np.unique([one.cluster for one in known.verdicts], return_inverse=True)
    return judge, people, clusters.astype(np.intp)


def calibrated(path: Path, judges: Sequence[str], limit: int | None) -> Iterator[JudgeCalibration]:
    """The judges' verdicts on the file's answers, as `calibrate --save` keeps them."""
    with tempfile.TemporaryDirectory() as folder:
        saved = f"{folder}/verdicts.json"
        with redirect_stdout(io.StringIO()):
            words = ["calibrate", str(path), "--preset", "evouna", "--judge", ",".join(judges)]
            words += ["--save", saved, *(["--limit", str(limit)] if limit else [])]
            app(words, standalone_mode=False)
        for one in read_calibrations([saved]):
            assert isinstance(one, JudgeCalibration)
            yield one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--only", default="", help="settings whose name holds this")
    parser.add_argument("--judges", default="rules")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--verdicts", type=Path, nargs="*", help="files of calibrate --save")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--limit", type=int, help="rows of the file")
    wanted = parser.parse_args()
    simulate(wanted.draws, wanted.only)
    known = [
        one
        for one in read_calibrations([str(path) for path in wanted.verdicts or ()])
        if isinstance(one, JudgeCalibration)
    ]
    if not known and wanted.data.exists():
        known = list(calibrated(wanted.data, wanted.judges.split(","), wanted.limit))
    for one in known:
        judge, people, _ = columns(one)
        n = min(wanted.labels, len(one.verdicts) // 2)
        found = hold_back(one, n, max(2, wanted.draws // 10))
        print(
            f"\n{one.labelled}, judged by {one.judge}: {len(one.verdicts)} answers, bias "
            f"{(judge - people).mean():+.3f}; {n} labels, mean absolute error against people on "
            f"the others: raw {found.raw:.4f}, Rogan-Gladen {found.rogan_gladen:.4f} (refused in "
            f"{found.n_refused}), PPI++ {found.prediction_powered:.4f} (its interval held people's "
            f"mean of them in {found.covered:.0%})"
        )


if __name__ == "__main__":
    main()
