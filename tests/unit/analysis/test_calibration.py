"""Judges against people: figures against hand cases, brute force and scipy; intervals, curves,
flips, the suggestion."""

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.analysis.calibration import (
    AdjustedMean,
    RaterF1,
    Unit,
    UnitColumns,
    adjusted_mean,
    alpha_interval,
    alpha_nominal,
    alpha_ordinal,
    calibrate_judge,
    compare_raters,
    estimate_with_intervals,
    macro_f1,
    people_agreement,
    rescale,
    spearman,
    suggest_judge,
    to_categories,
    weighted_kappa,
)
from memray_eval.ports import FloatArray
from memray_eval.report.calibration_console import whether_usable

NAN = np.nan
# Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), part C: four observers, twelve
# units, gaps.
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
).T
PAIRS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=3, max_size=30)


def units(pairs: list[tuple[float, float | None]], **more: Any) -> list[Unit]:
    return [
        Unit(id=str(n), people=(human,), judge=judge, cluster=str(n), **more)
        for n, (human, judge) in enumerate(pairs)
    ]


def test_krippendorffs_published_example() -> None:
    assert alpha_nominal(OBSERVERS) == pytest.approx(0.743, abs=5e-4)
    assert alpha_ordinal(OBSERVERS) == pytest.approx(0.815, abs=5e-4)
    assert alpha_interval(OBSERVERS) == pytest.approx(0.849, abs=5e-4)


def brute_alpha(ratings: FloatArray, metric: str) -> float:
    """From the definition: coincidences of all pairs of values within units."""
    values = sorted(set(ratings.ravel()))
    column = {value: n for n, value in enumerate(values)}
    seen = np.zeros((len(values), len(values)))
    for row in ratings:
        for left, other in itertools.permutations(row, 2):
            seen[column[left], column[other]] += 1 / (len(row) - 1)
    counts = seen.sum(axis=1)

    def distance(c: int, k: int) -> float:
        if metric == "nominal":
            return float(c != k)
        if metric == "interval":
            return float((values[c] - values[k]) ** 2)
        c, k = min(c, k), max(c, k)
        return float((counts[c : k + 1].sum() - (counts[c] + counts[k]) / 2) ** 2)

    apart = np.array([[distance(c, k) for k in range(len(values))] for c in range(len(values))])
    by_chance = (np.outer(counts, counts) * apart).sum() / (counts.sum() - 1)
    return float(1 - (seen * apart).sum() / by_chance) if by_chance else NAN


@given(PAIRS)
def test_alpha_is_the_coincidence_matrix_one(pairs: list[tuple[int, int]]) -> None:
    ratings = np.array(pairs, dtype=float)
    for alpha in (alpha_nominal, alpha_ordinal, alpha_interval):
        metric = alpha.__name__.removeprefix("alpha_")
        assert alpha(ratings) == pytest.approx(brute_alpha(ratings, metric), nan_ok=True)


@given(PAIRS)
def test_spearman_is_scipys(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs, dtype=float).T
    expected = scipy.stats.spearmanr(x, y).statistic if np.ptp(x) and np.ptp(y) else NAN
    assert spearman(np.column_stack([x, y])) == pytest.approx(expected, nan_ok=True)


@given(PAIRS)
def test_kappa_is_cohens_with_quadratic_weights(pairs: list[tuple[int, int]]) -> None:
    ratings = np.array(pairs, dtype=float)
    n, weights = len(pairs), np.array([[(i - j) ** 2 for j in range(1, 6)] for i in range(1, 6)])
    table = np.array([[pairs.count((i, j)) for j in range(1, 6)] for i in range(1, 6)])
    chance = (np.outer(table.sum(axis=1), table.sum(axis=0)) * weights).sum() / n
    expected = 1 - (table * weights).sum() / chance if chance else NAN
    assert weighted_kappa(ratings) == pytest.approx(expected, nan_ok=True)


