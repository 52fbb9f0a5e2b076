"""Suites of no benchmark: chats, questions with answers, bare prompts (seed 003), pairs."""

from collections.abc import Iterator

from memray_eval.benchmarks import Suite, prompt_text
from memray_eval.text_processing.numerals import memory_lines
from memray_eval.types import Candidate, Message, Prompt, Sample

CHAT_PROMPTS = {"default": ""}  # no system prompt
QA_PROMPTS = {
    "default": "Answer the question in as few words as it takes, without an explanation.",
    "explain": "Answer the question, and explain the answer in a sentence or two.",
}
IN_TEXT = "Take the answer from the text alone."
MAX_TOKENS = 512  # of an answer: room for the 300 words up to which a length is appropriate


def ask_chat(sample: Sample, candidate: Candidate) -> Prompt:
    """The candidate's system prompt, if it names a file, with the memory; history; query."""
    return Prompt(messages=tuple(_messages(sample, candidate)))


def _messages(sample: Sample, candidate: Candidate) -> Iterator[Message]:
    role = "" if candidate.prompt in CHAT_PROMPTS else prompt_text(candidate.prompt)
    memory = f"What you know of the user:\n{memory_lines(sample)}" if sample.memory else ""
    if system := "\n\n".join(filter(None, (role, memory))):
        yield Message(role="system", content=system)
    yield from (Message(role=turn.role, content=turn.content) for turn in sample.history)
    yield Message(role="user", content=sample.query)


def ask_question(sample: Sample, candidate: Candidate) -> Prompt:
    """The task, the text (which may lose its middle), then the question."""
    task = QA_PROMPTS.get(candidate.prompt) or prompt_text(candidate.prompt)
    if sample.context is None:
        content = f"{task}\n\n{sample.query}"
    else:
        content = f"{task} {IN_TEXT}\n\n{sample.context}\n\nQuestion: {sample.query}"
    message = Message(role="user", content=content)
    return Prompt(messages=(message,), is_cut=sample.context is not None)


def ask_bare(sample: Sample, candidate: Candidate) -> Prompt:
    """The query and nothing else: no system message, no template, and no history."""
    return Prompt(messages=(Message(role="user", content=sample.query),), max_tokens=MAX_TOKENS)


SUITES = {
    "chat": Suite(
        description="Chats of your own: a query, with a system prompt (`prompt: system.txt`), "
        "memory and history where there are any",
        metrics=("helpfulness", "relevance", "coherence", "politeness", "safety"),
        prompt=ask_chat,
        prompts=tuple(CHAT_PROMPTS),
        takes_prompt_files=True,
    ),
    "qa": Suite(
        description="Questions of your own with right answers (`answers`), from a text (`context`) "
        "or without one",
        metrics=("exact_match", "answer_f1", "semantic_correctness"),
        prompt=ask_question,
        prompts=tuple(QA_PROMPTS),
        takes_prompt_files=True,
        headline="semantic_correctness",
        has_contexts=True,
    ),
    "text": Suite(
        description="Bare prompts at several temperatures: the seven text scores and speed, "
        "without a judge",
        metrics=tuple(
            "overall_score coherence_score lexical_diversity completeness_score structure_score "
            "readability_score length_appropriateness".split()
        ),
        prompt=ask_bare,
        headline="overall_score",
    ),
    "pairs": Suite(
        description="Two answers to each question, compared in both orders; `memray-eval pairwise "
        "RUN RUN` makes them of runs",
        metrics=("preference",),
        prompt=ask_chat,
    ),
}
