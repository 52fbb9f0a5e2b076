"""How BEAM's judge is asked about one item of a rubric: by the prompt of the user's copy of
src/prompts.py (mohammadtavakoli78/BEAM b2a3ee8), else in our words."""

from __future__ import annotations

from memray_eval.benchmarks.conversations.python_texts import assigned_text, find_file, parse_python
from memray_eval.errors import ConfigError

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
    """The prompt in the user's copy. The code is read, never run. Raises ConfigError that says
    what is not there."""
    file = find_file(path, (_FILE, f"src/{_FILE}"))
    text = assigned_text(parse_python(file), _NAME)
    if text is None:
        raise ConfigError(f"templates: {file} assigns no text to {_NAME}")
    for place in (ITEM_PLACE, RESPONSE_PLACE):
        if place not in text:
            raise ConfigError(f"templates: {file}: {_NAME} has no place {place}")
    return text


def fill_official(rubric: str, item: str, response: str) -> str | None:
    """The official prompt for an item, as the code fills it: the place of the question stays
    empty. None where the rubric is not the official one."""
    if RESPONSE_PLACE not in rubric:
        return None
    before, _, after = rubric.partition(RESPONSE_PLACE)
    filled = (part.replace(ITEM_PLACE, item) for part in (before, after))
    return response.join(filled)
