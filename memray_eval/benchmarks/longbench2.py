"""LongBench v2: 503 questions with four choices on contexts of 8k to 2M words, in six domains."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from memray_eval.benchmarks import Rule, Suite, long_context_suite
from memray_eval.benchmarks.longbench.rules import VERSION, longbench2_choice
from memray_eval.benchmarks.templates import Wording, check_places, own_wording, parse_dollars
from memray_eval.benchmarks.templates.files import (
    Published,
    find_beside,
    is_file,
    known_task,
    read_text,
)
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Prompt, Sample

LETTERS = "ABCD"
_DOMAINS = (
    "Single-Document QA",
    "Multi-Document QA",
    "Long In-context Learning",
    "Long-dialogue History Understanding",
    "Code Repository Understanding",
    "Long Structured Data Understanding",
)
_CHOICES = tuple(f"choice_{letter}" for letter in LETTERS)
_ABOUT = ("domain", "sub_domain", "difficulty", "length")
_BEFORE = (
    "Read the text below; a question about it with four choices follows, of which exactly one is "
    "right."
)
_QUESTION = "Question: {input}\n\n{options}\n\n"
_FORM = 'say "The correct answer is (X)", with the letter of your choice for X.'
WORDINGS: dict[str, Wording] = {
    "default": own_wording(_BEFORE, f"{_QUESTION}To answer, {_FORM}", 128),
    "cot": own_wording(
        _BEFORE,
        f"{_QUESTION}Think it through step by step. Then, on a line of its own, {_FORM}",
        1024,
    ),
}
_FILES = {"default": "0shot.txt", "cot": "0shot_cot.txt"}
_PLACES = ("DOC", "Q", *(f"C_{letter}" for letter in LETTERS))


def _slug(domain: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", domain.lower()).strip("_")


TASKS = tuple(_slug(domain) for domain in _DOMAINS)


def _read(raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """A record's task is its domain, its bucket the length class (short, medium, long)."""
    task, letter = known_task(_slug(raw["domain"]), TASKS), raw["answer"].strip()
    if letter not in tuple(LETTERS):
        raise ValueError(f"answer: must be A, B, C or D, not {raw['answer']!r}")
    about = {name: raw[name] for name in _ABOUT}
    choices = {letter: raw[f"choice_{letter}"] for letter in LETTERS}
    return {
        "id": f"{task}:{raw['_id']}",
        "task": task,
        "query": raw["question"],
        "answers": [letter, f"{letter}. {choices[letter]}"],
        "metadata": {**about, "bucket": raw["length"], "choices": choices, "label": letter},
    }


def _check_own(raw: Mapping[str, Any]) -> None:
    metadata = raw.get("metadata")
    choices = metadata.get("choices") if isinstance(metadata, Mapping) else None
    if not isinstance(choices, Mapping) or any(
        not isinstance(choices.get(letter), str) for letter in LETTERS
    ):
        raise ValueError("metadata.choices: must give the text of each of A, B, C and D")


adapt = Published(
    kind="LongBench v2",
    fields={
        "_id": None,
        **dict.fromkeys((*_ABOUT, "question", *_CHOICES, "answer", "context"), str),
    },
    used=("id", "task"),
    tasks=TASKS,
    check_own=_check_own,
    read=_read,
)


def prompt(sample: Sample, candidate: Candidate) -> Prompt:
    """In our words: `default` asks for the choice (128 tokens), `cot` lets it think (1,024)."""
    choices = sample.metadata["choices"]
    options = "\n".join(f"({letter}) {choices[letter]}" for letter in LETTERS)
    values = {"context": sample.context or "", "input": sample.query, "options": options}
    return WORDINGS[candidate.prompt].ask(values)


def templated(suite: Suite, path: str) -> Suite:
    """With the benchmark's 0shot.txt and 0shot_cot.txt for the variants `default` and `cot`: a
    folder with them, or one file. As no second question reads the choice off the thoughts,
    0shot_cot.txt should ask for "The correct answer is (X)". Raises ConfigError naming the file."""
    if is_file(path):
        files = {"cot" if path.endswith(_FILES["cot"]) else "default": path}
    else:
        beside = {variant: find_beside(path, name) for variant, name in _FILES.items()}
        files = {variant: file for variant, file in beside.items() if file}
    if not files:
        raise ConfigError(f"templates: {path} has neither of {', '.join(_FILES.values())}")
    wordings: dict[str, Wording] = {}
    for variant, file in files.items():
        try:
            template = check_places(parse_dollars(read_text(file)), _PLACES, context="DOC")
        except ValueError as error:
            raise ConfigError(f"templates: {file}: {error}") from None
        wordings[variant] = WORDINGS[variant].model_copy(update={"template": template})
    return replace(
        suite, prompt=partial(_ask_with_templates, wordings=wordings), prompts=tuple(wordings)
    )


def _ask_with_templates(
    sample: Sample, candidate: Candidate, *, wordings: Mapping[str, Wording]
) -> Prompt:
    """The prompt in the benchmark's own words. It strips what it fills in."""
    choices = {f"C_{letter}": sample.metadata["choices"][letter].strip() for letter in LETTERS}
    return wordings[candidate.prompt].ask(
        {"DOC": (sample.context or "").strip(), "Q": sample.query.strip(), **choices}
    )


def _score(sample: Sample, text: str) -> float:
    """By the published label, else the first answer that is a letter. Raises ValueError."""
    for offered in (sample.metadata.get("label"), *sample.answers):
        if offered in tuple(LETTERS):
            return longbench2_choice(text, str(offered))
    answers = list(sample.answers)
    raise ValueError(
        f"none of the answers {answers} is a letter A-D, which LongBench v2's rule compares"
    )


RULES = {
    "longbench2_choice": Rule(
        title="LongBench v2 choice",
        value_label="Accuracy",
        about='Whether "The correct answer is (X)" names the right letter, as LongBench v2 scores.',
        version=VERSION,
        score=_score,
        by=longbench2_choice,
    )
}
SUITE = long_context_suite(
    description="LongBench v2: questions with four choices on contexts up to 2M words, in six "
    "domains",
    prompt=prompt,
    prompts=tuple(WORDINGS),
    adapt=adapt,
    tasks=TASKS,
    rules=RULES,
    rule_of=lambda sample: "longbench2_choice",
    templated=templated,
)
