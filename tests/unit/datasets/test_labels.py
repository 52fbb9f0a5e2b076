"""Labelled files: kinds of files, mapped columns, systems beside each other, and what is
refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.datasets.labels import Labelling, map_columns, read_labelled
from memray_eval.errors import ConfigError, DataError
from tests.conftest import REPOSITORY
from tests.unit.datasets.builders import write_rows

ROWS = [{"q": "Who?", "a": "Ada", "score": "4"}, {"q": "When?", "a": 'In "1843"', "score": "2"}]
PLAIN = Labelling(columns={"query": "q", "response": "a"}, people=("score",))

DATA = REPOSITORY.parent / "shared" / "data" / "judge-validation"


def written(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    return write_rows(folder / f"labelled.{kind}", rows)


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "tsv", "parquet"])
def test_every_kind_of_file_reads_the_same(tmp_path: Path, kind: str) -> None:
    first, second = read_labelled(written(tmp_path, kind, ROWS), PLAIN, (1, 5))
    assert first.fields == {"id": "row-000001", "query": "Who?", "response": "Ada"}
    assert (first.people, first.cluster) == ((4.0,), "Who?")
    assert second.fields["response"] == 'In "1843"'


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("encoding", "named"),
    [("utf-8", ""), ("utf-8-sig", ""), ("utf-16", ""), ("utf-16-le", ""), ("cp1252", "cp1252")],
)
def test_tables_of_spreadsheets(tmp_path: Path, encoding: str, named: str, mark: str) -> None:
    head, row = ("q", "a", "score"), ("Où?", f'"Zoë{mark} ""née"" Lang"', '"2,5"')
    path = tmp_path / "labelled.csv"
    path.write_bytes(f"{mark.join(head)}\r\n{mark.join(row)}\r\n".encode(encoding))
    (response,) = read_labelled(path, PLAIN, (1, 5), encoding=named)
    assert response.fields["query"] == "Où?"
    assert response.fields["response"] == f'Zoë{mark} "née" Lang'
    assert response.people == (2.5,)


def test_a_line_that_says_the_separator_and_one_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "labelled.csv"
    path.write_text("sep=;\nq;a;score\nWho?;Ada, of course;4\n")
    (response,) = read_labelled(path, PLAIN, (1, 5))
    assert (response.fields["response"], response.people) == ("Ada, of course", (4.0,))
    path.write_text("q;a;score\nWho?;Ada; of course;4\n")
    with pytest.raises(DataError, match="line 2: has 4 cells, and the header names 3"):
        read_labelled(path, PLAIN, (1, 5))
    path.write_bytes("q;a;score\nOù?;Zoë;4\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"not UTF-8 .*--encoding"):
        read_labelled(path, PLAIN, (1, 5))


FENCED = '```json\n{"Empathy": 4, "Safety": "5"}\n```'


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_judges_scores_as_mentalalign_has_them(tmp_path: Path, kind: str) -> None:
    row = {"context": "I am sad.", "response": ""}
    row |= {"judge_response_x": FENCED, "human_response_x": '{"Empathy": 3}'}
    row |= {"judge_response_y": "no JSON", "human_response_y": '{"Empathy": 2}'}
    pairs = "query=context,judge=judge_response_*.Empathy,human=human_response_*.Empathy"
    labelling = map_columns([pairs], Labelling(columns={}))
    with pytest.raises(ConfigError, match=r"no column 'judge_response_y.Empathy'"):
        read_labelled(written(tmp_path, kind, [row]), labelling, (1, 5))
    rows = [row, row | {"judge_response_y": FENCED}]
    x, y, *_ = read_labelled(written(tmp_path, kind, rows), labelling, (1, 5))
    assert [(row.judge, row.people) for row in (x, y)] == [(4.0, (3.0,)), (None, (2.0,))]
    assert x.cluster == y.cluster == "I am sad."
    with pytest.raises(DataError, match=r"row-000001-x: 'judge_response_x.Empathy' holds 4, outs"):
        read_labelled(written(tmp_path, kind, rows), labelling, (1, 3))


TASK = {"query": "How?", "response": "Four."}


@pytest.mark.parametrize(
    ("pairs", "row", "people"),
    [
        ("query=q,response=a,human=l", {"l": "4 - good"}, (4,)),
        ("query=q,response=a,human=l", {"l": "4 stars"}, (4,)),
        ("query=d.query,response=d.response,human=l", {"l": 4, "d": TASK}, (4,)),
        ("query=q,response=a,human=l", {"l": "4/5"}, (4,)),
        ("query=q,response=a,human=l", {"l": ["4"]}, (4,)),
        ("query=q,response=a,human=l", {"l": '[{"rating": 4}]'}, (4,)),
        ("query=q,response=a,human=l.0.value", {"l": "[{'value': 4}]"}, (4,)),
        ("query=q,response=a,human=l.r.0,human2=l.r.1", {"l.r": [4, 3]}, (4, 3)),
        ("query=q,response=a,human=l.*.v,raters=l.*.u", {"l": [{"v": 4, "u": "a"}]}, (4,)),
        (
            "query=q,response=a,human=l.*.v,raters=l.*.u",
            {"l": [{"v": 4, "u": "a"}, {"v": 3, "u": "b"}]},
            (4, 3),
        ),
        ("query=q,response=a,human=How good, in all? (1-5)", {"How good, in all? (1-5)": 4}, (4,)),
        (
            "query=q,response=a,human=l",
            {"l": 4, "a": {"role": "assistant", "content": "Four."}},
            (4,),
        ),
        (
            "query=q,response=a,human=l",
            {"l": 4, "q": '[{"role": "user", "content": "How?"}]'},
            (4,),
        ),
    ],
)
@pytest.mark.parametrize("form", ["lines", "list", "data"])
def test_labels_as_tools_for_them_write_them(
    tmp_path: Path, pairs: str, row: dict[str, Any], people: tuple[float, ...], form: str
) -> None:
    whole = {"q": "How?", "a": "Four.", **row}
    document = {"lines": whole, "list": [whole], "data": {"page": 1, "data": [whole]}}[form]
    path = tmp_path / "labels.json"
    path.write_text(json.dumps(document) + "\n" + json.dumps(whole) * (form == "lines"))
    first = read_labelled(path, map_columns([pairs], Labelling(columns={})), (1, 5))[0]
    assert (first.fields["query"], first.fields["response"]) == ("How?", "Four.")
    assert first.people == people


def test_a_judges_scores_need_no_response(tmp_path: Path) -> None:
    rows = [{"score": 1, "said": 2}, {"score": 2, "said": ""}]
    mapped = map_columns(["judge=said,human=score"], Labelling(columns={}))
    first, second = read_labelled(written(tmp_path, "csv", rows), mapped, (1, 5))
    assert [first.judge, second.judge] == [2.0, None]
    assert first.cluster != second.cluster


def test_systems_beside_each_other_become_responses_of_their_own(tmp_path: Path) -> None:
    row = {"q": "Who?", "gold": "Ada/A. King", "bad": False}
    row |= {"say_x": "Ada", "ok_x": True, "say_y": None, "ok_y": False}
    columns = {"query": "q", "response": "say_*", "answers": "gold", "skip": "bad"}
    labelling = Labelling(columns=columns, people=("ok_*",), separator="/")
    path = written(tmp_path, "json", [row | {"bad": True}, row])
    responses = read_labelled(path, labelling, (0, 1))
    expected = [("row-000002-x", "Ada", (1.0,)), ("row-000002-y", "", (0.0,))]
    assert [(row.id, row.fields["response"], row.people) for row in responses] == expected
    assert responses[0].fields["answers"] == ["Ada", "A. King"]
    assert responses[0].cluster == responses[1].cluster


def test_nested_labels_words_memory_and_several_people(tmp_path: Path) -> None:
    row = {"q": "Hm?", "a": "x", "k": "A fact.", "by": {"ann": "Fully ", "bo": None}, "of": 7}
    columns = PLAIN.columns | {"memory": "k", "cluster": "of"}
    labelling = Labelling(columns=columns, people=("by.ann", "by.bo"), words={"fully": 1})
    (response,) = read_labelled(written(tmp_path, "json", [row]), labelling, (0, 1))
    assert response.fields["memory"] == {"knowledge": "A fact."}
    assert (response.people, response.cluster) == ((1.0, None), "7")


def test_columns_are_mapped_onto_a_labelling() -> None:
    responses = map_columns(["response=b,human=one", "human2=two"], PLAIN)
    assert responses.columns == {"query": "q", "response": "b"}
    assert responses.people == ("one", "two")
    assert map_columns([], PLAIN).people == ("score",)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("response", "write FIELD=COLUMN"),
        ("respons=a", "did you mean 'response'"),
        ("x=y", r"no field 'x'\. There are: human"),
    ],
)
def test_a_wrong_mapping_says_what_there_is(pair: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        map_columns([pair], PLAIN)


@pytest.mark.parametrize(
    ("columns", "people", "message"),
    [
        ({"query": "q", "response": "answer"}, "score", r"no column 'answer'.*: q, a, score"),
        ({"query": "q", "response": "say_*"}, "score", r"no column fits 'say_\*'; .*: q, a, score"),
        ({**PLAIN.columns, "context": "c_*"}, "score", r"'c_\*' has a \*"),
        ({}, "score", "no column for response"),
        (PLAIN.columns, "", "no column for human"),
    ],
)
def test_a_column_that_is_not_there(
    tmp_path: Path, columns: dict[str, str], people: str, message: str
) -> None:
    labelling = Labelling(columns=columns, people=tuple(people.split()))
    with pytest.raises(ConfigError, match=message):
        read_labelled(written(tmp_path, "csv", ROWS), labelling, (1, 5))


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("good", "'score' holds 'good', not a number"),
        (6, "outside 1 to 5"),
        ("nan", "outside 1 to 5"),
        ([1, 2], "several labels; name who gave each with --map raters"),
        ("4/10", "not a number"),
        ("3 - 4", "not a number"),
    ],
)
def test_a_label_that_is_none(tmp_path: Path, label: Any, message: str) -> None:
    path = written(tmp_path, "json", [ROWS[0], ROWS[1] | {"score": label}])
    with pytest.raises(DataError, match=rf"row-000002: .*{message}"):
        read_labelled(path, PLAIN, (1, 5))


@pytest.mark.parametrize("nothing", [None, " "])
def test_a_response_that_nobody_labelled(tmp_path: Path, nothing: str | None) -> None:
    path = written(tmp_path, "json", [ROWS[0], ROWS[1] | {"score": nothing}])
    with pytest.raises(DataError, match=r"row-000002: no label in 'score'; .*--skip-unlabelled"):
        read_labelled(path, PLAIN, (1, 5))
    assert len(read_labelled(path, PLAIN, (1, 5), skip_unlabelled=True)) == 1
    assert len(read_labelled(path, PLAIN, (1, 5), limit=1)) == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.txt", "", "not a kind of file"),
        ("x.json", "{", "broken JSON"),
        ("x.json", "[1]", "must be a list of objects"),
        ("x.jsonl", "1", "or an object a line"),
        ("x.csv", "a,b\n1,2,3\n", "line 2: has 3 cells, and the header names 2"),
        ("x.parquet", "no", "cannot be read"),
        ("x.json", "[]", "holds no samples"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_labelled(path, PLAIN, (1, 5))
    with pytest.raises(DataError, match="cannot be read"):
        read_labelled(tmp_path / "absent.json", PLAIN, (1, 5))


TOPICAL = "response=system_output,query=source,memory=context,cluster=source,human=scores"


@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data/judge-validation is not here")
@pytest.mark.parametrize(
    ("pairs", "scale", "file", "n", "mean"),
    [
        (
            "response=answer_*,query=question,answers=golden_answer,cluster=question,skip=improper,"
            "human=judge_*",
            (0, 1),
            "evouna_NQ_300.json",
            1130,
            886 / 1130,
        ),
        (f"{TOPICAL}.coherence", (1, 3), "topical_chat_180.json", 180, None),
        (f"{TOPICAL}.groundedness", (0, 1), "topical_chat_180.json", 180, None),
        (f"{TOPICAL}.overall", (1, 5), "topical_chat_180.json", 180, None),
        (
            "response=response,query=message,context=knowledge,cluster=message,human=begin_label",
            (0, 1),
            "begin_dev_wow.tsv",
            430,
            180 / 430,
        ),
    ],
)
def test_the_three_published_files(
    pairs: str, scale: tuple[float, float], file: str, n: int, mean: float | None
) -> None:
    words = {"fully attributable": 1.0, "not fully attributable": 0.0}
    labelling = map_columns([pairs], Labelling(columns={}, separator="/", words=words))
    responses = read_labelled(DATA / file, labelling, scale)
    assert len(responses) == len({response.id for response in responses}) == n
    labels = [label for response in responses for label in response.people if label is not None]
    assert len(labels) == n
    assert mean is None or sum(labels) / n == pytest.approx(mean)
    assert all(response.fields["response"] for response in responses)


HEALTHBENCH = map_columns(
    [
        "response=completion,query=prompt,criterion=rubric,task=category,cluster=prompt_id",
        "raters=anonymized_physician_ids,human=binary_labels",
    ],
    Labelling(columns={}),
)
META = {
    "prompt": [
        {"role": "user", "content": "I have a rash."},
        {"role": "assistant", "content": "Since when?"},
        {"role": "user", "content": "Since today."},
    ],
    "completion": "See a doctor.",
    "rubric": "Asks about fever.",
    "category": "cluster:context_seeking",
    "binary_labels": [True, False],
    "anonymized_physician_ids": ["d1", "d7"],
    "completion_id": "c1",
    "prompt_id": "p1",
    "canary": "x",
}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_healthbenchs_meta_evaluation_is_one_criterion_and_its_physicians(
    tmp_path: Path, kind: str
) -> None:
    other = META | {"binary_labels": [False, False, True], "anonymized_physician_ids": [*"123"]}
    first, second = read_labelled(written(tmp_path, kind, [META, other]), HEALTHBENCH, (0, 1))
    assert first.fields == {
        "id": "row-000001",
        "query": "Since today.",
        "history": META["prompt"][:2],  # type: ignore[index]
        "response": "See a doctor.",
        "task": "cluster:context_seeking",
        "criteria": [{"criterion": "Asks about fever.", "points": 1}],
    }
    assert (first.people, first.raters, first.cluster) == ((1.0, 0.0, None), ("d1", "d7"), "p1")
    assert (second.people, second.raters) == ((0.0, 0.0, 1.0), ("1", "2", "3"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"binary_labels": [True]}, r"row-000001: 1 labels of 2 raters; the one label column must"),
        ({"binary_labels": True}, r"row-000001: 0 labels of 2 raters"),
        ({"binary_labels": [True, "maybe"]}, r"row-000001: 'binary_labels' holds 'maybe', not a"),
        ({"prompt": [{"role": "assistant", "content": "x"}]}, r"row-000001: no turn of the user"),
        ({"prompt": META["prompt"][:2]}, r"row-000001: the conversation must end with the user"),  # type: ignore[index]
    ],
)
def test_labels_that_do_not_fit_their_raters(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, "jsonl", [META | changed])
    with pytest.raises(DataError, match=message):
        read_labelled(path, HEALTHBENCH, (0, 1))