def test_scales_and_categories() -> None:
    assert rescale(np.array([1.0, 3.0, 5.0]), (1, 5), (0, 1)).tolist() == [0.0, 0.5, 1.0]
    assert to_categories(np.array([0.0, 0.49, 0.5, 1.0]), (0, 1)).tolist() == [0, 0, 1, 1]
    assert to_categories(np.array([1.0, 2.33, 2.5, 3.0]), (1, 3)).tolist() == [0, 1, 2, 2]


def test_the_judge_is_put_on_the_people_scale() -> None:
    calibration = calibrate_judge(
        units([(1, 1), (2, 3), (3, 5), (1, 3), (2, None)]), "j", (1, 5), (1, 3), draws=50
    )
    assert (calibration.n, calibration.n_scored, calibration.coverage) == (5, 4, 0.8)
    # 3 of 1-5 is 2 of 1-3, where people said 1
    assert calibration.figures["bias"].value == pytest.approx(0.25)
    assert calibration.figures["exact"].value == 0.75
    assert {"exact", "bias", "calibration_error", "flip_rate"} <= calibration.figures.keys()
    assert calibration.figures["flip_rate"].value is None
    expected = [(1, 1, 1), (2, 2, 1.5), (1, 3, 3)]
    assert [(point.n, point.judge, point.people) for point in calibration.curve] == expected
    assert calibration.figures["calibration_error"].value == pytest.approx(0.25)


def test_a_curve_by_confidence() -> None:
    sure = units([(1, 1.0)] * 3 + [(0, 1.0)], confidence=0.95)
    unsure = units([(1, 1.0), (0, 1.0)], confidence=0.55)
    calibration = calibrate_judge([*sure, *unsure], "j", (0, 1), (0, 1), draws=20)
    assert calibration.curve_by == "confidence"
    expected = [(2, 0.55, 0.5), (4, pytest.approx(0.95), 0.75)]
    assert [(point.n, point.judge, point.people) for point in calibration.curve] == expected
    assert calibration.figures["calibration_error"].value == pytest.approx((2 * 0.05 + 4 * 0.2) / 6)


def test_flips_are_pairs_of_repeats_that_differ() -> None:
    repeated = [
        *units([(1, 1)] * 3, repeats=(1, 1)),
        *units([(0, 1)], repeats=(0, 1)),
        *units([(1, 1)], repeats=(1, 1, 0)),
        *units([(1, 1)], repeats=(1,)),
    ]
    figures = calibrate_judge(repeated, "j", (0, 1), (0, 1), draws=20).figures
    assert figures["flip_rate"].value == pytest.approx((1 + 2 / 3) / 5)


def test_what_no_score_tells_is_none_and_not_zero() -> None:
    same = calibrate_judge(units([(0, 1), (1, 1), (1, 1)]), "j", (0, 1), (0, 1), draws=20)
    assert (same.figures["spearman"].value, same.figures["kappa"].value) == (None, 0.0)
    nothing = calibrate_judge(units([(0, None), (1, None)]), "j", (0, 1), (0, 1), draws=5)
    assert (nothing.coverage, nothing.curve) == (0.0, ())
    assert {figure.value for figure in nothing.figures.values()} == {None}


@pytest.mark.heavy
def test_intervals_cover_the_truth_95_percent_of_the_time() -> None:
    """Of 60 responses that people rate 1-5 and a judge as they do for six in ten, else a step
    apart."""
    random, nothing, names = np.random.default_rng(7), np.full(60, NAN), [str(n) for n in range(60)]

    def rated(n: int) -> FloatArray:
        people = random.integers(1, 6, size=n)
        judge = np.where(random.random(n) < 0.6, people, people + random.choice([-1, 1], size=n))
        return np.column_stack([people, judge]).astype(np.float64)

    truth, covered = weighted_kappa(rated(1_000_000)), 0
    for _ in range(800):
        table = UnitColumns(rated(60), nothing, nothing)
        statistics = {"kappa": lambda drawn: weighted_kappa(drawn.ratings)}
        figure = estimate_with_intervals(statistics, table, names, draws=200)["kappa"]
        covered += figure.low <= truth <= figure.high
    assert 0.93 <= covered / 800 <= 0.97


