"""Macro F1 of judges beside people: the published test's figures, a brute-force copy of the
published formula, and what is undefined."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from memray_eval.analysis.calibration import RaterF1, Unit, compare_raters, macro_f1


def unit(number: int, judge: float | None, *labels: bool | None, raters: str = "") -> Unit:
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
    assert report is not None
    (judge,) = report.judges
    assert (judge.rater, judge.n) == ("judge", 6)
    assert judge.macro_f1.value == pytest.approx((4 / 7 + 2 / 5) / 2, abs=1e-12)


def test_judges_and_people_agree_with_the_published_code() -> None:
    chance, names = random.Random(3), [f"p{number}" for number in range(6)]
    units, own, labels = [], list[bool](), list[list[bool]]()
    by_person: dict[str, tuple[list[bool], list[list[bool]]]] = {name: ([], []) for name in names}
    for number in range(300):
        truth, raters = chance.random() < 0.6, chance.sample(names, chance.randint(1, 4))
        said = [truth if chance.random() < 0.8 else not truth for _ in raters]
        own.append(truth if chance.random() < 0.7 else not truth)
        labels.append(said)
        for at, rater in enumerate(raters):
            by_person[rater][0].append(said[at])
            by_person[rater][1].append(said[:at] + said[at + 1 :])
        units.append(unit(number, float(own[-1]), *said, raters=" ".join(raters)))
    report = compare_raters({"a": units, "deaf": [u.model_copy(update={"judge": None})
                                                  for u in units]}, (0, 1), (0, 1))  # fmt: skip
    assert report is not None
    judge, deaf = report.judges
    assert judge.macro_f1.value == pytest.approx(published(own, labels), abs=1e-12)
    low, high = judge.macro_f1.low, judge.macro_f1.high
    assert low is not None
    assert high is not None
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
    assert report is not None
    assert report.people_mean is None
    assert report.people == (RaterF1(rater="p0", n=0, macro_f1=report.judges[0].macro_f1),)


def test_scales_are_cut_in_their_middle() -> None:
    units = [
        unit(n, 5.0 if n % 3 else 1.0, True, n % 2 == 0).model_copy(
            update={"people": (4.0, 2.0 if n % 2 else 5.0)}
        )
        for n in range(12)
    ]
    report = compare_raters({"j": units}, (1, 5), (1, 5))
    assert report is not None
    own = [n % 3 != 0 for n in range(12)]
    expected = published(own, [[True, n % 2 == 0] for n in range(12)])
    assert report.judges[0].macro_f1.value == pytest.approx(expected)
