"""LongMemEval's judge prompts: the five of the user's copy of
src/evaluation/evaluate_qa.py (xiaowu0162/LongMemEval 9e0b455), else in our words."""

from __future__ import annotations

import json
from collections.abc import Mapping

from memray_eval.benchmarks.templates.files import find_file, parse_python, texts_by_condition
from memray_eval.errors import ConfigError

METRIC = "longmemeval_judge"
TASKS = tuple(
    "single-session-user single-session-assistant single-session-preference multi-session "
    "temporal-reasoning knowledge-update".split()
)
ABSTENTION = "_abs"  # in the id of a question that cannot be answered
UNANSWERABLE = "abstention"
_FILE = "evaluate_qa.py"
_PLACES = ("question", "answer", "response")

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
    kinds = {kind: texts[kind] for kind in TASKS if kind in texts}
    if "abstention" in texts:
        kinds[UNANSWERABLE] = texts["abstention"]
    if missing := [kind for kind in (*TASKS, UNANSWERABLE) if kind not in kinds]:
        raise ConfigError(f"templates: {file} has no judge prompt for {missing[0]}")
    for kind, text in kinds.items():
        if text.count("{}") != len(_PLACES):
            raise ConfigError(
                f"templates: {file}: the judge prompt for {kind} has {text.count('{}')} places "
                "{}, not three"
            )
    return json.dumps(kinds, ensure_ascii=False, sort_keys=True)


def fill_official(rubric: str, kind: str, question: str, answer: str, response: str) -> str | None:
    """The official prompt for a kind of question, None if the rubric is no set of official
    ones. Raises ValueError for a kind that they do not have."""
    if not rubric.startswith("{"):
        return None
    if kind not in KINDS:
        raise ValueError(f"LongMemEval has no type {kind!r}; there are: {', '.join(KINDS)}")
    before, middle, last, after = json.loads(rubric)[kind].split("{}")
    return f"{before}{question}{middle}{answer}{last}{response}{after}"
