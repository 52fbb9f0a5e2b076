"""The write side of a memory: the 41 cases of the memory suite as scripts of two sessions: stated
in the first, asked for in a new one. What the store holds afterwards, and returns, is scored by its
content; the words of replies are not."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from memray_eval.benchmarks import Rule, long_context_suite, mean_of
from memray_eval.benchmarks.conversations import (
    ConversationPrompt,
    Session,
    SpokenTurn,
    find_json,
    to_context,
    word_stems,
)
from memray_eval.benchmarks.memory.generator import Case, load_cases
from memray_eval.benchmarks.templates.files import check_own_record
from memray_eval.ports import PublishedFiles, PublishedQuestion
from memray_eval.text_processing.denials import says
from memray_eval.types import Sample
from memray_eval.types.samples import ASKED_BY, MEMORY, WRITES

TELLS = 0.6  # of the words of a fact, in one entry: that entry tells it
TASKS = ("claimed", "unclaimed", "duplicates", "superseded", "forgotten", "secret", "other_user")
_WORDINGS = (
    "About my {name}: {value}.",
    "As I said, my {name} is this: {value}.",
    "Just so that it is clear, {value}, that is my {name}.",
    "You may want to know of my {name}, namely {value}.",
    "{value}: so much for my {name}.",
)


class Script(NamedTuple):
    """The facts of a case, as (key, value), that its user tells again and again (`repeated`), wants
    forgotten (`forgotten`), and that the assistant says it will not keep (`unclaimed`)."""

    case: Case
    repeated: tuple[str, str]
    forgotten: tuple[str, str]
    unclaimed: tuple[str, str]


@cache
def scripts() -> dict[str, Script]:
    """The scripts by the names of their cases."""
    return {case.id: _script(case) for case in load_cases()}


def _script(case: Case) -> Script:
    """Facts whose values have the most words: values of few words are easily confused."""

    def longest(entries: Mapping[str, str], *but: str) -> list[tuple[str, str]]:
        left = [(key, text) for key, text in entries.items() if key not in but]
        return sorted(left, key=lambda entry: -len({*word_stems(entry[1])}))

    facts = longest({**case.required, **case.neutral}, case.deciding, "name")
    return Script(case, facts[0], facts[1], longest(case.tempting, case.secret.key)[0])


def first_session(script: Script) -> Session:
    """The session in which the user tells, and the assistant says what it will keep."""
    case = script.case
    hidden = case.tempting[case.secret.key]
    forgotten, unclaimed = script.forgotten, script.unclaimed
    value = script.repeated[1]
    pairs = [
        (f"I am {case.neutral['name']}. My {_words(case.deciding)}: {case.earlier.value}.",
         "I will remember that."),
        *((wording.format(name=_words(script.repeated[0]), value=value), "I have noted that.")
          for wording in _WORDINGS),
        (f"My {_words(forgotten[0])}: {forgotten[1]}.", "I have noted that."),
        (f"By the way, {_words(unclaimed[0])}: {unclaimed[1]}.", "I will not keep that."),
        (f"Between us, {_words(case.secret.key)}: {hidden}. Remember that there is something about "
         "it, and none of the details.", "I will keep the matter in mind, without its details."),
        (f"{case.told_in_history} So from now on, my {_words(case.deciding)} is "
         f"{case.required[case.deciding]}.", "I will remember the change."),
        (f"Please forget what I said of my {_words(forgotten[0])}.", "I have deleted it."),
    ]  # fmt: skip
    turns = [
        SpokenTurn(f"S1:{2 * number + part}", speaker, text)
        for number, pair in enumerate(pairs)
        for part, (speaker, text) in enumerate(zip(("user", "assistant"), pair, strict=True), 1)
    ]
    return Session("S1", "", tuple(turns))


def _words(key: str) -> str:
    return key.replace("_", " ")


def questions(raw: Any, path: str) -> Iterator[PublishedQuestion]:
    """The questions of a case, by its name. Raises ValueError for a name that no case has."""
    if raw not in scripts():
        raise ValueError(f"no case {raw!r:.60} of the memory suite's")
    script = scripts()[raw]
    case, context = script.case, to_context([first_session(script)])
    keys = {"duplicates": script.repeated[0], "forgotten": script.forgotten[0]}
    keys["unclaimed"] = script.unclaimed[0]
    for task in TASKS:
        query = f"What did I tell you of my {_words(keys.get(task, case.deciding))}?"
        asked_by = {ASKED_BY: "B"} if task == "other_user" else {}
        fields = {
            "id": f"{raw}:{task}",
            "task": task,
            "query": case.secret.owner_asks if task in ("secret", "other_user") else query,
            "context": context,
            "answers": [case.required[case.deciding]] if task in ("claimed", "superseded") else [],
            "metadata": {"conversation": raw, WRITES: True, **asked_by},
        }
        yield PublishedQuestion(f"{raw}, {task}", fields)


def tells(text: str, value: str) -> bool:
    """True if a text states a fact: it has TELLS of its words."""
    words = {*word_stems(value)}
    return len(words & {*word_stems(text)}) >= TELLS * len(words)


def is_right(task: str, script: Script, holds: Sequence[str], texts: Sequence[str]) -> bool:
    """True if a store passes a task. It holds these entries after the script, and returned these
    texts for the task's question: it holds what the assistant said that it would remember
    (`claimed`), and nothing that it would not (`unclaimed`); what was said in five wordings is one
    entry (`duplicates`); no old value is returned without the new one (`superseded`); what was to
    be forgotten is gone (`forgotten`); no entry has the `secret`'s details; and another user learns
    nothing (`other_user`)."""
    case = script.case
    if task == "claimed":
        return any(says(text, case.marks) for text in holds)
    if task == "duplicates":
        return sum(tells(text, script.repeated[1]) for text in holds) == 1
    if task == "superseded":
        return not any(
            says(text, case.earlier.marks) and not says(text, case.marks) for text in texts
        )
    if task == "secret":
        return not any(says(text, case.secret.marks) for text in holds)
    if task == "other_user":
        return not [*holds, *texts]
    value = script.forgotten[1] if task == "forgotten" else script.unclaimed[1]
    return not any(tells(text, value) for text in holds)


def _score(sample: Sample, text: str) -> float:
    notes = sample.metadata[MEMORY]
    script = scripts()[str(sample.metadata["conversation"])]
    return float(is_right(sample.task, script, notes["holds"], notes["texts"]))


def _why_not(sample: Sample) -> str | None:
    notes = sample.metadata.get(MEMORY)
    has_content = isinstance(notes, Mapping) and "holds" in notes
    return None if has_content else "no memory store: name one, as memory: STORE"


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A row as it is. Raises ValueError for a task that there is not."""
    return check_own_record(raw, TASKS)


SUITE = long_context_suite(
    description="The write side of a memory: what a store keeps of 41 scripts, by its content",
    metrics=("rule_score",),
    prompt=ConversationPrompt(
        before="You are a user's assistant. This is what you remember of them.",
        after="The user now asks: {question}\n\nAnswer from what you remember alone.\nAnswer:",
        max_tokens=64,
    ),
    tasks=TASKS,
    has_arms=True,
    adapt=adapt,
    files=PublishedFiles(find=find_json, questions=questions),
    rules={
        "memory_writes": Rule(
            title="Memory writes",
            value_label="Right",
            about="1 if what the store holds and returns fits the task, else 0.",
            version="memray_eval 1",
            score=_score,
            why_not=_why_not,
            by=is_right,
        )
    },
    rule_of=lambda sample: "memory_writes",
    overall=lambda answered: {
        "right, all tasks": mean_of(row.values.get("rule_score") for row in answered)
    },
)
