"""LoCoMo: its questions, and the rules of their scores."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.conversations import evidence_of
from memray_eval.benchmarks.locomo import TASK_OF_CATEGORY, prompt, score
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.scan import Scan
from memray_eval.types import Retrieval
from tests.build import build_sample, score_text
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import by_arm, in_arm, sent
from tests.unit.datasets import builders

SUITE = get_suite("locomo")
READER = SampleReader(
    suite="locomo", adapt=SUITE.adapt, known_tasks=SUITE.tasks, by_context=True, files=SUITE.files
)


def turn(number: int, at: int, speaker: str, text: str, **more: Any) -> dict[str, Any]:
    return {"speaker": speaker, "dia_id": f"D{number}:{at}", "text": text, **more}


def conversation(name: str = "conv-1") -> dict[str, Any]:
    return {
        "sample_id": name,
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                turn(1, 1, "Ann", "I adopted a cat yesterday."),
                turn(1, 2, "Ben", "Look!", blip_caption="a photo of a red kite", img_url=["GOLD"]),
            ],
            "session_2_date_time": "9 June, 2023",
            "session_2": [turn(2, 1, "Ben", "I moved to Porto.")],
            "session_3_date_time": "a date without a session",
        },
        "qa": [
            {"question": "When did Ann adopt a cat?", "answer": "7 May 2023", "category": 2,
             "evidence": ["D1:1"]},
            {"question": "Where did Ben move?", "answer": 2022, "category": 4,
             "evidence": ["D2:1; D:1:02"]},
            {"question": "What did Ann paint?", "category": 5, "evidence": ["D1:1"],
             "adversarial_answer": "GOLD a boat"},
        ],
        "event_summary": "GOLD",
    }  # fmt: skip


def read(tmp_path: Path, *conversations: dict[str, Any], **how: Any) -> tuple[Scan, list[Any]]:
    """The scan, then its problems or, where there are none, its samples."""
    (tmp_path / "locomo.json").write_text(json.dumps(conversations))
    result = builders.read(tmp_path / "locomo.json", READER, **how)
    return result.scan, result.problems or result.items


def test_each_question_of_a_conversation_is_a_sample(tmp_path: Path) -> None:
    answered = conversation("conv-2")  # as LoCoMo's own evaluation leaves it
    answered["qa"] = [{**question, "gpt-4_prediction": "a cat"} for question in answered["qa"]]
    _, samples = read(tmp_path, conversation(), answered)
    assert [sample.id for sample in samples][:4] == [
        "conv-1:qa0", "conv-1:qa1", "conv-1:qa2", "conv-2:qa0",
    ]  # fmt: skip
    first, second, third = samples[:3]
    assert (first.task, first.answers) == ("temporal", ("7 May 2023",))
    about = {"conversation": "conv-1", "evidence": [["D1:1", "D1"]], "unanswerable": False}
    assert first.metadata == about
    assert second.answers == ("2022",)
    assert second.metadata["evidence"] == [["D2:1", "D2"], ["D1:2", "D1"]]
    assert (third.task, third.metadata["unanswerable"]) == ("adversarial", True)
    assert first.context == third.context


def test_a_limit_takes_categories_alike_and_keeps_conversations_together(tmp_path: Path) -> None:
    result, samples = read(tmp_path, conversation(), conversation("conv-2"), limit=4)
    assert result.n_samples == 4
    assert [item.id for item in samples] == ["conv-1:qa0", "conv-1:qa1", "conv-1:qa2", "conv-2:qa0"]


def test_a_prompt_shows_the_conversation_then_the_question(tmp_path: Path) -> None:
    _, samples = read(tmp_path, conversation())
    text = sent(samples[0])
    assert text.index("[1:56 pm on 8 May, 2023]\nAnn: I adopted") < text.index("Ben: I moved")
    assert "Ben: Look! [shares a picture: a photo of a red kite]" in text
    assert text.endswith("Answer:")
    shared = text.index("Question:")
    assert sent(samples[1])[:shared] == text[:shared]  # what the prefix cache serves


def test_each_arm_shows_its_part_and_says_what_it_shows(tmp_path: Path) -> None:
    _, (adopted, moved, _) = read(tmp_path, conversation())
    oracle, nothing = by_arm(adopted)["oracle"], by_arm(moved)["none"]
    assert "Porto" not in oracle
    assert "cat yesterday" in oracle
    assert "Porto" not in nothing
    assert "No earlier conversation is shown" in nothing
    result = prompt(moved, in_arm("retrieved", retrieved=Retrieval(k=1)))
    assert result.about["retrieved"] == ["D2:1"]
    assert "I moved to Porto" in result.messages[0].content
    assert "cat yesterday" not in result.messages[0].content
    session = in_arm("retrieved", retrieved=Retrieval(k=1, unit="session"))
    assert prompt(moved, session).about["retrieved"] == ["D2"]


def test_a_row_may_bring_what_a_memory_system_returned(tmp_path: Path) -> None:
    raw, retrieved = conversation(), in_arm("retrieved")
    raw["qa"][0]["retrieved"] = [{"text": "Ann has a cat", "id": "D1:1"}, "D2:1"]
    raw["qa"][1]["retrieved"] = ["Ben lives in Porto now"]
    _, samples = read(tmp_path, raw)
    result = prompt(samples[0], retrieved)
    assert result.about["retrieved"] == ["D1:1", "D2:1"]
    assert "Ann has a cat\n" in result.messages[0].content
    assert "Ben: I moved to Porto." in result.messages[0].content
    assert prompt(samples[1], retrieved).about["retrieved"] == [""]
    wrong = samples[0].model_copy(update={"metadata": {"retrieved": ["D9:9"]}})
    with pytest.raises(ValueError, match="no turn is called 'D9:9'"):
        prompt(wrong, retrieved)


def test_no_gold_is_ever_in_a_prompt(tmp_path: Path) -> None:
    raw = conversation() | {"observation": "GOLD", "session_summary": "GOLD"}
    for number, question in enumerate(raw["qa"]):
        question["answer"] = f"GOLD answer {number}"
    raw["conversation"]["session_1"][0]["query"] = "GOLD"
    _, samples = read(tmp_path, raw)
    assert len(samples) == 3
    for text in (text for sample in samples for text in by_arm(sample).values()):
        assert not [word for word in ("GOLD", "evidence", *SUITE.tasks) if word in text]


def broken(**changes: Any) -> dict[str, Any]:
    raw = copy.deepcopy(conversation())
    raw["qa"][0] |= changes
    return raw


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (broken(evidence=["D7:1"]), "locomo.json, item 1, conv-1, question 0: sample conv-1:qa0: "
         "evidence: 'D7:1' is no turn of the conversation"),
        (broken(evidence=["D"]), "evidence: 'D' is no turn"),
        (broken(category=6), "category: must be 1 to 5, not 6"),
        (broken(answer=None), "answer: must be a text or a number"),
        (broken(question=None), "question: missing"),
        ({"sample_id": "x", "conversation": {}, "qa": []}, "item 1: the conversation has no sess"),
        ({"sample_id": "x", "qa": []}, "no conversation of LoCoMo's: it lacks conversation"),
        ({"data": 1}, "it lacks sample_id, conversation, qa; has the file another version"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(raw: dict[str, Any], message: str, tmp_path: Path) -> None:
    result, problems = read(tmp_path, raw)
    assert result.n_invalid == 1
    assert message in str(problems[0])


def test_the_other_questions_can_be_read_all_the_same(tmp_path: Path) -> None:
    result, _ = read(tmp_path, broken(evidence=["D7:1"]), conversation("conv-2"))
    samples = builders.items_of(result, READER)
    assert (result.n_samples, result.n_invalid) == (5, 1)
    assert "conv-1:qa0" not in {sample.id for sample in samples}


REAL = REPOSITORY.parent / "shared/data/conversation-memory/locomo_scored_slice.jsonl"


@pytest.mark.parametrize(
    ("evidence", "pairs", "recall"),
    [
        (["D1:3"], [["D1:3", "D1"]], 1.0),  # as the published file has it
        (["D1:3; D:2:01", "D1:3", "D8:1"], [["D1:3", "D1"], ["D2:1", "D2"], ["D8:1", "D8"]], 2 / 3),
        ("D1:3", [["D1:3", "D1"]], 1.0),
        ([["D9:9", "D9"]], [["D9:9", "D9"]], 0.0),
        (["S1", "S2"], ["S1", "S2"], 0.5),  # ids of one's own, not the letters of a pair
    ],
)
def test_a_predictions_evidence_is_its_files(
    evidence: Any, pairs: list[Any], recall: float
) -> None:
    row = {"question_id": "conv-26:qa0", "question": "When?", "answer": "7 May", "category": 2,
           "evidence": evidence}  # fmt: skip
    assert SUITE.adapt(row, "answers.jsonl")["evidence"] == pairs
    metadata = {"evidence": pairs, "retrieved": ["D1:3", "D2:1", "S1"]}
    sample = build_sample(suite="locomo", metadata=metadata)
    assert score_text("evidence_recall", sample, "7 May").value == pytest.approx(recall)


@pytest.mark.parametrize(
    ("piece", "recall"), [(["", "S3"], 1.0), (["S3:4", "S3"], 0.0), (["", "S4"], 0.0)]
)
def test_a_fact_of_a_session_is_found_for_the_whole_session(
    piece: list[str], recall: float
) -> None:
    retrieved = [{"id": "2f6e", "text": "Ann likes tea", "session": "S3"}]
    metadata = {"evidence": [piece], "retrieved": retrieved}
    sample = build_sample(suite="locomo", metadata=metadata)
    assert score_text("evidence_recall", sample, "7 May").value == recall


@pytest.mark.parametrize("evidence", ["D1:3", [3], [["a", "b", "c"]]])
def test_evidence_that_cannot_be_read_is_named(evidence: Any) -> None:
    with pytest.raises(ValueError, match=r"^metadata\.evidence: "):
        evidence_of(build_sample(metadata={"evidence": evidence, "retrieved": ["D1:3"]}))


def test_another_category_is_refused() -> None:
    with pytest.raises(ValueError, match="no category 'other'"):
        score("other", "a", "b")


@pytest.mark.skipif(not REAL.is_file(), reason="../shared/data/conversation-memory is not here")
def test_every_published_score_is_met_to_a_millionth() -> None:
    rows = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]
    assert len(rows) == 233
    for row in rows:
        own = score(TASK_OF_CATEGORY[row["category"]], row["prediction"], str(row["answer"]))
        assert own == pytest.approx(row["official_f1"], abs=1e-6)
