"""LoCoMo: questions on ten long conversations between two people, in five categories."""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from memray_eval.benchmarks import Answered, Rule, long_context_suite, mean_of
from memray_eval.benchmarks.conversations import (
    Conversation,
    ConversationPrompt,
    Fault,
    Session,
    SpokenTurn,
    as_text,
    check_sessions,
    find_json,
    find_lacking,
    read_turn,
    require,
    sample_id,
    to_context,
    to_question,
)
from memray_eval.benchmarks.longbench.rules import token_f1
from memray_eval.benchmarks.templates.files import Published, known_task
from memray_eval.ports import PublishedFiles, PublishedQuestion
from memray_eval.text_processing.matching import porter_stem
from memray_eval.types import Sample

VERSION = "LoCoMo 3eb6f2c"
# The official map; two others go about, with the same names for other numbers.
TASKS = tuple("multi_hop temporal open_domain single_hop adversarial".split())
TASK_OF_CATEGORY = dict(enumerate(TASKS, 1))
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_NO_ANSWER = ("no information available", "not mentioned")


def score(task: str, prediction: str, answer: str) -> float:
    """The score of one prediction, 0-1. Multi-hop answers and predictions are lists with commas:
    each part of the answer counts by the part that fits it best. An open-domain answer ends at its
    first ";". An adversarial question is right if the prediction says one of two phrases. Raises
    ValueError for another task."""
    if task == "adversarial":
        lower = prediction.lower()
        return float(any(phrase in lower for phrase in _NO_ANSWER))
    if task == "multi_hop":
        parts = [_stems(part) for part in prediction.split(",")]
        wanted = [_stems(part) for part in answer.split(",")]
        return float(np.mean([max(token_f1(part, target) for part in parts) for target in wanted]))
    if task == "open_domain":
        answer = answer.split(";")[0]
    if task not in TASKS:
        raise ValueError(f"LoCoMo has no category {task!r}; there are: {', '.join(TASKS)}")
    return token_f1(_stems(prediction), _stems(answer))


def _stems(text: str) -> list[str]:
    """Stems of lower-case words without punctuation, articles and "and"."""
    bare = text.replace(",", "").lower().translate(_PUNCTUATION)
    return [porter_stem(word) for word in _DROPPED.sub(" ", bare).split()]


def _score_best(sample: Sample, text: str) -> float:
    """The best score over the answers; LoCoMo itself has one per question."""
    answers = ("",) if sample.task == "adversarial" else sample.answers
    if not answers:
        raise ValueError("LoCoMo's F1 compares an answer, and the sample has none")
    return max(score(sample.task, text, answer) for answer in answers)


RULES = {
    "locomo_f1": Rule(
        title="LoCoMo F1",
        value_label="F1",
        about="F1 of stemmed words by category, as LoCoMo scores.",
        version=VERSION,
        score=_score_best,
        by=score,
        why_not=lambda sample: (
            None
            if sample.task in TASKS
            else f"task {sample.task!r} is no category of LoCoMo's; there are: {', '.join(TASKS)}"
        ),
    )
}


