"""Where candidates differ, or where one stands out: figures by hand, intervals that hold what they
promise, and the sentence of a page that names the place."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from memray_eval.analysis.scores import Scores
from memray_eval.analysis.statistics import CompareOptions, Scale
from memray_eval.analysis.where import (
    Codes,
    GroupFigure,
    Split,
    deviations_by_group,
    differences_by_group,
    find_places,
    main_group,
    places_in_words,
    read_groups,
    read_run_scores,
)
from memray_eval.report.answer import answer
from memray_eval.report.html.view_model import draw_places
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import Record
from tests.runs import chat_records, write_summarised

METRICS = ("empathy", "coherence")
PLANTED = {("empathy", "billing"): 1.0}


def scores_of(values: Iterable[float], whole: Sequence[int] | None = None) -> Scores:
    """Scores of one metric, m; a ratio of `values` x `whole` to `whole`, if there is a whole."""
    figures = np.array(list(values), dtype=np.float64)
    wholes = None if whole is None else np.array(whole, dtype=np.float64)
    shares = {} if wholes is None else {"m": (figures * wholes, wholes)}
    keys = [str(n) for n in range(figures.size)]
    return Scores(pa.table({"key": keys}), {"m": figures}, (), shares=shares)


def deviations(
    scores: Scores, codes: Codes, scale: Scale = (0.0, 1.0), level: float = 0.95
) -> list[GroupFigure]:
    names, how = [f"g{code}" for code in np.unique(codes)], CompareOptions(level=level)
    return list(deviations_by_group(scores, "m", codes, names, None, how, scale))


def found_in(folder: RunFolder) -> list[Split]:
    summary = folder.read_summary()
    return find_places(read_run_scores(folder.records(), summary), summary)


def test_a_group_s_difference_is_that_of_its_common_units() -> None:
    a, b = scores_of([1, 2, np.nan, 4, 5]), scores_of([2, 4, 9, 4, 4])
    rows, codes, how = np.arange(5), np.array([0, 0, 0, 1, 1]), CompareOptions()
    groups = differences_by_group(a, b, rows, rows, "m", codes, ("x", "y"), None, how)
    expected = [("x", 2, 1.5), ("y", 2, -0.5)]
    assert [(group.group, group.n, group.difference) for group in groups] == expected


@pytest.mark.parametrize("whole", [None, (3, 1, 4, 1, 5, 9, 2, 6)])
def test_deviations_weighted_by_their_share_add_up_to_nothing(
    whole: tuple[int, ...] | None,
) -> None:
    values = [0.1, 0.9, 0.4, 0.3, 0.8, 0.2, 0.7, 0.6]
    codes, weights = np.array([0, 0, 0, 1, 1, 2, 2, 2]), np.array(whole or [1] * 8)
    figures = [of.difference for of in deviations(scores_of(values, whole), codes)]
    assert np.bincount(codes, weights) @ figures == pytest.approx(0.0)
    first, total = (np.average(values[:n], weights=weights[:n]) for n in (3, 8))
    assert figures[0] == pytest.approx(first - total)


def test_the_interval_of_a_deviation_holds_the_truth_as_often_as_it_says() -> None:
    """A group of 30 of 150 units of which 0.8 are right, against 0.5 of the others: its true
    deviation is 0.8 x 0.3."""
    chance, codes = np.random.default_rng(7), np.repeat([0, 1], (30, 120))
    truth, held, repeats = 0.8 * 0.3, 0, 400
    for _ in range(repeats):
        values = np.where(codes == 0, chance.random(150) < 0.8, chance.random(150) < 0.5)
        first, _ = deviations(scores_of(values), codes, level=0.9)
        held += first.interval.low <= truth <= first.interval.high
    assert 0.86 <= held / repeats <= 0.95


def test_an_interval_ends_where_the_scale_does_and_holds_what_is_off_it() -> None:
    values, codes = [5.0] * 6 + [4.0, 5.0, 5.0, 4.0], np.repeat([0, 1], (6, 4))
    best, _ = deviations(scores_of(values), codes, (1.0, 5.0))
    assert best.difference == pytest.approx(0.2)
    assert best.interval.high <= 0.4 * 0.5 + 1e-9  # no group can be above 5
    assert best.interval.low < 0.2
    below = np.random.default_rng(0).normal(-0.4, 0.1, 60) + np.repeat([0.2, 0.0], 30)
    for group in deviations(scores_of(below), np.repeat([0, 1], 30)):
        assert group.interval.low < group.difference < group.interval.high


def test_the_group_with_most_of_a_difference_stands_out_and_is_not_simply_large() -> None:
    def group(name: str, n: int, difference: float, is_shown: bool = True) -> GroupFigure:
        return GroupFigure(group=name, n=n, difference=difference, is_shown=is_shown)

    large, small = group("large", 90, 1.0), group("small", 10, 3.0)
    rest = group("rest", 90, 0.01, is_shown=False)
    assert main_group([small, rest]) == "small"
    assert main_group([large, small]) is None  # it has most of the units as well
    assert main_group([group("small", 10, 3.0, is_shown=False), rest]) is None
    assert main_group([small]) is None
    assert main_group([group("x", 5, 1.0), group("y", 5, -1.0)]) is None


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"a": "task x", "b": "task x"}, ["most of it in task x"]),
        ({"a": "task x", "b": ""}, ["a mostly in task x"]),
        ({"a": "", "b": ""}, []),
        ({}, []),
        ({name: f"task {name}" for name in "abcd"}, [f"{of} mostly in task {of}" for of in "abc"]),
    ],
)
def test_places_are_said_once_if_all_are_the_same(places: dict[str, str], words: list[str]) -> None:
    assert places_in_words(places, 3) == words


def test_units_are_split_by_their_fields_and_lengths_and_by_none_twice(tmp_path: Path) -> None:
    def like_task(record: Record) -> Record:
        sample = record.sample.model_copy(update={"prompt_type": f"of {record.sample.task}"})
        return record.model_copy(update={"sample": sample})

    rows = map(like_task, chat_records("small"))
    groups = read_groups(write_summarised(tmp_path / "run", rows, METRICS).records())
    assert list(groups.of) == ["task", "scenario", "language", "length"]  # prompt_type is the task
    assert set(groups.of["length"][1]) == {"up to 128", "up to 256", "up to 512", "up to 1k"}
    keys = pa.array(["S001\x1frefunds", "elsewhere\x1f"])
    codes = groups.numbered("task", keys)
    assert groups.of["task"][1][codes[0]] == "refunds"
    assert codes[1] == -1


def test_a_planted_effect_is_found_and_the_sentence_names_its_task(tmp_path: Path) -> None:
    rows = [*chat_records("old"), *chat_records("new", PLANTED)]
    folder = write_summarised(tmp_path / "run", rows, METRICS)
    first, *others = found_in(folder)
    assert (first.metric, first.by, first.of, first.against) == ("empathy", "task", "new", "old")
    assert first.groups[0].group == "billing"
    assert first.groups[0].n == 30
    assert first.groups[0].difference == pytest.approx(1.0, abs=0.25)
    assert first.groups[0].is_shown
    assert not any(split.is_shown for split in others if split.metric == "coherence")
    text = answer(folder.read_summary(), [first, *others])
    assert text.startswith("new is better than old on 1 of 2 (empathy +0.2")
    assert text.endswith("worse on none; 1 without a clear difference; most of it in task billing.")
    assert "billing" not in answer(folder.read_summary())


def test_one_candidate_stands_out_where_it_is_far_from_its_own_figure(tmp_path: Path) -> None:
    weak = {("coherence", "travel"): -1.2}
    folder = write_summarised(tmp_path / "run", chat_records("small", weak), METRICS)
    first = found_in(folder)[0]
    assert (first.metric, first.by, first.against) == ("coherence", "task", "")
    assert first.groups[0].group == "travel"
    assert first.groups[0].difference == pytest.approx(-1.2 * 0.75, abs=0.3)
    text = answer(folder.read_summary(), [first])
    assert "It stands out in task travel: coherence is 1." in text
    assert text.endswith("lower than over all.")


def test_more_than_two_candidates_are_split_from_the_highest_to_the_lowest(tmp_path: Path) -> None:
    rows = [
        record
        for name, shift in (("mid", 0.4), ("low", 0.0), ("high", 0.9))
        for record in chat_records(name, {("empathy", "travel"): 4 * shift})
    ]
    splits = found_in(write_summarised(tmp_path / "run", rows, METRICS))
    assert {(row.of, row.against) for row in splits if row.metric == "empathy"} == {("high", "low")}
    drawn = draw_places(splits)
    assert drawn["says"] == "The candidate with the highest figure less the one with the lowest"
    assert (drawn["panels"][0]["split"].of, drawn["panels"][0]["split"].against) == ("high", "low")


def test_without_anything_to_split_by_there_is_no_place(tmp_path: Path) -> None:
    fields = {"task": "", "scenario": "", "language": "en"}
    rows = [
        row.model_copy(update={"sample": row.sample.model_copy(update=fields), "response": None})
        for row in chat_records("small", n=20)
    ]
    assert found_in(write_summarised(tmp_path / "run", rows, METRICS)) == []
    assert draw_places([]) is None
