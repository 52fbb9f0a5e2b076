"""What verdicts on pairs say of candidates and of their judge; strengths by the Bradley-Terry model
with ties: what they maximise, and where they end."""

from collections.abc import Iterator

import numpy as np
import pytest

from memray_eval.analysis.pairs import (
    PRIOR_SD,
    Criterion,
    Matches,
    PairSide,
    PairwiseReport,
    fit_strengths,
    measure_pairs,
    ranks_of,
    read_verdicts,
)
from memray_eval.metrics._evidence import VALUES
from memray_eval.report.comparison_console import format_strength, leader_in_words, render_pairs
from memray_eval.types import PAIR, Candidate, Pair, Record, Score, Unanswered
from tests.build import build_record, build_sample, build_score

A, B = "ada", "bo"


def row(
    number: int,
    first: str,
    second: str,
    verdict: str | None,
    unanswered: tuple[Unanswered, ...] = (),
    lengths: tuple[int, int] = (10, 10),
) -> Record:
    """A record of a pairwise run: who stood first, and what the judge preferred (None: an
    error)."""
    pair = Pair(
        sample_id=f"s{number}", first=first, second=second, other="x" * lengths[1],
        unanswered=unanswered,
    )  # fmt: skip
    if unanswered:
        score = Score(metric="preference", status="not_applicable", error="no answer to compare")
    elif verdict is None:
        score = build_score("preference", None, error="Unavailable")
    else:
        parts = {part: float(part == verdict) for part in VALUES}
        score = build_score("preference", VALUES[verdict], parts=parts, judge="j/m")
    sample = build_sample(id=f"{number} {first} {second}", metadata={PAIR: pair.model_dump()})
    candidate = Candidate(name=first, model=first, backend="given")
    return build_record(sample, "x" * lengths[0], score, candidate=candidate)


def both(number: int, a_first: str | None, b_first: str | None, **about: object) -> list[Record]:
    return [row(number, A, B, a_first, **about), row(number, B, A, b_first, **about)]


def measured(records: Iterator[Record] | list[Record], *names: str) -> Criterion:
    sides = names or (A, B)
    (verdicts,) = read_verdicts(records, sides)
    return measure_pairs(verdicts, sides)


def test_a_win_takes_both_orders_and_a_disagreement_is_a_tie() -> None:
    records = [
        *both(1, "first", "second"),  # ada both times
        *both(2, "first", "second"),
        *both(3, "second", "first"),  # bo both times
        *both(4, "first", "first"),  # whoever stands first
        *both(5, "first", "tie"),
        *both(6, "tie", "tie"),
    ]
    ranking = measured(records)
    ada = next(record for record in ranking.standings if record.candidate == A)
    assert (ada.wins, ada.ties, ada.losses) == (2, 3, 1)
    assert ada.rate.value == pytest.approx(3.5 / 6)
    assert ranking.flips.value == pytest.approx(2 / 6)
    assert (ranking.n_pairs, ranking.n_questions, ranking.n_incomplete) == (6, 6, 0)
    assert ranking.duels[0].rate.value == ada.rate.value
    assert ranking.judges == ("j/m",)


@pytest.mark.parametrize("sides", [(A, B), (B, A)])
@pytest.mark.parametrize(("verdict", "flips", "first"), [("first", 1.0, 1.0), ("tie", 0.0, None)])
def test_ties_make_nobody_win(
    verdict: str, flips: float, first: float | None, sides: tuple[str, str]
) -> None:
    records = [row for number in range(40) for row in both(number, verdict, verdict)]
    pairs = measured(records, *sides)
    assert [row.rate.value for row in pairs.standings] == [0.5, 0.5]
    assert (pairs.flips.value, pairs.first_share.value) == (flips, first)
    assert [(row.rank, row.rank_low, row.rank_high) for row in pairs.standings] == [(1, 1, 2)] * 2
    head = "not usable: " if flips else f"No candidate leads ({pairs.metric}): "
    assert head in leader_in_words(pairs)


@pytest.mark.parametrize(("n", "is_told"), [(1, False), (5, False), (6, True)])
def test_a_few_pairs_leave_all_ranks_open(n: int, is_told: bool) -> None:
    pairs = measured([row for number in range(n) for row in both(number, "first", "second")])
    ranks = [(row.rank, row.rank_low, row.rank_high) for row in pairs.standings]
    assert ranks == ([(1, 1, 1), (2, 2, 2)] if is_told else [(1, 1, 2), (2, 1, 2)])
    assert ("is preferred" in leader_in_words(pairs)) == is_told


