"""LongMemEval: 500 questions of six types on a user's earlier chats, some unanswerable."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memray_eval.benchmarks import Answered, Suite, long_context_suite, mean_of, mean_of_tasks
from memray_eval.benchmarks.conversations import (
    Conversation,
    ConversationPrompt,
    Fault,
    Session,
    as_text,
    check_sessions,
    find_json,
    find_lacking,
    find_named,
    read_turn,
    require,
    to_context,
    to_question,
)
from memray_eval.benchmarks.templates.files import (
    Published,
    find_file,
    known_task,
    parse_python,
    texts_by_condition,
)
from memray_eval.errors import ConfigError
from memray_eval.ports import PublishedFile, PublishedFiles, PublishedQuestion
from memray_eval.types import Candidate, Prompt, Sample

METRIC = "longmemeval_judge"
TASKS = tuple(
    "single-session-user single-session-assistant single-session-preference multi-session "
    "temporal-reasoning knowledge-update".split()
)
ABSTENTION = "_abs"  # in the id of a question that cannot be answered
UNANSWERABLE = "abstention"
_FILE = "evaluate_qa.py"

TASK = """
A user asked an assistant a QUESTION about their earlier chats. Decide whether the RESPONSE is right, by the REFERENCE.
Write in `reply` one word, yes or no.
"""  # noqa: E501
_ANSWER = (
    "Yes if the response gives the reference's answer, means the same, or holds every step that "
    "leads to it. No if it gives only a part of what the reference asks for."
)
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("single-session-user", "single-session-assistant", "multi-session"), _ANSWER),
    "temporal-reasoning": f"{_ANSWER} A count of days, weeks or months that is off by one is right "
    "too.",
    "knowledge-update": f"{_ANSWER} Where the response tells an earlier state beside the new one, "
    "it is right as long as it gives the new one as the answer.",
    "single-session-preference": "The reference says what a response that suits this user looks "
    "like. Yes if the response recalls what the user has told of themselves and uses it rightly; "
    "it need not meet every point.",
    UNANSWERABLE: "The question cannot be answered from the chats; the reference says why. Yes if "
    "the response sees that it cannot be answered, for instance because something else is known "
    "and what was asked is not. No if it answers all the same.",
}


def read_official(path: str) -> str:
    """The five prompts in the user's copy, as a rubric for the metric: JSON by kind. The code is
    read, never run. Raises ConfigError that names what is not there."""
    file = find_file(path, (_FILE, f"src/evaluation/{_FILE}", f"evaluation/{_FILE}"))
    texts = texts_by_condition(parse_python(file), "template")
    kinds: dict[str, str] = {}
    for kind in (*TASKS, UNANSWERABLE):
        if (text := texts.get(kind)) is None:
            raise ConfigError(f"templates: {file} has no judge prompt for {kind}")
        kinds[kind] = text
        if text.count("{}") != 3:
            raise ConfigError(
                f"templates: {file}: the judge prompt for {kind} has {text.count('{}')} places "
                "{}, not three"
            )
    return json.dumps(kinds, ensure_ascii=False, sort_keys=True)


def fill_official(rubric: str, kind: str, question: str, answer: str, response: str) -> str | None:
    """The official prompt for a kind of question, None if the rubric is not a set of official ones.
    Raises ValueError for a kind that they do not have."""
    if not rubric.startswith("{"):
        return None
    if kind not in KINDS:
        raise ValueError(f"LongMemEval has no type {kind!r}; there are: {', '.join(KINDS)}")
    before, middle, last, after = json.loads(rubric)[kind].split("{}")
    return f"{before}{question}{middle}{answer}{last}{response}{after}"


_PREFIX = "longmemeval_"
_HAYSTACK = ("haystack_sessions", "haystack_session_ids", "haystack_dates")


def find(path: str) -> list[PublishedFile] | None:
    """As `find_json`, and the files that the hub has without an ending, such as longmemeval_s."""
    bare = find_named(path, lambda name: name.startswith(_PREFIX) and "." not in name)
    return [PublishedFile(file, "json") for file in bare] or find_json(path)


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The question of one record."""
    require(raw, "question of LongMemEval's", ("question_id", "question_type", "question"))
    name = str(raw["question_id"])
    faults = find_lacking(raw, ("answer", "question_date", "answer_session_ids", *_HAYSTACK))
    if raw["question_type"] not in TASKS:
        types = ", ".join(TASKS)
        faults.append(("question_type", f"no type {raw['question_type']!r}; there are: {types}"))
    answer, asked_on = as_text(raw.get("answer")), raw.get("question_date")
    if answer is None and "answer" not in dict(faults):
        faults.append(("answer", f"must be a text or a number, not {raw['answer']!r:.60}"))
    context, evidence = None, list[list[str]]()
    if not faults:
        try:
            sessions, marked = read_haystack(raw)
            context = to_context(sessions)
            evidence = _read_evidence(raw["answer_session_ids"], sessions, marked, faults)
        except ValueError as error:
            faults.append(("haystack_sessions", str(error)))
    metadata = {
        "conversation": name.replace(ABSTENTION, ""),
        "evidence": evidence,
        "unanswerable": ABSTENTION in name,
        "question_date": str(asked_on),
    }
    fields = {
        "id": name,
        "task": raw["question_type"],
        "query": raw["question"],
        "context": context,
        "answers": [] if answer is None else [answer],
    }
    yield to_question(f"question {name}", fields, metadata, faults, raw)