_SESSION = re.compile(r"session_(\d+)")
_DIALOG_ID = re.compile(r"D:?(\d+):(\d+)")  # D1:3; the file has "D:11:26" and "D30:05" too
# The right answer for a judge if the conversation has none
UNANSWERED = "Not mentioned in the conversation"


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The questions of one conversation."""
    require(raw, "conversation of LoCoMo's", ("sample_id", "conversation", "qa"))
    name, items = str(raw["sample_id"]), raw["qa"]
    sessions = read_sessions(raw["conversation"])
    context = to_context(sessions)
    session_of = {turn.id: session.id for session in sessions for turn in session.turns}
    if not isinstance(items, list):
        raise ValueError("qa: must be a list of questions")
    for number, item in enumerate(items):
        fields: dict[str, Any] = {"id": f"{name}:qa{number}"}
        where = f"{name}, question {number}"
        if not isinstance(item, Mapping):
            yield PublishedQuestion(where, fields, (("", "a question must be an object"),))
            continue
        faults = find_lacking(item, ("question", "category", "evidence"))
        task = TASK_OF_CATEGORY.get(item.get("category", 0))
        if not faults and task is None:
            faults.append(("category", f"must be 1 to 5, not {item['category']!r}"))
        fields |= {
            "task": task,
            "query": item.get("question"),
            "context": context,
            "answers": read_answers(item, task, faults),
        }
        metadata = {
            "conversation": name,
            "evidence": read_evidence(item.get("evidence"), session_of, faults),
            "unanswerable": task == "adversarial",
        }
        yield to_question(where, fields, metadata, faults, item)


def read_sessions(raw: Any) -> Conversation:
    """The sessions of a conversation by their numbers. Raises ValueError if it has none."""
    if not isinstance(raw, Mapping):
        raise ValueError("conversation: must be an object with session_1, session_2, ...")
    numbers = sorted(
        int(match[1]) for key in raw if (match := _SESSION.fullmatch(key)) and raw[key]
    )
    sessions = []
    for number in numbers:
        name = f"session_{number}"
        if not isinstance(raw[name], list):
            raise ValueError(f"{name}: must be a list of turns")
        date = str(raw.get(f"{name}_date_time", ""))
        sessions.append(Session(f"D{number}", date, tuple(map(_read_turn, raw[name]))))
    return check_sessions(sessions)


def _read_turn(raw: Any) -> SpokenTurn:
    """A turn; a picture is what its caption says."""
    turn = read_turn(raw, str(raw.get("dia_id") if isinstance(raw, Mapping) else raw), "speaker",
                     "text")  # fmt: skip
    if isinstance(caption := raw.get("blip_caption"), str):
        return turn._replace(text=f"{turn.text} [shares a picture: {caption}]".strip())
    return turn


def read_evidence(
    listed: Any, session_of: Mapping[str, str], faults: list[Fault]
) -> list[list[str]]:
    """The turns that a question rests on, with their sessions; what points nowhere is a fault."""
    pairs: list[list[str]] = []
    for item in listed if isinstance(listed, list) else []:
        ids = _turn_ids(item)
        if wrong := [name for name in ids if name not in session_of] or ([] if ids else [item]):
            faults.append(("evidence", f"{wrong[0]!r} is no turn of the conversation"))
        pairs += [[name, session_of[name]] for name in ids if name in session_of]
    return [list(pair) for pair in dict.fromkeys(map(tuple, pairs))]


def _turn_ids(item: Any) -> list[str]:
    return [f"D{int(a)}:{int(b)}" for a, b in _DIALOG_ID.findall(str(item))]


def read_answers(raw: Mapping[str, Any], task: str | None, faults: list[Fault]) -> list[str]:
    """The right answers; for an adversarial question, whatever its `answer`, that there is none."""
    if task == "adversarial":
        return [UNANSWERED]
    answer = as_text(raw.get("answer"))
    if answer is None:
        faults.append(("answer", f"must be a text or a number, not {raw.get('answer')!r:.60}"))
    return [] if answer is None else [answer]


# In our words, the same for every category: a question does not tell which it is of
prompt = ConversationPrompt(
    before="Two people wrote each other over many months. Below is what they wrote, oldest first; "
    "each sitting begins with its date.",
    after="Question: {question}\n\n"
    "Answer from these conversations alone, in as few words as possible: with the exact words used "
    "there where you can, and a date where a time is asked for (not 'yesterday'; work it out from "
    "the date of the sitting). If they do not tell, reply: Not mentioned in the conversation.\n"
    "Answer:",
    max_tokens=64,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a prediction, as vendors write them; its task is its category's name."""
    number = raw["category"]
    if isinstance(number, str) and number.strip().isdigit():
        number = int(number)
    task = TASK_OF_CATEGORY.get(number) if isinstance(number, int) else None
    if task is None:
        task = known_task(str(number), TASKS)
    faults: list[tuple[str, str]] = []
    answers = raw.get("answers") or read_answers(raw, task, faults)
    if faults:
        raise ValueError("; ".join(": ".join(fault) for fault in faults))
    fields: dict[str, Any] = {
        "task": task,
        "query": raw.get("query") or raw.get("question"),
        "answers": answers,
        "unanswerable": task == "adversarial",
    }
    if listed := raw.get("evidence"):
        pieces = [
            [[id_, id_.partition(":")[0]] for id_ in _turn_ids(item)] or [item]
            for item in (listed if isinstance(listed, list) else [listed])
        ]
        found = [piece for several in pieces for piece in several]
        fields["evidence"] = [piece for at, piece in enumerate(found) if piece not in found[:at]]
    if raw.get("question_id") is not None:  # conv-26:qa0, which the audit calls locomo_0_qa0
        fields["id"] = sample_id(str(raw["question_id"]))
        conversation, mark, _ = fields["id"].partition(":qa")
        fields |= {"conversation": conversation} if mark else {}
    return fields


adapt = Published(
    kind="LoCoMo",
    used=("question_id", "question", "query", "answer", "category", "adversarial_answer"),
    tasks=TASKS,
    is_published=lambda raw: "category" in raw and not raw.get("task"),
    lacks="category, or task and query",
    read=_read,
)


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The mean of the F1 over all questions, as LoCoMo's code prints it, if there are adversarial
    ones among them, and over categories 1 to 4, which vendors report."""
    scored = [row for row in answered if "rule_score" in row.values]
    others = [row for row in scored if row.task != "adversarial"]
    figures = {"F1, categories 1 to 4": mean_of(row.values["rule_score"] for row in others)}
    if len(others) < len(scored):
        figures["F1, all five categories"] = mean_of(row.values["rule_score"] for row in scored)
    return figures


SUITE = long_context_suite(
    description="LoCoMo: questions on ten long conversations between two people, the unanswerable "
    "ones among them",
    metrics=("semantic_correctness", "rule_score", "evidence_recall", "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_arms=True,
    files=PublishedFiles(find=find_json, questions=questions),
    overall=overall,
    rules=RULES,
    rule_of=lambda sample: "locomo_f1" if sample.task in TASKS else None,
)
