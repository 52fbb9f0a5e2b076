"""What of the evidence and of the right answer a store returned, by content; and the lines that
processes append to."""

from pathlib import Path

import pytest

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.errors import OddReply
from memray_eval.stores import local
from memray_eval.stores.memories import completeness, find_pieces, partition_name
from memray_eval.stores.port import Entry, JsonLines, moment_of, read_entries, read_folder
from memray_eval.types import Candidate, Memory
from tests.build import build_sample

SESSIONS = (
    Session("S1", "7 May", (SpokenTurn("S1:1", "Ann", "I went to a pottery class in Lisbon."),)),
    Session("S2", "9 May", (SpokenTurn("S2:1", "Ann", "My dog Rex was ill on Sunday."),)),
)


@pytest.mark.parametrize(
    ("entries", "pieces"),
    [
        ([Entry("S1:1", "anything")], [0]),  # the turn itself
        ([Entry("x", "Ann took a class of pottery in Lisbon")], [0]),  # a fact that tells it
        ([Entry("x", "Ann likes pottery")], []),  # a third of its words
        ([Entry("x", "pottery class"), Entry("y", "Lisbon, Rex")], [0]),
        ([Entry("x", "Ann has a dog, Rex, ill on a Sunday", "S2")], [1, 2]),  # and its session
        ([], []),
    ],
)
def test_evidence_is_found_by_content(entries: list[Entry], pieces: list[int]) -> None:
    evidence = [["S1:1", "S1"], ["S2:1", "S2"], ["", "S2"]]
    sample = build_sample(metadata={"evidence": evidence})
    assert find_pieces(sample, SESSIONS, entries) == pieces


def test_a_store_holds_few_partitions_in_memory_and_finds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KEPT", 2)
    store = local.VerbatimStore(str(tmp_path))
    for session in (*SESSIONS, *SESSIONS):
        for partition in "abc":
            store.ingest(partition, session)
            assert store.search(partition, "dog pottery", 1)
            assert len(store._held) <= 2
            assert store._ranks.keys() <= store._held.keys()
    store.hold(3)  # as many as are asked at once: none is read and indexed again
    assert all(store.search(partition, "dog pottery", 1) for partition in "abc")
    assert {*store._ranks} == {*"abc"}
    assert [[entry.id for entry in store.entries(of)] for of in "abc"] == [["S1:1", "S2:1"]] * 3


def test_questions_share_a_partition_at_the_same_place_of_a_conversation() -> None:
    candidate = Candidate(name="m", model="m", memory=Memory(store="bm25"))
    samples = [build_sample(context=of, metadata={"conversation": "c"}) for of in "aba"]
    first, other, again = (partition_name("r", sample, candidate, 1) for sample in samples)
    assert first == again != other
    # of 32 bits two of 100,000 places would be equal: the later one was not written
    assert len(bytes.fromhex(first.rpartition("/")[2])) == 8


@pytest.mark.parametrize(
    ("answers", "texts", "share"),
    [
        (["a pottery class"], ["pottery"], 0.5),
        (["a pottery class", "Lisbon"], ["Lisbon it was"], 1.0),
        (["7 May 2023"], ["it was in May"], 1 / 3),
        (["Rex"], [], 0.0),
    ],
)
def test_completeness_of_returned_texts(answers: list[str], texts: list[str], share: float) -> None:
    entries = [Entry(str(number), text) for number, text in enumerate(texts)]
    sample = build_sample(answers=answers)
    assert completeness(sample, entries) == pytest.approx(share)
    unanswerable = build_sample(answers=answers, metadata={"unanswerable": True})
    assert completeness(unanswerable, entries) is None


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56:00+00:00"),
        ("10:12 am on 4 March, 2024", "2024-03-04T10:12:00+00:00"),
        ("2023/05/20 (Sat) 02:21", "2023-05-20T02:21:00+00:00"),
        ("April-10-2024", "2024-04-10T00:00:00+00:00"),
        ("2024-05-01", "2024-05-01T00:00:00+00:00"),
        ("2024-05-01T10:00:00+02:00", "2024-05-01T10:00:00+02:00"),
        ("8 May, 2023", "2023-05-08T00:00:00+00:00"),
        ("05/06/2023", None),  # of which country?
        ("last spring", None),
        ("", None),
    ],
)
def test_when_a_session_was(date: str, moment: str | None) -> None:
    got = moment_of(Session("S1", date, ()))
    assert (got and got.isoformat()) == moment


def test_what_a_store_of_ones_own_may_return() -> None:
    raw = ["a text", {"text": "b", "id": 7, "session": None}, Entry("c", "c")]
    texts = [(entry.id, entry.text, entry.session) for entry in read_entries(raw)]
    assert texts == [("memory 1", "a text", ""), ("7", "b", ""), ("c", "c", "")]
    for odd in ({"results": []}, [{"content": "a"}], [3], None):
        with pytest.raises(OddReply):
            read_entries(odd)


def test_a_line_that_a_kill_cut_off_is_not_read_and_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "a/b.jsonl"
    lines = JsonLines(str(path))
    assert lines.read() == []
    lines.append([{"n": 1}, {"n": 2}])
    with path.open("a") as file:
        file.write('{"n": 3, "text": "cut')
    JsonLines(str(path)).append([{"n": 4}])
    assert lines.read() == [{"n": 1}, {"n": 2}, {"n": 4}]
    assert read_folder(str(tmp_path)) == {"a/b.jsonl": lines.read()}
    lines.write([{"n": 5}])
    assert lines.read() == [{"n": 5}]
    assert read_folder(str(tmp_path / "none")) == {}
