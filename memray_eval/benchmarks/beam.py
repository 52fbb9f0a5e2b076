"""BEAM: ten abilities of memory, on chats of 100 thousand to 10 million tokens."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyarrow import fs

from memray_eval.benchmarks import Answered, Suite, long_context_suite, mean_of
from memray_eval.benchmarks.conversations import (
    Conversation,
    ConversationPrompt,
    Fault,
    Session,
    as_text,
    check_sessions,
    find_lacking,
    read_turn,
    to_context,
    to_question,
)
from memray_eval.benchmarks.templates.files import (
    assigned_text,
    check_own_record,
    find_file,
    is_own_record,
    parse_python,
)
from memray_eval.errors import ConfigError, reason_of
from memray_eval.ports import PublishedFile, PublishedFiles, PublishedQuestion
from memray_eval.storage.paths import locate, open_reader

VERSION = "BEAM b2a3ee8"
ORDERING = "event_ordering"
METRIC = "beam_rubric"
ITEM_PLACE, RESPONSE_PLACE = "<rubric_item>", "<llm_response>"
_FILE, _NAME = "prompts.py", "unified_llm_judge_base_prompt"

TASK = """
A user asked an assistant a QUESTION about their earlier chats. Decide how far the RESPONSE meets one CRITERION of a good answer.
- 1.0: it meets the criterion in full; where the criterion names several things, all of them.
- 0.5: it meets it in part, or with a slip.
- 0.0: it does not, or it does not answer the question at all.
A criterion may ask for something that must not be there: it is met where the response answers the question without it.
Judge what is meant, not the wording, the length or the style; numbers and dates count in any form.
In reason say in one or two sentences why; then give the score.
"""  # noqa: E501


def read_official(path: str) -> str:
    """The prompt in the user's copy, whose code is never run. Raises ConfigError without one."""
    file = find_file(path, (_FILE, f"src/{_FILE}"))
    text = assigned_text(parse_python(file), _NAME)
    if text is None:
        raise ConfigError(f"templates: {file} assigns no text to {_NAME}")
    for field in (ITEM_PLACE, RESPONSE_PLACE):
        if field not in text:
            raise ConfigError(f"templates: {file}: {_NAME} has no place {field}")
    return text


def fill_official(rubric: str, item: str, response: str) -> str | None:
    """The official prompt as the code fills it, without the question; None for another rubric."""
    if RESPONSE_PLACE not in rubric:
        return None
    before, _, after = rubric.partition(RESPONSE_PLACE)
    filled = (part.replace(ITEM_PLACE, item) for part in (before, after))
    return response.join(filled)


def as_paper(scores: Sequence[float]) -> float:
    """The mean of the rubric items' scores, each 0, 0.5 or 1."""
    return sum(scores) / len(scores)


def as_code(scores: Sequence[float], ability: str) -> float:
    """The same with 0.5 cut to 0, as the code does in nine abilities; event ordering keeps it."""
    return as_paper(scores if ability == ORDERING else [int(score) for score in scores])


class Order(NamedTuple):
    """A comparison of a list of events with the right one. `tau` is Kendall's tau-b laid over 0-1,
    which the code reports as the ability's score; `f1` is that of the events listed; `final` is
    their product, which it computes and does not report."""

    tau: float
    f1: float

    @property
    def final(self) -> float:
        return self.tau * self.f1


def order_score(n_events: int, listed: Sequence[int]) -> Order:
    """Compares the events that a response lists with those of the reference, numbered 1 to n (0:
    none of them). Both lists rank the events of either; what a list lacks ties behind its last. If
    all tie, tau-b is not defined: 0.0 here, NaN in the code."""
    order: list[int] = []
    others = n_events
    for event in listed:
        if event in order or not 1 <= event <= n_events:
            others += 1  # what is listed twice is nothing of the reference the second time
            order.append(others)
        else:
            order.append(event)
    reference = list(range(1, n_events + 1))
    both = list(dict.fromkeys([*reference, *order]))
    last = len(both) + 1
    wanted = [reference.index(item) + 1 if item in reference else last for item in both]
    ranks = [order.index(item) + 1 if item in order else last for item in both]
    hits = len(set(reference) & set(order))
    f1 = 2 * hits / (n_events + len(order)) if hits else 0.0
    tau = kendall_tau_b(wanted, ranks)
    return Order(tau=0.0 if tau is None else (tau + 1) / 2, f1=f1)


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's tau-b; None if all of a list tie."""
    agree = ties_x = ties_y = total = 0
    for first in range(len(x)):
        for second in range(first):
            by_x = (x[first] > x[second]) - (x[first] < x[second])
            by_y = (y[first] > y[second]) - (y[first] < y[second])
            agree += by_x * by_y
            ties_x += by_x == 0
            ties_y += by_y == 0
            total += 1
    scale = math.sqrt((total - ties_x) * (total - ties_y))
    return agree / scale if scale else None


