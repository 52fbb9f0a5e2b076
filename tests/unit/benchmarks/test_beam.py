import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from scipy.stats import kendalltau

from memray_eval.benchmarks import Answered, get_suite
from memray_eval.benchmarks.beam import (
    as_code,
    as_paper,
    fill_official,
    kendall_tau_b,
    order_score,
    overall,
    read_official,
)
from memray_eval.datasets.parsing import Problem
from memray_eval.errors import ConfigError, Malformed
from memray_eval.metrics import pick
from memray_eval.types import Usage
from tests.build import build_record, build_sample, judge_metrics
from tests.conftest import REPOSITORY
from tests.fake_judges import FakeJudge
from tests.unit.benchmarks.records import by_arm, read_folder

SUITE = get_suite("beam")
EXAMPLES = REPOSITORY / "dataset" / "beam" / "chats"
RUBRIC, ORDER = pick(["beam_rubric", "beam_event_order"])


def read(path: Path) -> list[Any]:
    return read_folder(path, "beam")


def chat(tmp_path: Path, questions: Any, batches: Any = None) -> Path:
    folder = tmp_path / "100K" / "7"
    folder.mkdir(parents=True)
    message = {"role": "user", "id": 0, "content": "I ran twice. ->-> 1,1"}
    turns = [[message, {"role": "assistant", "id": 1, "content": "Well done."}]]
    batch = [{"batch_number": 1, "time_anchor": "March-15-2024", "turns": turns}]
    (folder / "chat.json").write_text(json.dumps(batch if batches is None else batches))
    (folder / "probing_questions.json").write_text(json.dumps(questions))
    return tmp_path


def question(**changes: Any) -> dict[str, Any]:
    return {
        "question": "How often did I run?",
        "answer": "GOLD twice",
        "source_chat_ids": {"first": [0], "second": [0]},
        "rubric": ["LLM response should state: GOLD twice"],
    } | changes


def test_a_chat_of_all_ten_abilities_is_read() -> None:
    samples = read(EXAMPLES)
    assert len(samples) == 20
    assert {sample.task for sample in samples} == set(SUITE.tasks)
    assert [sample.id for sample in samples][:2] == [
        "100K/1:abstention:0", "100K/1:contradiction_resolution:0",
    ]  # fmt: skip
    first = samples[1]
    assert first.metadata["evidence"] == [["2", "S1"], ["10", "S4"]]
    assert len(first.metadata["rubric"]) == 3
    assert samples[0].metadata["unanswerable"] is True


def test_the_plans_of_the_longest_chats_are_read(tmp_path: Path) -> None:
    turns = [[[{"role": "user", "id": 0, "content": f"In plan {n}"}]] for n in (0, 1)]
    batches = [{f"plan-{n}": [{"batch_number": 1, "turns": turns[n]}]} for n in (0, 1)]
    [sample] = read(chat(tmp_path, {"temporal_reasoning": [question()]}, batches))
    assert "In plan 0" in sample.context
    assert "In plan 1" in sample.context