def test_an_empty_answer_loses_and_a_failed_one_is_left_out() -> None:
    empty = (Unanswered(candidate=B, kind="empty"),)
    failed = (Unanswered(candidate=B, kind="error", why="time-out"),)
    records = [
        *both(1, "first", "first"),
        *both(2, None, None, unanswered=empty),
        *both(3, None, None, unanswered=(Unanswered(candidate=A, kind="empty"), *empty)),
        *both(4, None, None, unanswered=failed),
        *both(5, None, None, unanswered=(*failed, Unanswered(candidate=A, kind="empty"))),
    ]
    ranking = measured(records)
    bo = next(row for row in ranking.standings if row.candidate == B)
    assert (bo.n_empty, bo.n_failed, bo.wins, bo.ties, bo.losses) == (2, 2, 0, 2, 1)
    assert (ranking.n_pairs, ranking.n_unanswered, ranking.n_incomplete) == (3, 2, 0)
    of_judge = (ranking.flips.value, ranking.flips.n, ranking.first_share.n)
    assert of_judge == (1.0, 1, 2)
    assert ranking.statuses == {"scored": 2}
    report = render_pairs(
        PairwiseReport(
            runs=("r",), sides=(PairSide(name=A, run="r", candidate=A),), level=0.95, cluster=None,
            is_whole=True, criteria=(ranking,),
        )
    )  # fmt: skip
    output = " ".join(report.split())
    assert "no answer: bo on 4 questions (2 empty, 2 failed); an empty answer loses" in output


def test_what_has_no_two_verdicts_is_left_out_and_counted() -> None:
    ranking = measured([*both(1, "first", "second"), *both(2, "first", None)])
    assert (ranking.n_pairs, ranking.n_incomplete) == (1, 1)
    assert ranking.statuses == {"scored": 3, "error": 1}
    unjudged = measured(both(1, None, None))
    assert (unjudged.n_pairs, unjudged.n_incomplete) == (0, 1)
    assert all(row.rate.value is None and row.rank is None for row in unjudged.standings)
    stranger = row(1, A, B, "first")
    broken = stranger.sample.model_copy(update={"metadata": {PAIR: {"first": 3}}})
    records = [stranger.model_copy(update={"sample": broken}), *both(2, "tie", "tie")]
    assert measured(records).n_pairs == 1


def test_a_longer_answer_that_wins_for_its_length_wins_nothing_at_equal_length() -> None:
    random = np.random.default_rng(0)
    records: list[Record] = []
    for number in range(400):
        long = random.random() < 0.75  # ada writes more, mostly
        sizes = (200, 100) if long else (100, 200)
        longer_wins = random.random() < 0.8
        ada = long == longer_wins
        records += [
            row(number, A, B, "first" if ada else "second", lengths=sizes),
            row(number, B, A, "second" if ada else "first", lengths=sizes[::-1]),
        ]
    ranking = measured(records)
    ada = next(row for row in ranking.standings if row.candidate == A)
    assert ada.rate.value > 0.6
    assert ranking.duels[0].at_equal_length == pytest.approx(0.5, abs=0.06)
    assert ranking.longer_share.value == pytest.approx(0.8, abs=0.05)
    odds = ranking.odds_of_double_length
    assert odds.low < 4 < odds.high  # 0.8 to 0.2, for twice as long


def test_what_the_data_do_not_bound_is_no_figure() -> None:
    records = [
        of
        for number in range(90, 110)
        for of in (row(number, A, B, "first", lengths=(number, 10)),
                   row(number, B, A, "second", lengths=(10, number)))
    ]  # fmt: skip
    ranking = measured(records)
    assert [format_strength(row) for row in ranking.standings] == ["all won", "all lost"]
    assert all(row.strength_interval is None for row in ranking.standings)
    assert ranking.odds_of_double_length.value is None
    assert ranking.duels[0].at_equal_length is None
    assert ranking.longer_share.value == 1.0


def test_pairs_of_one_user_count_together() -> None:
    records = [of for number in range(30) for of in both(number, "first", "second")]
    for number, record in enumerate(records):
        record.sample.metadata["user"] = f"u{number // 20}"
    (alone,) = read_verdicts(records, (A, B))
    (together,) = read_verdicts(records, (A, B), "user")
    assert (np.unique(alone.cluster).size, np.unique(together.cluster).size) == (30, 3)


def test_whether_every_two_were_compared_is_read_from_the_records() -> None:
    empty = (Unanswered(candidate=A, kind="empty"),)
    records = [*both(1, "tie", "tie"), row(1, A, "cy", None), row(1, B, "cy", None, empty)]
    (whole,) = read_verdicts(records, (A, B, "cy"))
    (swiss,) = read_verdicts(records[:-1], (A, B, "cy"))
    (of_two,) = read_verdicts([*records, *both(2, "tie", "tie")], (A, B, "cy"))
    assert (whole.is_whole, swiss.is_whole, of_two.is_whole) == (True, False, True)