TASKS = tuple(
    "abstention contradiction_resolution event_ordering information_extraction "
    "instruction_following knowledge_update multi_session_reasoning preference_following "
    "summarization temporal_reasoning".split()
)
CHAT, QUESTIONS = "chat.json", "probing_questions.json"
_ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")


def find(path: str) -> list[PublishedFile] | None:
    """The questions of every chat at or below a path, each with its chat beside it."""
    filesystem, inner = locate(path)
    kind = filesystem.get_file_info(inner).type
    if kind == fs.FileType.File and path.endswith(QUESTIONS):
        return [PublishedFile(path, "document", (chat_of(path),))]
    if kind != fs.FileType.Directory:
        return None
    base = inner.rstrip("/")
    below = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
    names = (str(info.path).removeprefix(f"{base}/") for info in below)
    questions = [name for name in names if name.rpartition("/")[2] == QUESTIONS]

    def by_numbers(name: str) -> list[tuple[int, str]]:  # chat 2 comes before chat 10
        parts = re.split(r"(\d+)", name)
        return [(int(part) if part.isdigit() else 0, part) for part in parts]

    paths = [f"{path.rstrip('/')}/{name}" for name in sorted(questions, key=by_numbers)]
    return [PublishedFile(file, "document", (chat_of(file),)) for file in paths] or None