def test_clusters_widen_intervals() -> None:
    alone = units([(n % 2, 1.0) for n in range(40)])
    together = [unit.model_copy(update={"cluster": str(n % 2)}) for n, unit in enumerate(alone)]

    def width(rated: list[Unit]) -> float:
        figure = calibrate_judge(rated, "j", (0, 1), (0, 1), draws=200).figures["exact"]
        return figure.high - figure.low

    assert width(together) > 2 * width(alone)


def test_peoples_own_agreement() -> None:
    rows = [(1, 1, 2), (2, None, 2), (3, 3, 3)]
    rated, lone = [unit(n, None, *row) for n, row in enumerate(rows)], unit(9, None, 1, None, None)
    agreement = people_agreement([*rated, lone], (1, 3), draws=20)
    assert (agreement.n, agreement.raters) == (3, 3)
    assert agreement.figures["exact"].value == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert "bias" not in agreement.figures
    assert people_agreement([lone], (1, 3)) is None


@pytest.mark.parametrize(
    ("n", "n_clusters", "may_be_used"),
    [(2, 2, False), (9, 9, False), (12, 3, False), (12, 4, True)],
)
def test_a_judge_of_few_labels_is_not_to_be_used(
    n: int, n_clusters: int, may_be_used: bool
) -> None:
    labels = [float(k // n_clusters % 2) for k in range(n)]
    rated = units([(label, label) for label in (1.0, *labels[1:])])
    rated = [of.model_copy(update={"cluster": str(k % n_clusters)}) for k, of in enumerate(rated)]
    judge = calibrate_judge(rated, "j", (0, 1), (0, 1), draws=100)
    assert judge.may_be_used == may_be_used
    sentence = " ".join(whether_usable(judge).split())
    few = f"{n} labels in {n_clusters} clusters; 10 labels in 4 clusters are needed."
    assert sentence.endswith(few) != may_be_used
    assert judge.model_copy(update={"n_clusters": None}).may_be_used == (n >= 10)


def test_the_suggestion() -> None:
    truth = [float(n % 2) for n in range(60)]

    def trial(name: str, is_right: Callable[[int], bool], first: int = 0) -> Any:
        rated = units([(of, of if is_right(n) else 1 - of) for n, of in enumerate(truth)])
        gappy = [of.model_copy(update={"judge": None}) for of in rated[:first]]
        rated = [*gappy, *rated[first:]]
        return calibrate_judge(rated, name, (0, 1), (0, 1), draws=200), rated

    good, like_it = trial("good", lambda n: n % 10 > 0), trial("like_it", lambda n: n % 10 != 5)
    poor, gappy = trial("poor", lambda n: n % 10 > 2), trial("gappy", lambda n: True, 30)
    chance = trial("chance", lambda n: float(n % 3 == 0) == truth[n])
    suggestion = suggest_judge([good, like_it, poor, chance, gappy], (0, 1), (0, 1))
    assert suggestion.judge == "good"
    assert "cannot tell it from like_it:" in suggestion.reason
    above = suggest_judge([good, poor], (0, 1), (0, 1)).reason
    assert above.endswith("above every other judge that can be suggested")
    assert suggest_judge([chance, gappy], (0, 1), (0, 1)).judge is None


def adjust(judge: Any, people: Any, weights: Any = None, clusters: Any = None) -> AdjustedMean:
    n = len(judge)
    return adjusted_mean(
        "c",
        np.array(judge, float),
        np.array(people, float),
        np.ones(n) if weights is None else np.array(weights, float),
        np.arange(n) if clusters is None else np.array(clusters),
        (0.0, 1.0),
    )


def test_it_is_the_papers_formula() -> None:
    rng = np.random.default_rng(0)
    judge = rng.integers(0, 2, 200).astype(float)
    people = np.where(rng.random(200) < 0.8, judge, 1 - judge)
    people[40:] = np.nan
    adjusted = adjust(judge, people)
    # lambda = Cov(people, judge) / ((1 + n/N) Var(judge)) of separate samples; here the labelled
    # are among all, so that the influence of one is on both means
    own, all_ = judge[:40] - judge[:40].mean(), judge - judge.mean()
    to_judge = np.concatenate([own, np.zeros(160)]) / 40 * np.sqrt(40 / 39)
    to_people = np.concatenate([people[:40] - people[:40].mean(), np.zeros(160)]) / 40
    gained = all_ / 200 * np.sqrt(200 / 199) - to_judge
    tuning = -(to_people * np.sqrt(40 / 39)) @ gained / (gained @ gained)
    assert adjusted.tuning == pytest.approx(tuning)
    assert 0 < tuning < 1
    expected = people[:40].mean() + tuning * (judge.mean() - judge[:40].mean())
    assert adjusted.value == pytest.approx(expected)
    assert (adjusted.n, adjusted.n_labels, adjusted.raw) == (200, 40, pytest.approx(judge.mean()))
    labels = [1.0] * 10 + [0.0] * 10 + [np.nan] * 20
    weighted = adjust([0.5] * 40, labels, weights=[3.0] * 10 + [1.0] * 30)
    assert weighted.value == pytest.approx(0.75)


@pytest.mark.parametrize("is_clustered", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_the_interval_covers_as_it_promises(is_clustered: bool, is_weighted: bool) -> None:
    rng, covered, raw = np.random.default_rng(1), 0, 0
    for _ in range(600):
        clusters = np.arange(600) // (3 if is_clustered else 1)
        hard = rng.random(600) < 0.4
        truth = (
            rng.random(200)[clusters // (1 if is_clustered else 3)] * 0.5 + rng.random(600) * 0.5
        )
        truth = (truth + 0.15 > 0.5 + 0.3 * hard).astype(float)
        judge = np.where(rng.random(600) < np.where(hard, 0.3, 0.1), 1.0, truth)
        chance = np.where(hard, 0.4, 0.1) if is_weighted else np.full(600, 0.2)
        drawn = rng.random(600) < chance
        adjusted = adjust(judge, np.where(drawn, truth, np.nan), 1 / chance, clusters)
        covered += adjusted.low <= TRUTH <= adjusted.high
        raw += abs(adjusted.raw - TRUTH) < (adjusted.high - adjusted.low) / 2
    assert 0.925 <= covered / 600 <= 0.985
    assert raw / 600 < 0.8


# of two halves of random numbers, above 0.35 (1 - 2 x 0.35^2) or, of hard ones, 0.65 (2 x 0.35^2)
TRUTH = 0.6 * 0.755 + 0.4 * 0.245


@pytest.mark.parametrize(
    ("people", "reason"),
    [
        ([1, 0] * 4, "labels: 8 (at least 10 are needed), in clusters: 8 (at least 4)"),
        ([1], "labels: 1 (at least 10 are needed), in clusters: 1 (at least 4)"),
        ([1] * 12, "all 12 labels are the same"),
    ],
)
def test_labels_that_tell_nothing_give_no_figure(people: list[float], reason: str) -> None:
    adjusted = adjust([0.5] * 20, people + [np.nan] * (20 - len(people)))
    assert reason in adjusted.refused
    assert (adjusted.value, adjusted.raw) == (None, 0.5)


def unit(number: int, judge: float | None, *labels: float | None, raters: str = "") -> Unit:
    names = raters.split() or [f"p{at}" for at in range(len(labels))]
    people = tuple(None if label is None else float(label) for label in labels)
    cluster = f"c{number // 2}"
    return Unit(id=str(number), people=people, judge=judge, cluster=cluster, raters=tuple(names))


def published(own: Sequence[bool], others: Sequence[Sequence[bool]]) -> float | None:
    """compute_metrics_for_rater_by_class of healthbench_meta_eval.py: f1 balanced."""
    agreed: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    for label, of_others in zip(own, others, strict=True):
        for other in of_others:
            agreed["precision", label].append(label == other)
            agreed["recall", other].append(label == other)
    scores = []
    for kind in (True, False):
        if not agreed["precision", kind] or not agreed["recall", kind]:
            return None
        precision, recall = (
            sum(agreed[name, kind]) / len(agreed[name, kind]) for name in ("precision", "recall")
        )
        both = precision + recall
        scores.append(2 * precision * recall / both if both else 0.0)
    return sum(scores) / 2


def test_the_published_example() -> None:
    """test_compute_agreement_for_rater_by_class of simple-evals: pos 4/7, neg 2/5."""
    units = [unit(0, 1, True, True, False), unit(1, 0, True, False), unit(2, 1, False)]
    report = compare_raters({"judge": units}, (0, 1), (0, 1))
    (judge,) = report.judges
    assert (judge.rater, judge.n) == ("judge", 6)
    assert judge.macro_f1.value == pytest.approx((4 / 7 + 2 / 5) / 2, abs=1e-12)


def test_judges_and_people_agree_with_the_published_code() -> None:
    chance, names = random.Random(3), [f"p{number}" for number in range(6)]
    units, own, labels = [], list[bool](), list[list[bool]]()
    by_person: dict[str, tuple[list[bool], list[list[bool]]]] = {name: ([], []) for name in names}
    for number in range(300):
        truth, raters = chance.random() < 0.6, chance.sample(names, chance.randint(1, 4))
        votes = [truth if chance.random() < 0.8 else not truth for _ in raters]
        own.append(truth if chance.random() < 0.7 else not truth)
        labels.append(votes)
        for at, rater in enumerate(raters):
            by_person[rater][0].append(votes[at])
            by_person[rater][1].append(votes[:at] + votes[at + 1 :])
        units.append(unit(number, float(own[-1]), *votes, raters=" ".join(raters)))
    report = compare_raters({"a": units, "deaf": [u.model_copy(update={"judge": None})
                                                  for u in units]}, (0, 1), (0, 1))  # fmt: skip
    judge, deaf = report.judges
    assert judge.macro_f1.value == pytest.approx(published(own, labels), abs=1e-12)
    low, high = judge.macro_f1.low, judge.macro_f1.high
    assert low < (judge.macro_f1.value or 0) < high
    assert (deaf.n, deaf.macro_f1.value) == (0, None)
    expected = {name: published(*by_person[name]) for name in names}
    assert {p.rater: p.macro_f1.value for p in report.people} == pytest.approx(expected, abs=1e-12)
    n_pairs = {name: sum(map(len, by_person[name][1])) for name in names}
    assert {person.rater: person.n for person in report.people} == n_pairs
    mean = sum((expected[name] or 0) * n_pairs[name] for name in names) / sum(n_pairs.values())
    assert report.people_mean == pytest.approx(mean, abs=1e-12)


def test_what_is_undefined_is_no_figure() -> None:
    assert compare_raters({"j": [Unit(id="a", people=(1.0,), judge=1)]}, (0, 1), (0, 1)) is None
    assert np.isnan(macro_f1(np.array([True, True]), np.array([True, False])))
    report = compare_raters({"j": [unit(0, None, True, None)]}, (0, 1), (0, 1))
    assert report.people_mean is None
    assert report.people == (RaterF1(rater="p0", n=0, macro_f1=report.judges[0].macro_f1),)


def test_scales_are_cut_in_their_middle() -> None:
    units = [unit(n, 5.0 if n % 3 else 1.0, 4.0, 2.0 if n % 2 else 5.0) for n in range(12)]
    report = compare_raters({"j": units}, (1, 5), (1, 5))
    expected = published([n % 3 != 0 for n in range(12)], [[True, n % 2 == 0] for n in range(12)])
    assert report.judges[0].macro_f1.value == pytest.approx(expected)