def read_haystack(raw: Mapping[str, Any]) -> tuple[Conversation, set[str]]:
    """The sessions, oldest first, and the ids (SESSION:NUMBER) of the turns that are marked as
    evidence. Raises ValueError for lists of different lengths, and for what is not a session."""
    sessions, ids, dates = (raw[name] for name in _HAYSTACK)
    if not all(isinstance(listed, list) for listed in (sessions, ids, dates)):
        raise ValueError("haystack_sessions, haystack_session_ids, haystack_dates must be lists")
    if not len(sessions) == len(ids) == len(dates):
        raise ValueError(
            f"{len(sessions)} sessions, {len(ids)} ids and {len(dates)} dates do not fit each other"
        )
    haystack, marked, times = [], set[str](), Counter[str]()
    for turns, id_, date in zip(sessions, ids, dates, strict=True):
        times[str(id_)] += 1
        name = str(id_) if times[str(id_)] == 1 else f"{id_}#{times[str(id_)]}"
        if not isinstance(turns, list):
            raise ValueError(f"session {name}: must be a list of turns")
        read = tuple(read_turn(turn, f"{name}:{at}") for at, turn in enumerate(turns))
        marked |= {turn.id for turn, raw in zip(read, turns, strict=True) if raw.get("has_answer")}
        haystack.append(Session(name, str(date), read))
    return check_sessions(haystack), marked


def _read_evidence(
    ids: Any, sessions: Conversation, marked: set[str], faults: list[Fault]
) -> list[list[str]]:
    """The marked turns of the sessions that hold the answer; a whole session without any."""
    turns = {part.id: [turn.id for turn in part.turns if turn.id in marked] for part in sessions}
    if not isinstance(ids, list):
        faults.append(("answer_session_ids", "must be a list of ids"))
        return []
    if nowhere := [name for name in map(str, ids) if name not in turns]:
        faults.append(("answer_session_ids", f"{nowhere[0]!r} is no session of the haystack"))
    return [[turn, name] for name in map(str, ids) if name in turns for turn in turns[name] or [""]]


WORDING = ConversationPrompt(
    before="You are a user's assistant. Below are your earlier chats with this user, oldest first; "
    "each begins with its date.",
    after="{question}\n\n"
    "Answer the user, using what they and you said in those chats. Where the newest chat changes "
    "what an earlier one said, the newest holds. If the chats do not tell what is asked, say so.\n"
    "Answer:",
    max_tokens=256,
)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A question with a hypothesis, as the benchmark's runs write them with its questions."""
    name = str(raw.get("question_id") or raw.get("id") or "")
    sessions = raw.get("answer_session_ids")
    fields = {
        "task": known_task(raw["question_type"], TASKS),
        "query": raw.get("query") or raw.get("question"),
        "answers": raw.get("answers")
        or ([str(raw["answer"])] if raw.get("answer") is not None else []),
        "unanswerable": ABSTENTION in name,
        "conversation": name.replace(ABSTENTION, ""),
    }
    if isinstance(sessions, list):
        fields["evidence"] = [["", str(session)] for session in sessions]
    if name:
        fields["id"] = name
    if isinstance(raw.get("hypothesis"), str):
        fields["response"] = raw["hypothesis"]
    return fields


adapt = Published(
    kind="LongMemEval",
    used=("question_id", "question_type", "question", "hypothesis", "answer", "answer_session_ids"),
    tasks=TASKS,
    is_published=lambda raw: "question_type" in raw and not raw.get("task"),
    lacks="question_type",
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words, the same for every type, with the day on which the user asks."""
    asked_on = sample.metadata.get("question_date")
    when = f"Today is {asked_on}. " if asked_on else ""
    return WORDING.ask(sample, candidate, f"{when}The user now asks: {sample.query}")


def templated(suite: Suite, path: str) -> Suite:
    """With the benchmark's own judge prompts, out of the user's copy of its repository or of its
    evaluate_qa.py. Raises ConfigError that names what is not there."""
    return replace(suite, judge_rubrics={METRIC: read_official(path)})


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """As print_qa_metrics.py has it: abstention questions count within their types too."""
    scored = [row for row in answered if METRIC in row.values]
    return {
        "task-averaged accuracy": mean_of_tasks(scored, METRIC),
        "overall accuracy": mean_of(row.values[METRIC] for row in scored),
        "abstention accuracy": mean_of(row.values[METRIC] for row in scored if row.is_unanswerable),
    }


SUITE = long_context_suite(
    description="LongMemEval: questions on a user's earlier chats with an assistant, the "
    "unanswerable ones among them",
    metrics=("semantic_correctness", "longmemeval_judge", "evidence_recall", "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_arms=True,
    files=PublishedFiles(find=find, questions=questions),
    overall=overall,
    templated=templated,
    own_metric="longmemeval_judge",
)
