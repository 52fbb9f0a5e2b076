"""Units of two runs that read different files are common where they ask the same."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from memray_eval.analysis.comparing import Compared, compare
from memray_eval.analysis.open_runs import open_sides, pick_candidates
from memray_eval.analysis.statistics import CompareOptions
from memray_eval.types import Record, Turn
from tests.runs import chat_records, write_summarised

METRICS = ("empathy", "coherence")
BY_IDS = "A and B: no two questions are the same: they are compared by their ids"
LEFT_OUT = "A and B: 3 answers are to another question under the same id and are left out"
Change = Callable[[int, Record], Record]


def compared(
    tmp_path: Path,
    change: Change,
    before: Change = lambda _, record: record,
    datasets: Sequence[dict[str, int]] = ({}, {}),
) -> Compared:
    def changed(name: str, change: Change) -> Iterable[Record]:
        return [change(n, record) for n, record in enumerate(chat_records(name, n=40))]

    runs = [
        write_summarised(tmp_path / "a", changed("old", before), METRICS),
        write_summarised(tmp_path / "b", changed("new", change), METRICS),
    ]
    for run, dataset in zip(runs, datasets, strict=True):
        manifest = run.read_manifest()
        of = {**manifest.get("dataset", {}), "fingerprint": run.run_id, **dataset}
        run.write_manifest({**manifest, "dataset": of})
    opened = pick_candidates([run.path for run in runs])
    return compare(open_sides(opened, None), settings=CompareOptions(resamples=200), flips=3)


def with_sample(record: Record, **fields: object) -> Record:
    return record.model_copy(update={"sample": record.sample.model_copy(update=fields)})


def matching_of(comparison: Compared) -> list[str]:
    return [warning for warning in comparison.warnings if "question" in warning]


def test_the_same_questions_are_common_whatever_their_ids(tmp_path: Path) -> None:
    # Row numbers of a file in another order: every id is there, and asks something else.
    comparison = compared(tmp_path, lambda n, record: with_sample(record, id=f"S{(n + 4) % 40:03}"))
    (common,) = comparison.common
    assert (common.n, common.only_a, common.only_b) == (40, 0, 0)
    assert matching_of(comparison) == [
        "A and B: 40 answers to the same question are compared, whatever their ids"
    ]
    flips = [flip for metric in comparison.metrics for flip in metric.flips]
    ids = [(int(flip.sample_id[1:]), int(flip.other_id[1:])) for flip in flips]
    assert ids
    assert all((a + 4) % 40 == b for a, b in ids)


@pytest.mark.parametrize(
    ("query", "n", "notes"),
    [
        (lambda n: f"Was nun, Fall {n}?", 40, [BY_IDS]),
        (lambda n: "Something else?" if n < 3 else "", 37, [LEFT_OUT]),
        (lambda n: "", 40, []),
    ],
    ids=["translated", "another_question", "the_same"],
)
def test_questions_under_the_same_ids_are_common_unless_some_are_others(
    tmp_path: Path, query: Callable[[int], str], n: int, notes: list[str]
) -> None:
    def change(number: int, record: Record) -> Record:
        return with_sample(record, query=query(number) or record.sample.query)

    comparison = compared(tmp_path, change)
    assert comparison.common[0].n == n
    assert matching_of(comparison) == notes
    assert all(not flip.other_id for metric in comparison.metrics for flip in metric.flips)


@pytest.mark.parametrize(
    ("notes", "later", "n"),
    [
        ({}, "then?", 40),  # the turns of a script
        ({}, "other", 20),
        ({"user_model": "u"}, "other", 40),  # a simulated user
        ({"session": None}, "then?", 20),  # no turn: its history counts as a whole
    ],
)
def test_turns_of_sessions_are_common_whatever_was_answered_before(
    tmp_path: Path, notes: dict[str, object], later: str, n: int
) -> None:
    def turn(n: int, record: Record, text: str, answer: str) -> Record:
        number, about = n % 2 + 1, {"session": f"s{n // 2}", "turns": 2}
        history = [Turn(role="user", content="Hi."), Turn(role="assistant", content=answer)]
        fields = {
            "query": "Hi." if number == 1 else text,
            "metadata": {**about, "turn": number, **notes},
        }
        return with_sample(
            record, id=f"s{n // 2}#{number}", history=history * (number - 1), **fields
        )

    comparison = compared(
        tmp_path,
        lambda n, row: turn(n, row, later, "New."),
        lambda n, row: turn(n, row, "then?", "Old."),
    )
    assert comparison.common[0].n == n


@pytest.mark.parametrize(
    ("chars", "answers", "is_other"), [((0, 0), (), False), ((0, 9), (), True), ((0, 0), "x", True)]
)
def test_datasets_are_different_if_their_samples_are(
    tmp_path: Path, chars: tuple[int, int], answers: tuple[str, ...], is_other: bool
) -> None:
    """Each file of answers has a fingerprint of its own, its answers being part of it."""
    datasets = [{"context_chars": length} for length in chars]
    answered = {"answers": tuple(answers)}
    comparison = compared(tmp_path, lambda _, row: with_sample(row, **answered), datasets=datasets)
    assert any("different datasets" in text for text in comparison.warnings) == is_other


@pytest.mark.parametrize("twice", [2, 5])
def test_a_question_that_is_asked_twice_is_matched_with_none(tmp_path: Path, twice: int) -> None:
    def change(n: int, record: Record) -> Record:
        moved = with_sample(record, id=f"T{n:03}")
        return with_sample(moved, query="Twice?", task="") if n < twice else moved

    comparison = compared(tmp_path, change)
    assert comparison.common[0].n == 40 - twice