def test_no_gold_is_ever_in_a_prompt(tmp_path: Path) -> None:
    [sample] = read(chat(tmp_path, {"multi_session_reasoning": [question()]}))
    for text in by_arm(sample).values():
        assert "GOLD" not in text
        assert "multi_session" not in text


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ({"temporal_reasoning": [question(source_chat_ids=[9])]}, "source_chat_ids: 9 is no messa"),
        ({"temporal_reasoning": [question(rubric=[])]}, "rubric: must be a list of texts"),
        ({"temporal_reasoning": [question(answer=None)]}, "answer: has none of answer, ideal_answ"),
        ({"temporal_reasoning": [question()], "juggling": [{}]}, "no ability 'juggling'"),
        ({"other": 1}, "no questions of BEAM's: it has none of the abilities abstention"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(questions: Any, message: str, tmp_path: Path) -> None:
    (problem,) = (item for item in read(chat(tmp_path, questions)) if isinstance(item, Problem))
    assert "probing_questions.json" in str(problem)
    assert message in str(problem)


def test_a_chat_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    path = chat(tmp_path, {"temporal_reasoning": [question()]}, [])
    assert "the conversation has no sessions" in str(read(path)[0])
    (path / "100K/7/chat.json").unlink()
    assert "100K/7/chat.json cannot be read" in str(read(path)[0])


def test_both_readings_of_the_same_verdicts_differ_where_they_must() -> None:
    scores = [1.0, 0.5, 0.0, 0.5]
    assert (as_paper(scores), as_code(scores, "summarization")) == (0.5, 0.25)
    assert as_code(scores, "event_ordering") == 0.5
    assert as_paper([1.0, 0.0]) == as_code([1.0, 0.0], "summarization") == 0.5


@pytest.mark.parametrize(
    ("x", "y"), [([1, 2, 3], [1, 3, 2]), ([1, 2, 2, 4], [1, 1, 3, 2]), ([1, 2, 6, 6], [2, 1, 3, 6])]
)
def test_tau_b_is_scipys(x: list[float], y: list[float]) -> None:
    assert kendall_tau_b(x, y) == pytest.approx(kendalltau(x, y, variant="b").statistic)
    assert kendall_tau_b([1, 1], [1, 2]) is None  # of ties alone it is not defined
    assert order_score(2, []).tau == 0.0


def test_an_order_is_compared_over_the_events_of_both_lists() -> None:
    assert order_score(3, [1, 2, 3]) == (1.0, 1.0)
    assert order_score(3, [3, 2, 1]) == (0.0, 1.0)
    one_missing = order_score(3, [1, 2])
    assert one_missing.f1 == pytest.approx(0.8)
    wanted = kendalltau([1, 2, 3], [1, 2, 4], variant="b").statistic
    assert one_missing.tau == pytest.approx((wanted + 1) / 2)
    # something that is none of the events, and one listed twice
    assert order_score(2, [0, 1, 2]).f1 == pytest.approx(0.8)
    assert order_score(2, [1, 1, 2]) == order_score(2, [1, 0, 2])
    assert order_score(2, [1, 2]).final == 1.0


OFFICIAL = 'other = """x"""\nunified_llm_judge_base_prompt = """Q <question> I <rubric_item> R <llm_response> E"""\n'  # noqa: E501


def test_the_official_prompt_is_filled_as_the_code_fills_it(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "prompts.py").write_text(OFFICIAL)
    official = read_official(str(tmp_path))
    assert fill_official(official, "an item", "<rubric_item> said") == (
        "Q <question> I an item R <rubric_item> said E"  # the question's place stays empty
    )
    assert fill_official("our words", "i", "r") is None
    assert get_suite("beam", str(tmp_path)).judge_rubrics == {"beam_rubric": official}
    (tmp_path / "src" / "prompts.py").write_text("x = 1")
    with pytest.raises(ConfigError, match="assigns no text to unified_llm_judge_base_prompt"):
        read_official(str(tmp_path))


def by_words(text: str, judgment: type[BaseModel]) -> BaseModel | Exception:
    """Scores items by their texts; fails on one that says so."""
    if "FAILS" in text:
        error = Malformed("no JSON")
        error.calls = 1
        return error
    score = next(value for word, value in (("full", 1.0), ("half", 0.5), ("", 0.0)) if word in text)
    return judgment(reason="r", score=score)


def judged(rubric: list[str], task: str = "summarization") -> tuple[FakeJudge, Any]:
    sample = build_sample(suite="beam", task=task, answers=["x"], metadata={"rubric": rubric})
    usage = Usage(input_tokens=10, output_tokens=1)
    judge = FakeJudge(by_words, "fake/judge", cost_usd=0.25, usage=usage)
    record = build_record(sample, "words")
    return judge, judge_metrics(record, [RUBRIC], {"beam_rubric": [judge]}).scores[0]


def test_each_item_is_one_call_and_all_are_one_score() -> None:
    judge, score = judged(["full item", "half item", "none"])
    assert len(judge.seen) == 3
    assert (score.value, score.parts["as_code"]) == (0.5, pytest.approx(1 / 3))
    assert (score.calls, score.cost_usd, score.usage.input_tokens) == (3, 0.75, 30)
    assert [item["score"] for item in json.loads(score.judgment)["items"]] == [1.0, 0.5, 0.0]
    _, score = judged(["half item"], "event_ordering")
    assert (score.value, score.parts["as_code"]) == (0.5, 0.5)  # which keeps its halves


def test_an_item_without_a_verdict_is_no_score_and_what_the_others_cost_is_kept() -> None:
    _, score = judged(["full item", "FAILS", "half item"])
    assert (score.status, score.value) == ("error", None)
    assert (score.cost_usd, score.calls, score.usage.input_tokens) == (0.5, 3, 20)


def test_an_order_is_asked_of_event_ordering_alone() -> None:
    ordering, summary = (build_sample(task=task) for task in ("event_ordering", "summarization"))
    assert ORDER.applies(ordering) is None
    assert ORDER.applies(summary) == "summarization asks for no order; event_ordering does"


def test_overall_figures_count_each_ability_once_in_both_readings() -> None:
    answered = [
        Answered(task, False, values, {"beam_rubric": {"as_code": code}})
        for task, values, code in (
            ("summarization", {"beam_rubric": 0.5}, 0.0),
            ("summarization", {"beam_rubric": 1.0}, 1.0),
            ("temporal_reasoning", {"beam_rubric": 0.5}, 0.5),
            ("event_ordering", {"beam_rubric": 0.0, "beam_event_order": 0.8}, 0.0),
        )
    ]
    paper, code = (0.75 + 0.5 + 0.8) / 3, (0.5 + 0.5 + 0.8) / 3
    figures = {"as the paper says": paper, "as the code has it": code}
    assert overall(answered) == pytest.approx(figures)
