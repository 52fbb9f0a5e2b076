"""Why units failed: counted by cause, most frequent first, with one example of each."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memray_eval.analysis.reduce import MOST_CAUSES, Reduced, causes_of, reduce_records
from memray_eval.errors import SAID, cause_of
from memray_eval.metrics import all_metrics
from memray_eval.types import Record, Response
from tests.build import build_dataset, build_record, build_sample, build_score

METRICS = [all_metrics()[name] for name in ("safety", "helpfulness")]
ODD = f"Unreadable: h:80 answered 200, but with no completion: choices is empty{SAID}"
# What `cause_of` changes, and what looks like it
PIECES = st.text(max_size=20) | st.sampled_from(
    [SAID, "2 of 6 calls gave no verdict", "abcdefabcdef", "a.1.b", "[3]", "12345",
     "\u0663\u0664\u0665\u0666\u0667", "x" * 299]
)  # fmt: skip


def failed(number: int, *errors: str, answer: str | None = None) -> Record:
    failing = zip(METRICS, errors, strict=False)
    scores = [build_score(metric.name, None, error=error) for metric, error in failing]
    response = Response(text="x", finish_reason="stop", output_tokens=3)
    response = Response(error=answer) if answer else response
    sample = build_sample(id=f"S{number}")
    return build_record(sample, response, *scores, unit_id=f"u{number}")


def reduced(folder: Path, *parts: list[Record]) -> Reduced:
    return reduce_records(build_dataset(folder, *parts), METRICS)


def test_units_are_counted_by_cause_over_all_files(tmp_path: Path) -> None:
    first = [failed(1, ODD + "{1}", ODD + "{2}"), failed(2, ODD + "{3}"), failed(3)]
    second = [
        failed(4, answer="Unavailable: no answer: h refused the connection"),
        failed(5, ODD, "Refused: no"),
        failed(6, "there is no response", "there is no response", answer="JudgeError: gone"),
        failed(1, ODD),
    ]
    summary = reduced(tmp_path, first, second)
    assert (summary.n_units, summary.n_failed_units) == (6, 5)
    assert summary.generation[0].uncounted == 4  # answers without the tokens of their prompts
    assert [(cause.n_units, cause.cause) for cause in summary.causes] == [
        (3, ODD.removesuffix(SAID)),
        (1, "JudgeError: gone"),  # and not what its metrics say of it
        (1, "Refused: no"),
        (1, "Unavailable: no answer: h refused the connection"),
    ]
    assert (summary.causes[0].unit_id, summary.causes[0].example) == ("u1", ODD + "{1}")


def test_a_run_without_failures_has_no_causes_and_many_are_cut(tmp_path: Path) -> None:
    assert reduced(tmp_path / "good", [failed(1), failed(2)]).causes == ()
    many = [failed(number, f"cause {chr(97 + number % 26)}{number // 26}") for number in range(60)]
    assert len(reduced(tmp_path / "many", many).causes) == MOST_CAUSES


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (f"Throttled: 429: too many (code c){SAID}all of it", "Throttled: 429: too many (code c)"),
        ("no answer: 10.0.0.1:54321 reset the call", "no answer: 10.0.0.1:N reset the call"),
        ("claims.12.quote: Field required", "claims.N.quote: Field required"),
        ("of request 0123456789abcdef", "of request N"),
        ("the provider answered 503", "the provider answered 503"),
        ("Malformed: 2 of 6 calls gave no verdict; one", "Malformed: N calls gave no verdict; one"),
    ],
)
def test_what_differs_by_unit_is_left_out_of_a_cause(error: str, cause: str) -> None:
    assert cause_of(error) == cause


@settings(max_examples=200, deadline=None)
@given(texts=st.lists(st.lists(PIECES, max_size=5).map("".join), max_size=5))
def test_the_causes_of_a_column_are_those_of_its_texts(texts: list[str]) -> None:
    texts = [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    assert list(causes_of(pa.array(texts, pa.string()))) == [cause_of(text) for text in texts]


def test_why_judges_failed_whose_verdicts_were_replaced_is_counted(tmp_path: Path) -> None:
    down, odd = "Unavailable: no answer: h refused the connection", "Malformed: no verdict"

    def replaced(number: int, error: str) -> Record:
        score = build_score(METRICS[0].name, judge="string_match", error=error)
        return failed(number).model_copy(update={"scores": (score,)})

    judged = build_score(METRICS[0].name, judge="a/b")
    good = failed(9).model_copy(update={"scores": (judged,)})
    summary = reduced(tmp_path, [replaced(1, down), good], [replaced(2, odd), replaced(3, down)])
    assert (summary.n_failed_units, summary.causes) == (0, ())
    expected = [(down, 2, "u1"), (odd, 1, "u2")]
    assert [(cause.cause, cause.n_units, cause.unit_id) for cause in summary.replaced] == expected
