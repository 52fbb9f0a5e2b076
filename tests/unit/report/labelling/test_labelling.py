"""People's labels: which unit comes when, what is kept of an answer, and what the labels become."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memray_eval.datasets.labels import Labelling, map_columns, read_labelled
from memray_eval.datasets.scan import read_samples
from memray_eval.errors import ConfigError
from memray_eval.report.labelling import LabelSession, open_labelling
from memray_eval.report.labelling.queue import Queue, UnitColumns, choices_for, doubt_of
from memray_eval.report.labelling.store import FILE, LabelEvent, LabelRequest, LabelStore
from memray_eval.types import Candidate, Record
from tests.build import build_record, build_sample, build_score
from tests.runs import candidates, full_summary, write_run
from tests.unit.datasets.builders import MEMORY, read

METRIC = "empathy"


def judged(number: int, value: float | None = 3, text: str = "I hear you. Rest well.") -> Record:
    judgment = json.dumps({"explanation": "SECRET", "supportive_elements": ["I hear you"]})
    sample = build_sample(
        id=f"s{number}",
        query=f"I am tired, day {number}",
        memory={"job": "nurse", "pets": ("a cat", "a dog")},
        answers=("rest",),
    )
    score = build_score(METRIC, value, judgment=judgment, judge="SECRET")
    secret = Candidate(name="SECRET", model="SECRET", backend="given")
    return build_record(sample, text, score, candidate=secret, unit_id=f"u{number:03}")


@pytest.fixture
def session(tmp_path: Path) -> LabelSession:
    records = [judged(number, 1 + number % 5) for number in range(12)]
    return open_labelling(write_run(tmp_path / "run", records, 12), METRIC)


def order(session: LabelSession) -> list[str]:
    return [session._record(place).unit_id for place in range(len(session.queue))]


def answer(
    session: LabelSession, rater: str, tab: str, id: str, unit: str, value: float | None, **of: Any
) -> dict[str, Any]:
    sent = {"rater": rater, "tab": tab, "id": id, "unit": unit, "value": value, **of}
    return session.answer(LabelRequest.model_validate(sent))


def give(session: LabelSession, value: float | None, rater: str = "ana", tab: str = "t") -> str:
    unit = session.state(rater, tab)["unit"]["id"]
    answer(session, rater, tab, f"{rater}-{unit}", unit, value)
    return str(unit)


def test_a_rater_sees_the_sample_and_the_answer_and_nothing_of_the_judge(
    session: LabelSession,
) -> None:
    state = session.state("ana", "t")
    assert state["unit"]["response"] == "I hear you. Rest well."
    assert sorted(state["unit"]["memory"]) == [["job", "nurse"], ["pets", "a cat, a dog"]]
    assert "SECRET" not in json.dumps(state)
    assert session.quotes(state["unit"]["id"]) == ["I hear you"]
    assert [choice.key for choice in session.choices] == ["1", "2", "3", "4", "5"]


def test_labels_are_kept_one_by_one_and_a_new_session_goes_on(session: LabelSession) -> None:
    first = give(session, 4)
    second = give(session, None)
    again = open_labelling(session.folder, METRIC)
    state = again.state("ana", "another tab")
    assert (state["labelled"], state["skipped"], state["total"]) == (1, 1, 12)
    assert state["unit"]["id"] not in (first, second)
    assert order(again) == order(session)


def test_two_tabs_of_a_rater_show_two_units_and_a_reload_the_same(session: LabelSession) -> None:
    first, second = (session.state("ana", tab)["unit"]["id"] for tab in ("one", "two"))
    assert first != second
    assert session.state("ana", "one")["unit"]["id"] == first
    assert session.state("bo", "three")["unit"]["id"] == first  # another rater has the same queue
    give(session, 2, tab="two")
    assert session.state("ana", "one")["unit"]["id"] == first


def test_a_unit_that_a_closed_tab_had_comes_back_in_time(session: LabelSession) -> None:
    now = [0.0]
    session._clock = lambda: now[0]
    lost = session.state("ana", "closed")["unit"]["id"]
    assert session.state("ana", "open")["unit"]["id"] != lost
    give(session, 2, tab="open")
    now[0] = 1000.0
    assert session.state("ana", "open")["unit"]["id"] == lost


def test_undo_takes_back_the_last_answer_of_the_tab(session: LabelSession) -> None:
    first = give(session, 4, tab="one")
    give(session, 5, tab="two")
    state = session.undo("ana", "one", "undo-1")
    assert state["unit"]["id"] == first
    assert state["labelled"] == 1
    answer(session, "ana", "one", "again", first, 1, aided=True)
    rows = list(csv.DictReader(io.StringIO(session.write_csv())))
    assert {row["unit_id"]: row["human"] for row in rows}[first] == "1"
    lines = (Path(session.folder.path) / FILE).read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["queue", "label", "label", "undo", "label"]


def test_undo_of_nothing_changes_nothing(session: LabelSession) -> None:
    assert session.undo("ana", "t", "x")["labelled"] == 0
    assert not (Path(session.folder.path) / FILE).exists()


@pytest.mark.parametrize(
    ("unit", "value", "wrong"),
    [("nowhere", 3, "no unit"), ("", 9, "none of the answers"), ("", 2.5, "none of the answers")],
)
def test_what_is_no_answer_is_refused(
    session: LabelSession, unit: str, value: float, wrong: str
) -> None:
    shown = unit or session.state("ana", "t")["unit"]["id"]
    with pytest.raises(ConfigError, match=wrong):
        answer(session, "ana", "t", "e", shown, value)


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\x00b"])
def test_a_rater_has_a_name(session: LabelSession, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        session.state(name, "t")


@pytest.mark.heavy
def test_two_raters_agreement_is_calibrates(session: LabelSession) -> None:
    assert session.agreement()["figures"] is None
    for value in (1, 2, 3, 4, 5):
        give(session, value, "ana")
        give(session, value if value != 5 else 4, "bo")
    agreement = session.agreement()
    assert agreement["raters"] == {"ana": 5, "bo": 5}
    assert agreement["n_shared"] == 5
    assert agreement["figures"]["exact"]["value"] == pytest.approx(0.8)
    assert agreement["figures"]["kappa"]["value"] > 0.9


def test_the_csv_is_read_by_calibrate(session: LabelSession, tmp_path: Path) -> None:
    for value in (1, 5, None, 3):
        give(session, value, "ana")
    give(session, 2, "bo")
    file = tmp_path / "labels.csv"
    file.write_text(session.write_csv())
    words = session.calibrate_command(str(file)).split()
    mapped = words[words.index("--map") + 1]
    rows = read_labelled(file, map_columns([mapped], Labelling(columns={})), (1, 5))
    assert [row.people for row in rows] == [(1.0, 2.0), (5.0, None), (3.0, None)]
    assert rows[0].fields["memory"] == {"job": "nurse", "pets": ["a cat", "a dog"]}
    assert rows[0].fields["answers"] == ["rest"]
    with file.open() as lines:
        table = list(csv.DictReader(lines))
    assert [(row["rater"], row["rater2"]) for row in table] == [
        ("ana", "bo"),
        ("ana", ""),
        ("ana", ""),
    ]
    assert all(float(row["weight"]) >= 1 for row in table)


def test_an_answer_of_any_length_is_read_back(tmp_path: Path) -> None:
    long = 'He said "rest", and\r\n' * 20_000
    run = write_run(tmp_path / "run", [judged(0, text=long)], 1)
    session = open_labelling(run, METRIC)
    give(session, 3)
    file = tmp_path / "labels.csv"
    file.write_bytes(session.write_csv().encode())
    columns = {"response": "response", "query": "query"}
    (row,) = read_labelled(file, Labelling(columns=columns, people=("human",)), (1, 5))
    assert row.fields["response"].split() == long.split()


def test_only_what_a_judge_was_asked_about_is_labelled(tmp_path: Path) -> None:
    records = [judged(0), judged(1, None), judged(2, text="  ")]
    session = open_labelling(write_run(tmp_path / "run", records, 3), METRIC)
    assert set(order(session)) == {"u000", "u001"}
    with pytest.raises(ConfigError, match="no judge scored 'safety'"):
        open_labelling(session.folder, "safety")


def test_the_headline_is_labelled_unless_a_metric_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [judged(0)], 1)
    named = full_summary(1, candidates()).model_copy(update={"headline": METRIC})
    folder.write_summary(named, "")
    assert open_labelling(folder).metric == METRIC


def test_a_line_that_a_crash_cut_is_skipped_and_the_next_one_is_whole(tmp_path: Path) -> None:
    store = LabelStore(tmp_path, METRIC)
    event = LabelEvent(id="1", kind="label", metric=METRIC, rater="ana", unit_id="u", value=1)
    store.add(event)
    with (tmp_path / FILE).open("a") as file:
        file.write('{"id": "2", "kind": "lab')
    store = LabelStore(tmp_path, METRIC)
    store.add(event.model_copy(update={"id": "3", "unit_id": "v"}))
    assert [label.id for label in LabelStore(tmp_path, METRIC).standing()] == ["1", "3"]


def test_an_event_that_is_sent_twice_counts_once(tmp_path: Path) -> None:
    event = LabelEvent(id="1", kind="label", metric=METRIC, rater="ana", unit_id="u", value=1)
    first, second = LabelStore(tmp_path, METRIC), LabelStore(tmp_path, METRIC)
    first.add(event)
    second.add(event)  # another server of the same run
    first.add(event)
    assert len((tmp_path / FILE).read_text().splitlines()) == 1


def test_labels_of_many_threads_and_stores_are_all_kept(tmp_path: Path) -> None:
    def add(store: LabelStore, name: str) -> None:
        for number in range(20):
            store.add(
                LabelEvent(
                    id=f"{name}{number}", kind="label", metric=METRIC, rater=name,
                    unit_id=f"u{number}", value=1,
                )
            )  # fmt: skip

    threads = [
        threading.Thread(target=add, args=(LabelStore(tmp_path, METRIC), name)) for name in "abcd"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(LabelStore(tmp_path, METRIC).standing()) == 80


def queue_of(doubts: Sequence[float], seed: str = "s", **shared: Any) -> Queue:
    """A queue of units whose rows are their numbers."""
    units = UnitColumns(seed)
    for number, doubt in enumerate(doubts):
        units.add(f"u{number}", 0, number, doubt)
    return Queue(units, **shared)


@pytest.mark.parametrize("is_by_doubt", [False, True])
@pytest.mark.parametrize(
    ("shared", "reached"),
    [
        ({}, {"": 15}),
        ({"limit": 15}, {"": 60}),
        (
            {"raters": ["ana", "bo", "cy"], "overlap": 0.5, "limit": 20},
            {"ana": 60, "bo": 4, "cy": 60},
        ),
        ({"raters": ["ana", "bo"]}, {"ana": 15, "bo": 9}),
        ({"raters": ["ana", "bo", "cy"], "overlap": 0.3}, {"ana": 9, "bo": 4, "cy": 6}),
    ],
)
def test_the_weights_make_sums_over_all_units_unbiased(
    shared: dict[str, Any], reached: dict[str, int], is_by_doubt: bool
) -> None:
    random = np.random.default_rng(0)
    values, doubts = random.random(60), [float(n % 10) / 10 for n in range(60)]
    sums = []
    for draw in range(800):
        queue = queue_of(doubts, str(draw), is_by_doubt=is_by_doubt, **shared)
        labels = [
            (name, int(n)) for name, n_of in reached.items() for n in queue.assigned(name)[:n_of]
        ]
        weights = queue.weights(labels)
        sums.append(sum(weight * values[queue.locate(n)[1]] for n, weight in weights.items()))
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - values.sum()) < 3.5 * error


def test_uncertain_verdicts_come_earlier_and_sure_ones_too() -> None:
    first = [0, 0]
    for draw in range(50):
        queue = queue_of([1.0] * 20 + [0.0] * 80, str(draw))
        for place in range(20):
            first[queue.locate(place)[1] < 20] += 1
    assert 0.35 < first[True] / 1000 < 0.7
    assert first[False] > 250


def test_all_labelled_count_once_each() -> None:
    assert list(queue_of([0.5] * 5).weights([("ana", n) for n in range(5)]).values()) == [1.0] * 5


def test_units_are_shared_evenly_and_a_rater_who_joins_moves_no_others() -> None:
    doubts = [0.1] * 3000
    two = queue_of(doubts, raters=["bo", "ana"], overlap=0.2)
    sizes = [two.assigned(rater).size for rater in two.raters]
    assert all(1700 < size < 1900 for size in sizes)  # half of 3,000, and half of the shared 600
    assert sum(sizes) - 3000 == pytest.approx(600, abs=90)
    three = queue_of(doubts, raters=["ana", "bo", "cy"], overlap=0.2)
    for rater in two.raters:
        assert set(three.assigned(rater)) <= set(two.assigned(rater)) | set(
            np.intersect1d(three.assigned(rater), three.assigned("cy"))
        )
    assert queue_of(doubts, raters=["ana"]).assigned("ana").size == 3000
    assert queue_of(doubts, limit=10).assigned("anyone").size == 10


def test_of_units_with_an_id_twice_the_last_counts() -> None:
    units = UnitColumns("s")
    for row in range(3):
        units.add("same", 0, row, 0.1)
    queue = Queue(units)
    assert (len(queue), queue.locate(0)) == (1, (0, 2))
    assert queue.rank("same") == 0
    assert queue.rank("other") is None


@pytest.mark.parametrize(
    ("score", "doubt", "older"),
    [
        ({"value": None}, 1.0, 1.0),
        ({"value": 3.0}, 0.0, 1.0),
        ({"value": 5.0}, 0.0, 0.0),
        ({"value": 5.0, "judgment": '{"confidence": 0.6}'}, 0.4, 0.4),
        ({"value": 5.0, "parts": [("disagreement", 2.0)]}, 0.25, 0.5),
        ({"value": 5.0, "parts": [("evidence", 4.0), ("unverified", 3.0)]}, 0.75, 0.75),
        ({"value": 5.0, "judgment": "[1]"}, 0.0, 0.0),
    ],
)
def test_what_makes_a_verdict_uncertain(
    score: dict[str, object], doubt: float, older: float
) -> None:
    assert doubt_of(score, (1, 5)) == pytest.approx(doubt)
    assert doubt_of(score, (1, 5), is_older=True) == pytest.approx(older)


def test_each_scale_has_its_keys() -> None:
    def keys_of(*args: object) -> dict[str, float]:
        return {choice.key: choice.value for choice in choices_for(*args)}  # type: ignore[arg-type]

    assert keys_of((1, 5), True, {3.0}) == {"1": 1, "2": 2, "3": 3, "4": 4, "5": 5}
    assert keys_of((0, 1), False, {0.0, 1.0}) == {"0": 0, "1": 1}
    assert keys_of((0, 1), False, {0.3}) == {"1": 0, "2": 0.25, "3": 0.5, "4": 0.75, "5": 1}
    assert keys_of((0, 100), False, {7.0}) == {"1": 0, "2": 25, "3": 50, "4": 75, "5": 100}
    assert keys_of((0, 1), False, {1.0}, {"first", "tie"}) == {"1": 1, "2": 0.5, "3": 0}


def answer_all(session: LabelSession, rater: str, values: Sequence[float], **words: str) -> None:
    for number in range(1000):
        unit = session.state(rater, "t")["unit"]
        if unit is None:
            return
        value = values[session.queue.rank(unit["id"]) or 0]
        answer(session, rater, "t", f"{rater}{number}", unit["id"], value, **words)


def test_of_two_tabs_on_one_unit_the_last_word_counts_and_both_are_kept(
    session: LabelSession,
) -> None:
    session.share(["ana", "bo"])
    other = open_labelling(session.folder, METRIC)  # another server, so no lease between them
    unit = session.state("ana", "one")["unit"]["id"]
    assert other.state("ana", "two")["unit"]["id"] == unit
    answer(session, "ana", "one", "first", unit, 2, comment="so so")
    state = answer(other, "ana", "two", "second", unit, 4)
    assert state["labelled"] == 1
    (row,) = csv.DictReader(io.StringIO(session.write_csv()))
    assert (row["human"], row.get("comment")) == ("4", None)
    lines = (Path(session.folder.path) / FILE).read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["queue", "label", "label"]


@pytest.mark.heavy
def test_agreement_of_a_queue_is_hidden_until_all_are_done(session: LabelSession) -> None:
    session.share(["ana", "bo"], limit=6)
    answer_all(session, "ana", [1, 2, 3, 4, 5, 1])
    agreement = session.agreement()
    assert (agreement["left"], agreement["figures"]) == ({"ana": 0, "bo": 6}, None)
    with pytest.raises(ConfigError, match="bo 6"):
        session.check_shown()
    assert "1" not in json.dumps(session.state("bo", "t")["labelled"])
    answer_all(open_labelling(session.folder, METRIC), "bo", [1, 2, 3, 4, 4, 1])
    agreement = session.agreement()
    assert agreement["left"] == {"ana": 0, "bo": 0}
    assert agreement["figures"]["exact"]["value"] == pytest.approx(5 / 6)
    session.check_shown()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("values", "kappa", "note"),
    [([3.0] * 12, None, "cannot be told"), ([1.0, 5.0] * 6, 1.0, "up to 22%")],
)
def test_raters_who_never_differ_are_said(
    session: LabelSession, values: list[float], kappa: float | None, note: str
) -> None:
    session.share(["ana", "bo"])
    answer_all(session, "ana", values)
    answer_all(session, "bo", values)
    agreement = session.agreement()
    assert agreement["figures"]["kappa"]["value"] == kappa
    assert note in agreement["note"]


@pytest.mark.parametrize("name", ["Ana", "eve", "\u202eana", "ana\u200b", "a,b\n\x07"])
def test_a_queue_is_of_its_raters_alone(session: LabelSession, name: str) -> None:
    session.share(["ana", "José"])
    with pytest.raises(ConfigError, match=r"name|queue") as refused:
        session.state(name, "t")
    assert ("did you mean 'ana'?" in str(refused.value)) == (name == "Ana")
    assert session.state("Jose\u0301", "t")["unit"] is not None  # the same name, decomposed


@pytest.mark.parametrize("names", [[""], ["ana", "ana"], ["ana", " "], ["a\x00"]])
def test_raters_of_a_queue_have_names(session: LabelSession, names: list[str]) -> None:
    with pytest.raises(ConfigError, match="rater"):
        session.share(names)
    assert not (Path(session.folder.path) / FILE).exists()


def test_another_server_takes_up_how_units_are_shared(session: LabelSession) -> None:
    other = open_labelling(session.folder, METRIC)
    session.share(["ana", "bo"], overlap=0.0)
    session.share(["bo", "ana"], overlap=0.0)  # the same: nothing to keep
    sizes = [other.state(rater, "t")["total"] for rater in ("ana", "bo")]
    assert sum(sizes) == 12
    assert len((Path(session.folder.path) / FILE).read_text().splitlines()) == 1


def test_corrected_answers_are_those_of_the_next_run(session: LabelSession, tmp_path: Path) -> None:
    unit = session.state("ana", "t")["unit"]["id"]
    words = {"answer": " Rest, and\ncall. ", "comment": "too short"}
    answer(session, "ana", "t", "1", unit, None, **words)
    answer(session, "bo", "t", "2", unit, 2, answer="Call.")
    give(session, 3, "ana")
    (line,) = session.write_corrected().splitlines()
    file = tmp_path / "next.jsonl"
    file.write_text(line)
    (shard,) = read(file).scan.shards
    (sample,) = read_samples(shard, MEMORY)
    assert sample.answers == ("Rest, and\ncall.", "Call.")
    assert sample.memory == {"job": "nurse", "pets": ("a cat", "a dog")}
    row, _ = csv.DictReader(io.StringIO(session.write_csv()))
    assert (row["rater"], row["human"], row["comment"]) == ("ana", "", "too short")
    assert (row["rater2"], row["human2"], row["corrected2"]) == ("bo", "2", "Call.")
    assert row["at"].startswith("20")
    assert row["at"].endswith("+00:00")


def test_labels_of_units_that_do_not_exist_are_counted(session: LabelSession) -> None:
    give(session, 3)
    store = LabelStore(Path(session.folder.path), METRIC)
    store.add(LabelEvent(id="x", kind="label", metric=METRIC, rater="ana", unit_id="gone", value=1))
    agreement = session.agreement()
    assert (agreement["n_units"], agreement["n_unknown"]) == (1, 1)
    assert "gone" not in session.write_csv()


def test_labels_of_an_older_version_keep_their_order_and_weights(session: LabelSession) -> None:
    """u002, u007: graded in the middle, whose doubt was 1."""
    units = UnitColumns(f"{session.folder.run_id}\x1f{METRIC}")
    for number in range(12):
        units.add(f"u{number:03}", 0, number, (0.0, 0.5, 1.0, 0.5, 0.0)[number % 5])
    expected = Queue(units, is_by_doubt=True)
    file = Path(session.folder.path) / FILE
    line = {"id": "1", "kind": "label", "metric": METRIC, "rater": "ana", "value": 3.0}
    file.write_text(json.dumps(line | {"unit_id": f"u{expected.locate(0)[1]:03}"}) + "\n")
    again = open_labelling(session.folder, METRIC)
    assert order(again) == [f"u{expected.locate(place)[1]:03}" for place in range(12)]
    again.share(["ana", "bo"])
    give(again, 4, "bo")
    assert order(again) == order(open_labelling(session.folder, METRIC))
    (first, *_) = csv.DictReader(io.StringIO(again.write_csv()))
    assert float(first["weight"]) == pytest.approx(expected.weights([("", 0)])[0], rel=1e-5)
