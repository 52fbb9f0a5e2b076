"""Chats of one's own: what was said before, and what the user says now."""

from __future__ import annotations

from collections.abc import Iterator

from memray_eval.benchmarks import Suite, prompt_text
from memray_eval.text_processing.sample_text import memory_lines
from memray_eval.types import Candidate, Message, Prompt, Sample

PROMPTS = {"default": ""}  # no system prompt


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The candidate's system prompt, if it names a file with one, with what the sample's memory
    holds; the history; the query."""
    return Prompt(messages=tuple(_messages(sample, candidate)))


def _messages(sample: Sample, candidate: Candidate) -> Iterator[Message]:
    role = "" if candidate.prompt in PROMPTS else prompt_text(candidate.prompt)
    memory = f"What you know of the user:\n{memory_lines(sample)}" if sample.memory else ""
    if system := "\n\n".join(filter(None, (role, memory))):
        yield Message(role="system", content=system)
    yield from (Message(role=turn.role, content=turn.content) for turn in sample.history)
    yield Message(role="user", content=sample.query)


SUITE = Suite(
    description="Chats of your own: a query, with a system prompt (`prompt: system.txt`), memory "
    "and history where there are any",
    metrics=("helpfulness", "relevance", "coherence", "politeness", "safety"),
    prompt=prompt,
    prompts=tuple(PROMPTS),
    takes_prompt_files=True,
)
