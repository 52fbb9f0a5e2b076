"""Rubrics against labels: the split, causes of disagreement, chosen cases, and gains that are shown
where there are some and not where there is noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memray_eval.analysis.calibration import Unit
from memray_eval.analysis.improvement import (
    Apart,
    check_half,
    choose_cases,
    find_causes,
    lay_apart,
    measure_gains,
    split_clusters,
)
from memray_eval.errors import DataError

ONE_TO_FIVE, SHARES = (1.0, 5.0), (0.0, 1.0)


def units(pairs: list[tuple[float, float | None]], per_cluster: int = 1) -> list[Unit]:
    """Units of (label, judge's score)."""
    return [
        Unit(id=f"u{n}", people=(label,), judge=judge, cluster=f"c{n // per_cluster}",
             unscored="" if judge is not None else "refused")
        for n, (label, judge) in enumerate(pairs)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_split_is_of_whole_clusters_by_its_seed(seed: int) -> None:
    clusters = [f"c{n % 37}" for n in range(300)]
    held_back = split_clusters(clusters, seed)
    halves = [{c for c, own in zip(clusters, held_back, strict=True) if own == k} for k in (0, 1)]
    assert not halves[0] & halves[1]
    assert 145 <= sum(held_back) <= 160
    assert held_back == split_clusters(clusters, seed)
    assert held_back != split_clusters(clusters, seed + 1)


@pytest.mark.parametrize(
    ("pairs", "per_cluster", "message"),
    [
        ([(1.0, None), (5.0, None)] * 4, 1, r"has 8 labelled responses of 8 clusters; .* 10 of 4"),
        ([(1.0, None), (5.0, None)] * 10, 10, "20 labelled responses of 2 clusters"),
        ([(3.0, None)] * 20, 1, "all labels of the first half are 3, so that kappa and rho are un"),
    ],
)
def test_labels_that_say_too_little(
    pairs: list[tuple[float, float | None]], per_cluster: int, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        check_half("first", units(pairs, per_cluster))


def test_causes_by_size_verdict_label_and_group() -> None:
    pairs = [(3.0, 3.0), (3.0, 5.0), (4.0, 2.0), (3.0, None), (3.4, 3.0)]
    rows = lay_apart(units(pairs), ONE_TO_FIVE, ONE_TO_FIVE)
    causes = find_causes(rows, ["x", "x", "y", "y", "y"], ONE_TO_FIVE)
    found = {(cause.by, cause.name): (cause.n, cause.n_apart, cause.gap) for cause in causes}
    assert found == {
        ("size", "judge higher by 2"): (1, 1, 2.0),
        ("size", "judge lower by 2"): (1, 1, -2.0),
        ("no verdict", "refused"): (1, 1, None),
        ("label", "3"): (4, 2, pytest.approx((0 + 2 - 0.4) / 3)),
        ("label", "4"): (1, 1, -2.0),
        ("group", "x"): (2, 1, 1.0),
        ("group", "y"): (3, 2, pytest.approx(-1.2)),
    }
    assert {cause.example for cause in causes if cause.by == "no verdict"} == {"u3"}
    ungrouped = find_causes(rows, [""] * 5, ONE_TO_FIVE)
    assert not [cause for cause in ungrouped if cause.by == "group"]


def test_a_judge_on_another_scale_is_laid_on_peoples() -> None:
    (row,) = lay_apart(units([(2.0, 5.0)]), ONE_TO_FIVE, (1.0, 3.0))
    assert (row.label, row.judge, row.gap) == (2.0, 3.0, 1.0)


def test_cases_are_the_furthest_of_each_label_in_turn_and_one_of_a_cluster() -> None:
    pairs = [(1.0, 5.0), (1.0, 4.0), (1.0, 3.0), (5.0, 4.0), (5.0, 5.0), (3.0, None)]
    rows = [Apart(unit, unit.people[0] or 0.0, unit.judge) for unit in units(pairs)]
    assert [case.unit.id for case in choose_cases(rows, 4)] == ["u0", "u3", "u1", "u4"]
    together = [row._replace(unit=row.unit.model_copy(update={"cluster": "c"})) for row in rows]
    assert [case.unit.id for case in choose_cases(together, 4)] == ["u0"]
    assert math.isinf(rows[-1].gap)


def test_a_mended_bias_is_a_gain_by_kappa_or_by_rho() -> None:
    random = np.random.default_rng(3)
    labels = random.integers(1, 6, 120).astype(float).tolist()
    unfair = random.random(120) < 0.4
    before = units(
        [(label, 1.0 if low else label) for label, low in zip(labels, unfair, strict=True)]
    )
    after = units([(label, label) for label in labels])
    kappa, rho = measure_gains(before, after, ONE_TO_FIVE, ONE_TO_FIVE)
    assert (kappa.figure, rho.figure, kappa.n, kappa.coverage) == ("kappa", "spearman", 120, 1.0)
    assert kappa.is_shown
    assert (kappa.after.value, kappa.gain.value) == (
        1.0,
        pytest.approx(1 - (kappa.before.value or 0)),
    )
    means = [unit.model_copy(update={"people": (2.5,)}) for unit in before[:1]] + before[1:]
    assert measure_gains(means, after, ONE_TO_FIVE, ONE_TO_FIVE)[0].figure == "spearman"
    (worse, _) = measure_gains(after, before, ONE_TO_FIVE, ONE_TO_FIVE)
    assert not worse.is_shown
    assert (worse.gain.high or 0.0) < 0
    avoids = [unit.model_copy(update={"judge": None}) for unit in after[:20]] + after[20:]
    shy, _ = measure_gains(before, avoids, ONE_TO_FIVE, ONE_TO_FIVE)
    assert (shy.n, shy.is_shown, (shy.gain.low or 0.0) > 0) == (100, False, True)


def test_a_judge_of_one_score_has_no_kappa_to_gain() -> None:
    flat = units([(float(1 + n % 5), 3.0) for n in range(40)])
    _, rho = measure_gains(flat, flat, ONE_TO_FIVE, ONE_TO_FIVE)
    assert (rho.gain.value, rho.is_shown) == (None, False)


@pytest.mark.night
@pytest.mark.parametrize(("kind", "n", "per_cluster"), [("yes or no", 150, 5), ("means", 60, 1)])
def test_noise_shows_no_gain_in_95_of_100_draws(
    kind: str, n: int, per_cluster: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Labels as EVOUNA's (78 % right, five systems a question) and as Topical-Chat's (means of
    three people); the judge throws dice, under either rubric."""
    shown = 0
    for draw in range(100):
        random = np.random.default_rng(draw)
        scale = SHARES if kind == "yes or no" else (1.0, 3.0)
        labels = (
            (random.random(n) < 0.78).astype(float)
            if kind == "yes or no"
            else 1 + random.integers(0, 7, n) / 3
        )
        low, high = int(scale[0]), int(scale[1])
        before, after = (
            units(
                list(
                    zip(
                        labels.tolist(),
                        random.integers(low, high + 1, n).astype(float).tolist(),
                        strict=True,
                    )
                ),
                per_cluster,
            )
            for _ in range(2)
        )
        shown += measure_gains(before, after, scale, scale)[0].is_shown
    with capsys.disabled():
        print(f"\n{kind}: no gain shown in {100 - shown} of 100 draws of noise")
    assert shown <= 5