def chat_of(path: str) -> str:
    """The chat that goes with a file of questions, which may be in a folder of its own."""
    folder = path.rpartition("/")[0]
    return f"{folder.removesuffix('/probing_questions')}/{CHAT}"


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The questions on one chat. Raises ValueError if the chat cannot be read."""
    if not isinstance(raw, Mapping) or not set(raw) & set(TASKS):
        raise ValueError(f"no questions of BEAM's: it has none of the abilities {', '.join(TASKS)}")
    sessions = read_chat(chat_of(path))
    context = to_context(sessions)
    session_of = {turn.id: session.id for session in sessions for turn in session.turns}
    name = "/".join(chat_of(path).split("/")[-3:-1])
    for ability, items in raw.items():
        for number, item in enumerate(items if isinstance(items, list) else [items]):
            where = f"{ability}, question {number}"
            fields: dict[str, Any] = {"id": f"{name}:{ability}:{number}"}
            if ability not in TASKS or not isinstance(item, Mapping):
                fault = f"no ability {ability!r}" if ability not in TASKS else "no question"
                yield PublishedQuestion(where, fields, (("", fault),))
                continue
            faults = find_lacking(item, ("question", "rubric"))
            answer = next((text for key in _ANSWERS if (text := as_text(item.get(key)))), None)
            if answer is None:
                faults.append(("answer", f"has none of {', '.join(_ANSWERS)}"))
            metadata = {
                "conversation": name,
                "evidence": _read_evidence(item.get("source_chat_ids"), session_of, faults),
                "unanswerable": ability == "abstention",
                "rubric": read_rubric(item.get("rubric"), faults),
                "bucket": name.partition("/")[0],
            }
            fields |= {
                "task": ability,
                "query": item.get("question"),
                "context": context,
                "answers": [answer],
            }
            yield to_question(where, fields, metadata, faults, item)


def read_chat(path: str) -> Conversation:
    """The sessions of a chat: each group of turns of its batches. Raises ValueError."""
    try:
        with open_reader(*locate(path)) as file:
            raw = json.loads(file.read().decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {reason_of(error)}") from None
    if not isinstance(raw, list) or not all(isinstance(entry, Mapping) for entry in raw):
        raise ValueError(f"{path}: must be a list of batches")
    sessions, times = list[Session](), Counter[str]()
    for number, batch in enumerate(_batches(raw), 1):
        groups = batch.get("turns")
        if not isinstance(groups, list):
            raise ValueError(f"{path}: batch {number} has no turns")
        date = str(batch.get("time_anchor") or "")
        for group in groups:
            if not isinstance(group, list):
                raise ValueError(f"{path}: batch {number}: turns must be lists of messages")
            turns = []
            for message in group:
                if not isinstance(message, Mapping) or message.get("id") is None:
                    raise ValueError(f"{path}: batch {number} has a message without an id")
                id_ = str(message["id"])
                times[id_] += 1
                name = id_ if times[id_] == 1 else f"{id_}#{times[id_]}"
                turns.append(read_turn(message, name))
                date = str(message.get("time_anchor") or date)
            sessions.append(Session(f"S{len(sessions) + 1}", date, tuple(turns)))
    return check_sessions(sessions)


def _batches(raw: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in raw:
        if "turns" in entry or "batch_number" in entry:
            yield entry
            continue
        for plan in entry.values():
            yield from plan if isinstance(plan, list) else ()


def read_rubric(rubric: Any, faults: list[Fault]) -> list[str]:
    """The items of a rubric; a fault if it has none."""
    items = [str(item).strip() for item in rubric] if isinstance(rubric, list) else []
    if not items or not all(items):
        faults.append(("rubric", "must be a list of texts"))
    return items


def _read_evidence(
    sources: Any, session_of: Mapping[str, str], faults: list[Fault]
) -> list[list[str]]:
    """The messages that a question rests on: of lists, also by name."""
    lists = sources.values() if isinstance(sources, Mapping) else [sources]
    ids = [str(source) for ids in lists if isinstance(ids, list) for source in ids]
    if nowhere := [id_ for id_ in ids if id_ not in session_of]:
        faults.append(("source_chat_ids", f"{nowhere[0]} is no message of the chat"))
    return [[id_, session_of[id_]] for id_ in dict.fromkeys(ids) if id_ in session_of]


ORDER_METRIC = "beam_event_order"
# In our words, the same for every ability
prompt = ConversationPrompt(
    before="You are a user's assistant. Below are your earlier chats with this user, oldest first; "
    "each begins with its date where that is known.",
    after="The user now says: {question}\n\n"
    "Answer, using what they and you said in those chats and keeping to what they asked of you "
    "there. Where what they said contradicts itself, say so; where the chats do not tell, say "
    "that.\nAnswer:",
    max_tokens=512,
)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row of our own format as it is. Raises ValueError for others and for unknown abilities."""
    if not is_own_record(raw):
        raise ValueError("not a question of BEAM's: name the folder of its chats as the dataset")
    return check_own_record(raw, TASKS)


def templated(suite: Suite, path: str) -> Suite:
    """With the judge prompt out of the user's copy of the repository. Raises ConfigError."""
    return replace(suite, judge_rubrics={METRIC: read_official(path)})


def overall(answered: Sequence[Answered]) -> dict[str, float | None]:
    """The mean over the abilities, each counting once, in both readings of the rubric. Event
    ordering counts by Kendall's tau-b in either, if that was computed."""
    ordered = [row for row in answered if ORDER_METRIC in row.values]
    other = [row for row in answered if METRIC in row.values and row.task != ORDERING]
    rubrics = ordered or [row for row in answered if METRIC in row.values and row.task == ORDERING]
    metric = ORDER_METRIC if ordered else METRIC
    tau = mean_of(row.values[metric] for row in rubrics)
    tasks = dict.fromkeys(row.task for row in other)
    abilities = [[row for row in other if row.task == task] for task in tasks]
    paper = [mean_of(row.values[METRIC] for row in rows) for rows in abilities]
    code = [mean_of(row.parts.get(METRIC, {}).get("as_code") for row in rows) for rows in abilities]
    return {
        "as the paper says": mean_of([*paper, tau]),
        "as the code has it": mean_of([*code, tau]),
    }


SUITE = long_context_suite(
    description="BEAM: ten abilities of memory on chats of 100 thousand to 10 million tokens",
    metrics=("beam_rubric", "beam_event_order", "semantic_correctness", "evidence_recall",
             "abstention"),
    prompt=prompt,
    adapt=adapt,
    tasks=TASKS,
    has_arms=True,
    files=PublishedFiles(find=find, questions=questions),
    overall=overall,
    templated=templated,
    own_metric="beam_rubric",
)  # fmt: skip