@pytest.mark.parametrize(
    ("n_flipped", "n_lost", "status", "says"),
    [
        (0, 0, "", "ada is preferred (preference)"),
        (10, 0, "", "ada is preferred (preference)"),
        (11, 0, "", "preference: not usable: the judge's verdict changes with the order in 36.7 %"),
        (0, 24, "empty", "ada is preferred (preference): it wins 100.0 % of its pairs"),
        (0, 24, "error", "ada is preferred (preference)"),  # which stays out
        (0, 24, "excluded", "preference: not decided: 24 of 30 did not answer"),
        (0, 1, "excluded", "ada is preferred (preference)"),
        (0, 24, "abstained", "preference: not decided: 48 of 60 verdicts could not be read"),
    ],
)
def test_a_judge_that_flips_and_too_few_verdicts_decide_nothing(
    n_flipped: int, n_lost: int, status: str, says: str
) -> None:
    records: list[Record] = []
    for number in range(30):
        if number < n_lost and status != "abstained":
            lost = (Unanswered(candidate=B, kind=status),)
            records += both(number, None, None, unanswered=lost)
        elif number < n_lost:
            bad = Score(metric="preference", status="abstained")
            rows = both(number, None, None)
            records += [record.model_copy(update={"scores": (bad,)}) for record in rows]
        else:
            records += both(number, "first", "first" if number < n_flipped else "second")
    (verdicts,) = read_verdicts(records, [A, B])
    head = leader_in_words(measure_pairs(verdicts, [A, B]))
    assert head.startswith(says)
    assert head.endswith("nothing can be said of the candidates.") == (
        (n_lost == 24 and status in ("abstained", "excluded")) or n_flipped > 10
    )


THREE = Matches(np.array([0, 0, 1]), np.array([1, 2, 2]))


def log_posterior(
    at: np.ndarray, matches: Matches, wins: np.ndarray, ties: np.ndarray, losses: np.ndarray
) -> float:
    """Davidson's likelihood from its definition, and the prior."""
    *strengths, tie, weight = at
    total = -float(at @ at) / (2 * PRIOR_SD**2)
    for row, (i, j) in enumerate(zip(matches.i, matches.j, strict=True)):
        x = 0.0 if matches.x is None else matches.x[row]
        a, b = np.exp(strengths[i] + weight * x), np.exp(strengths[j])
        neither = np.exp(tie) * np.sqrt(a * b)
        whole = a + b + neither
        counts = (wins[row], losses[row], ties[row])
        total += sum(
            n * np.log(part / whole) for n, part in zip(counts, (a, b, neither), strict=True)
        )
    return total


@pytest.mark.parametrize("x", [None, np.array([1.0, -0.5, 2.0])])
def test_no_other_parameters_are_likelier(x: np.ndarray | None) -> None:
    random = np.random.default_rng(1)
    matches = THREE._replace(x=x)
    counts = [random.integers(1, 30, (1, 3)).astype(float) for _ in range(3)]
    fitted = fit_strengths(matches, 3, *counts)
    best = np.array([*fitted.of[0], fitted.ties[0], fitted.weight[0]])
    reached = log_posterior(best, matches, *(count[0] for count in counts))
    for _ in range(200):
        other = best + random.normal(0, 0.05, best.size)
        if x is None:
            other[-1] = 0.0
        assert log_posterior(other, matches, *(count[0] for count in counts)) <= reached + 1e-9
    assert fitted.of[0].sum() == pytest.approx(0, abs=1e-8)


def test_of_two_the_strengths_are_the_odds() -> None:
    two = Matches(np.array([0]), np.array([1]))
    fitted = fit_strengths(two, 2, np.array([[300.0]]), np.array([[0.0]]), np.array([[100.0]]))
    assert fitted.of[0, 0] - fitted.of[0, 1] == pytest.approx(np.log(3), abs=0.01)
    assert fitted.win_rate(0, 1)[0] == pytest.approx(0.75, abs=0.01)
    level = fit_strengths(two, 2, np.array([[20.0]]), np.array([[60.0]]), np.array([[20.0]]))
    assert level.win_rate(0, 1)[0] == pytest.approx(0.5)
    assert np.exp(level.ties[0]) / (2 + np.exp(level.ties[0])) == pytest.approx(0.6, abs=0.01)


def test_who_wins_every_match_has_a_finite_strength() -> None:
    wins = np.array([[50.0, 50.0, 50.0]])
    nothing = np.zeros((1, 3))
    fitted = fit_strengths(THREE, 3, wins, nothing, nothing)
    assert np.isfinite(fitted.of).all()
    best, worst = ranks_of(fitted.of)
    assert best.tolist() == worst.tolist() == [[1, 2, 3]]


def test_sets_are_fitted_apart() -> None:
    random = np.random.default_rng(2)
    counts = [random.integers(0, 20, (5, 3)).astype(float) for _ in range(3)]
    together = fit_strengths(THREE, 3, *counts)
    for row in range(5):
        alone = fit_strengths(THREE, 3, *(count[row : row + 1] for count in counts))
        assert together.of[row] == pytest.approx(alone.of[0], abs=1e-6)
