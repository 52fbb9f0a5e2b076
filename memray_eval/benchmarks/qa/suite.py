"""Questions of one's own, with right answers and, if there is one, a text to find them in."""

from __future__ import annotations

from memray_eval.benchmarks import Suite, prompt_text
from memray_eval.types import Candidate, Message, Prompt, Sample

PROMPTS = {
    "default": "Answer the question in as few words as it takes, without an explanation.",
    "explain": "Answer the question, and explain the answer in a sentence or two.",
}
IN_TEXT = "Take the answer from the text alone."


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """The task (one of PROMPTS, or a text file), the text, then the question; the text
    loses its middle where it is longer than the model's window."""
    task = PROMPTS.get(candidate.prompt) or prompt_text(candidate.prompt)
    if sample.context is None:
        content = f"{task}\n\n{sample.query}"
    else:
        content = f"{task} {IN_TEXT}\n\n{sample.context}\n\nQuestion: {sample.query}"
    message = Message(role="user", content=content)
    return Prompt(messages=(message,), is_cut=sample.context is not None)


SUITE = Suite(
    description="Questions of your own with right answers (`answers`), from a text (`context`) or "
    "without one",
    metrics=("exact_match", "answer_f1", "semantic_correctness"),
    prompt=prompt,
    prompts=tuple(PROMPTS),
    takes_prompt_files=True,
    headline="semantic_correctness",
    has_contexts=True,
)
