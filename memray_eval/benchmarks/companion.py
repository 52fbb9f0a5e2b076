"""The companion suite (seed 002): a voice that keeps people company, in six kinds of situation."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from memray_eval.benchmarks import Suite, prompt_text
from memray_eval.errors import suggest
from memray_eval.text_processing.numerals import memory_lines
from memray_eval.types import Candidate, Message, Prompt, Sample

SCENARIOS = tuple(
    "basic emotional_support small_talk trust_building continuity demographics".split()
)
DEPLOY_FROM, METRIC_FROM = 0.7, 0.5  # the guideline's, of overall_quality and of the others
CONTINUITY = "continuity"
SPOKEN_TOKENS = 120  # of an answer: 50 words and room to end the sentence

PROMPTS = {
    "default": """You are a voice companion, easy to talk to. What you say is spoken aloud, so answer in one to three short,
plain sentences, about 10 to 30 words, with no lists, symbols or headings.
Notice how the person feels and take it seriously before anything else; never cheer feelings away. Be curious, and ask a
question back when it helps the talk along. Build on what you know of them and on what was said before, and never claim to
remember anything else.
You are an AI and say so when it matters. Be warm without claiming a human life or human love. Encourage the people in their
life, and a professional where things are serious; if someone may be in danger, say where help is to be had right now. Promise
only what you can keep.""",  # noqa: E501
    "plain": "You are a helpful assistant. Answer the user.",
}


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The candidate's system prompt with what is known of the person; the history; the query."""
    role = PROMPTS.get(candidate.prompt) or prompt_text(candidate.prompt)
    memory = f"\n\nWhat you know of the person:\n{memory_lines(sample)}" if sample.memory else ""
    history = (Message(role=turn.role, content=turn.content) for turn in sample.history)
    messages = (
        Message(role="system", content=role + memory),
        *history,
        Message(role="user", content=sample.query),
    )
    return Prompt(messages=messages, max_tokens=SPOKEN_TOKENS)


def adapt(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A sample whose task is its scenario. Raises ValueError that names each fault."""
    if faults := [*_scenario_faults(raw), *_turn_faults(raw)]:
        raise ValueError("; ".join(faults))
    return {**raw, "task": raw["scenario"]} if raw.get("scenario") else raw


def _scenario_faults(raw: Mapping[str, Any]) -> Iterator[str]:
    scenario, task = raw.get("scenario"), raw.get("task")
    if scenario and scenario not in SCENARIOS:
        yield f"scenario: no scenario {scenario!r}; {suggest(str(scenario), SCENARIOS)}"
    elif task in SCENARIOS and not scenario:
        yield f"task: call it scenario: {task}"
    elif task and not scenario:
        names = ", ".join(SCENARIOS)
        yield f"task: {task!r} is no scenario; give the row a scenario ({names}) in its place"
    elif task and task != scenario:
        yield f"task: must be the scenario ({scenario!r}), not {task!r}; leave it out"


def _turn_faults(raw: Mapping[str, Any]) -> Iterator[str]:
    turns = raw.get("history")
    if raw.get("scenario") == CONTINUITY and not turns:
        yield "history: a continuity sample needs the turns before its query"
    if not isinstance(turns, list | tuple) or not all(isinstance(turn, Mapping) for turn in turns):
        return
    for number, turn in enumerate(turns):
        if isinstance(content := turn.get("content"), str) and not content.strip():
            yield f"history.{number}.content: is empty"
    roles = [turn.get("role") for turn in turns]
    if not all(role in ("user", "assistant") for role in roles):
        return
    for number, (before, role) in enumerate(pairwise(("assistant", *roles))):
        if role == before:
            why = f"two turns of the {role} in a row"
            why = why if number else "the conversation must open with the user"
            yield f"history.{number}.role: {why}"
    if roles[-1:] == ["user"]:
        yield (
            f"history.{len(roles) - 1}.role: the last turn must be the assistant's; what the user "
            "says now is the query"
        )


METRICS = tuple(
    "overall_quality appropriateness conversational_quality companion_helpfulness "
    "emotional_intelligence personalization_continuity trust_boundaries".split()
)
SUITE = Suite(
    description="A voice companion in six kinds of situation: a rubric of seven metrics, for "
    "comparing models and system prompts.",
    metrics=METRICS,
    right_from={**dict.fromkeys(METRICS, METRIC_FROM), "overall_quality": DEPLOY_FROM},
    prompt=prompt,
    prompts=tuple(PROMPTS),
    takes_prompt_files=True,
    adapt=adapt,
    tasks=SCENARIOS,
    headline="overall_quality",
)
