import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import Answered, get_suite
from memray_eval.benchmarks.longmemeval import KINDS, fill_official, overall, read_official
from memray_eval.errors import ConfigError
from memray_eval.types import Response, Sample
from tests.build import build_sample, judged_metric, score_judgment
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import by_arm, read_folder

REAL = REPOSITORY.parent / "shared/data/conversation-memory/longmemeval_questions.jsonl"
METRIC = judged_metric("longmemeval_judge")

OFFICIAL = """
def get_anscheck_prompt(task, question, answer, response, abstention=False):
    if not abstention:
        if task in ['single-session-user', 'single-session-assistant', 'multi-session']:
            template = "A {} B {} C {} D"
        elif task == 'temporal-reasoning':
            template = "T {} {} {}"
        elif task == 'knowledge-update':
            template = "K {} {} {}"
        elif task == 'single-session-preference':
            template = "P {} {} {}"
        else:
            raise NotImplementedError
    else:
        template = "N {} {} {}"
    return template.format(question, answer, response)
raise SystemExit("this is never run")
"""


def question(**changes: Any) -> dict[str, Any]:
    return {
        "question_id": "q1",
        "question_type": "multi-session",
        "question": "How many runs?",
        "answer": 3,
        "question_date": "2024/05/20",
        "haystack_session_ids": ["s1", "answer_1", "answer_2"],
        "haystack_dates": ["d1", "d2", "d3"],
        "haystack_sessions": [
            [{"role": "user", "content": "Hi"}],
            [
                {"role": "user", "content": "I ran twice.", "has_answer": True},
                {"role": "assistant", "content": "Well done.", "has_answer": False},
            ],
            [{"role": "user", "content": "I ran once more."}],
        ],
        "answer_session_ids": ["answer_1", "answer_2"],
    } | changes


def read(tmp_path: Path, *rows: dict[str, Any]) -> list[Any]:
    path = tmp_path / "longmemeval_s.json"
    path.write_text(json.dumps(rows))
    return read_folder(path, "longmemeval")


def test_a_question_and_its_haystack_become_a_sample(tmp_path: Path) -> None:
    sample, abstention = read(tmp_path, question(), question(question_id="q1_abs"))
    assert (sample.id, sample.task, sample.answers) == ("q1", "multi-session", ("3",))
    assert sample.metadata == {
        "conversation": "q1",
        "evidence": [["answer_1:0", "answer_1"], ["", "answer_2"]],
        "unanswerable": False,
        "question_date": "2024/05/20",
    }
    assert (abstention.task, abstention.metadata["unanswerable"]) == ("multi-session", True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answer_session_ids": ["gone"]}, "answer_session_ids: 'gone' is no session of the hays"),
        ({"haystack_dates": ["d1"]}, "3 sessions, 3 ids and 1 dates do not fit each other"),
        ({"haystack_sessions": [], "haystack_dates": [], "haystack_session_ids": []},
         "haystack_sessions: the conversation has no sessions with turns"),
        ({"haystack_sessions": None}, "haystack_sessions: missing"),
        ({"question_type": "other"}, "question_type: no type 'other'; there are: single-session"),
        ({"haystack_sessions": [[{"role": "user"}], [], []]}, "turn s1:0: content is no text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    [problem] = read(tmp_path, question(**changes))
    assert "longmemeval_s.json, item 1, question q1: sample q1: " in str(problem)
    assert message in str(problem)


def test_a_file_of_another_benchmark_is_refused(tmp_path: Path) -> None:
    [problem] = read(tmp_path, {"sample_id": "conv-1", "conversation": {}})
    assert "no question of LongMemEval's: it lacks question_id" in str(problem)


def test_no_gold_is_ever_in_a_prompt(tmp_path: Path) -> None:
    [sample] = read(tmp_path, question(answer="GOLD", answer_session_ids=["answer_1"]))
    texts = by_arm(sample)
    for text in texts.values():
        # a session's id tells that it holds the answer
        assert not [
            word for word in ("GOLD", "multi-session", "answer_1", "has_answer") if word in text
        ]
        assert "Today is 2024/05/20. The user now asks: How many runs?" in text
    assert "I ran twice" in texts["oracle"]
    assert "once more" not in texts["oracle"]


def of_type(task: str, unanswerable: bool = False) -> Sample:
    metadata = {"unanswerable": unanswerable}
    return build_sample(
        suite="longmemeval", task=task, query="Q?", answers=["A"], metadata=metadata
    )


def test_the_official_prompts_are_read_and_filled_and_the_code_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "src" / "evaluation"
    path.mkdir(parents=True)
    (path / "evaluate_qa.py").write_text(OFFICIAL)
    official = read_official(str(tmp_path))
    assert set(json.loads(official)) == set(KINDS)
    for task, letter in (("multi-session", "A"), ("temporal-reasoning", "T")):
        [message] = METRIC.messages(of_type(task), Response(text="R {}"), official)
        assert message.role == "user"
        assert message.content.startswith(f"{letter} Q? ")
        assert message.content.split()[-2:] in (["{}", "D"], ["R", "{}"])
    [abstention] = METRIC.messages(of_type("multi-session", True), Response(text="R"), official)
    assert abstention.content == "N Q? A R"
    assert get_suite("longmemeval", str(tmp_path)).judge_rubrics == {"longmemeval_judge": official}
    with pytest.raises(ValueError, match="no type 'other'"):
        fill_official(official, "other", "Q", "A", "R")


def test_what_the_copy_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has none of evaluate_qa\.py"):
        read_official(str(tmp_path))
    file = tmp_path / "evaluate_qa.py"
    file.write_text(OFFICIAL.replace("'knowledge-update'", "'other'"))
    with pytest.raises(ConfigError, match="no judge prompt for knowledge-update"):
        read_official(str(file))
    file.write_text(OFFICIAL.replace("T {} {} {}", "T {} {}"))
    with pytest.raises(ConfigError, match="for temporal-reasoning has 2 places"):
        read_official(str(file))
    file.write_text("def broken(:")
    with pytest.raises(ConfigError, match="is no Python code"):
        read_official(str(file))


@pytest.mark.parametrize(
    ("reply", "value"), [("Yes.", 1.0), ("no", 0.0), ("Yesterday", 1.0), ("NO, yes", 1.0)]
)
def test_the_label_is_whether_the_reply_holds_yes(reply: str, value: float) -> None:
    judgment = METRIC.judgment.model_validate({"reply": reply})
    assert score_judgment(METRIC, judgment, of_type("multi-session")).value == value


def test_overall_figures_are_those_of_the_benchmark() -> None:
    def answer(task: str, value: float, unanswerable: bool = False) -> Answered:
        return Answered(task, unanswerable, {"longmemeval_judge": value}, {})

    answered = [answer("a", 1.0), answer("a", 0.0), answer("a", 0.0, True), answer("b", 1.0)]
    figures = {"task-averaged accuracy": (1 / 3 + 1) / 2, "overall accuracy": 0.5}
    assert overall(answered) == pytest.approx(figures | {"abstention accuracy": 0.0})
    assert overall([])["overall accuracy"] is None


@pytest.mark.skipif(not REAL.is_file(), reason="../shared/data/conversation-memory is not here")
def test_all_500_questions_load_against_haystacks_of_their_format(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]
    for row in rows:
        ids = [*row["answer_session_ids"], f"filler_{row['question_id']}"]
        row["haystack_session_ids"], row["haystack_dates"] = ids, ["2023/05/20"] * len(ids)
        turns = ([{"role": "user", "content": f"about {name}"}] for name in ids)
        row["haystack_sessions"] = list(turns)
    samples = read(tmp_path, *rows)
    assert len(samples) == 500
    assert all(isinstance(sample, Sample) for sample in samples)
    unanswerable = {sample.id for sample in samples if sample.metadata["unanswerable"]}
    assert unanswerable == {row["question_id"] for row in rows if "_abs" in row["question_id"]}
    assert len(unanswerable) == 30
