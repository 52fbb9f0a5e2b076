"""Samples: exact length, their own seeds, needles at their depth, and what cannot be made."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memray_eval.benchmarks.generator.generate import (
    lines_add_up,
    samples,
    typical_order,
    whole_adds_up,
)
from memray_eval.benchmarks.generator.plan import Plan
from memray_eval.benchmarks.generator.resources import QuestionedText, Resources
from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.needles.generator.tasks import NEEDLES, TASKS
from memray_eval.errors import ConfigError
from memray_eval.ports import Tokenizer
from memray_eval.types import Sample

LANGUAGES = NEEDLES.languages
ONE_NEEDLE = tuple(task for task in TASKS if TASKS[task].has_depth)


def plan(**changes: object) -> Plan:
    words = {
        "task_set": NEEDLES,
        "tasks": tuple(TASKS),
        "languages": LANGUAGES,
        "lengths": (2048,),
        "depths": (0, 50, 100),
        "samples": 1,
    }
    return Plan.model_validate(words | changes)


def tokens_of(tokenizer: Tokenizer, sample: Sample) -> int:
    return tokenizer.count(plain_prompt(sample.context or "", sample.query))


def test_every_sample_has_exactly_its_length(resources: Resources, pieces: Tokenizer) -> None:
    created = list(samples(plan(lengths=(2048, 3001), samples=2), resources))
    assert len(created) == plan(lengths=(2048, 3001), samples=2).n_samples
    for sample in created:
        assert (
            tokens_of(pieces, sample) == sample.metadata["tokens"] == sample.metadata["length"]
        ), sample.id
        assert sample.answers
        assert all(sample.answers)


@settings(max_examples=40)
@given(
    length=st.integers(1200, 6000),
    task=st.sampled_from(sorted(TASKS)),
    language=st.sampled_from(LANGUAGES),
)
def test_any_length_is_met(
    resources: Resources, pieces: Tokenizer, length: int, task: str, language: str
) -> None:
    for sample in samples(
        plan(tasks=(task,), languages=(language,), lengths=(length,), depths=(50,)), resources
    ):
        assert tokens_of(pieces, sample) == length


def test_a_tokenizer_whose_counts_do_not_add_up_is_asked_for_every_sample(
    triples: Tokenizer,
) -> None:
    resources = Resources(triples, seed=0)
    assert not lines_add_up(resources, "en")
    message: list[bool] = []
    created = list(
        samples(
            plan(languages=("en",), lengths=(2048,), depths=(50,)),
            resources,
            lambda *group: message.append(group[3]),
        )
    )
    assert not any(message)
    for sample in created:
        assert tokens_of(triples, sample) == sample.metadata["tokens"] <= 2048
        assert sample.metadata["tokens"] >= 2040


def test_a_group_whose_whole_does_not_add_up_is_found(pieces: Tokenizer) -> None:
    class Joining(type(pieces)):  # type: ignore[misc]
        def count(self, text: str) -> int:
            # Joins what only math_calc writes
            return int(super().count(text)) - text.count(" + 4 + ")

    resources = Resources(Joining(), seed=0)
    assert lines_add_up(resources, "en")
    passkey = typical_order(plan(), "passkey", "en", 2048)
    assert whole_adds_up(passkey, NEEDLES, resources)
    math_calc = typical_order(plan(), "math_calc", "en", 8192)
    assert not whole_adds_up(math_calc, NEEDLES, resources)


@pytest.mark.heavy
def test_a_sample_does_not_depend_on_what_else_is_made(pieces: Tokenizer) -> None:
    among_others = {
        sample.id: sample
        for sample in samples(plan(lengths=(2048, 9000), samples=2), Resources(pieces, 0))
    }
    for task in TASKS:
        alone = list(
            samples(plan(tasks=(task,), languages=("zh",), depths=(50,)), Resources(pieces, 0))
        )
        assert alone
        assert [among_others[sample.id] for sample in alone] == alone


def test_seeds_and_samples_differ(resources: Resources, pieces: Tokenizer) -> None:
    words = plan(languages=("en",), depths=(50,), samples=2)
    first, other = (
        list(samples(words, resources)),
        list(samples(words.model_copy(update={"seed": 1}), Resources(pieces, 1))),
    )
    assert all(own.context != others.context for own, others in zip(first, other, strict=True))
    assert len({sample.context for sample in first}) == len(first)


@pytest.mark.parametrize("task", ONE_NEEDLE)
def test_the_needle_is_at_its_depth(resources: Resources, pieces: Tokenizer, task: str) -> None:
    for sample in samples(
        plan(tasks=(task,), lengths=(8000,), depths=(0, 25, 50, 75, 100)), resources
    ):
        context = sample.context or ""
        sought = sample.query.split("name")[0] if task == "qa" else sample.answers[0]
        position = context.index(sought) if task != "qa" else gold_start(sample)
        share = pieces.count(context[:position]) / pieces.count(context)
        assert abs(100 * share - sample.metadata["depth"]) < 4, sample.id


def gold_start(sample: Sample) -> int:
    context = sample.context or ""
    return context.rindex("\n", 0, context.index(sample.answers[0]))


@pytest.mark.parametrize("task", sorted(TASKS))
@pytest.mark.parametrize("language", LANGUAGES)
def test_too_short_a_length_names_one_that_will_do(
    resources: Resources, task: str, language: str
) -> None:
    settings = plan(tasks=(task,), languages=(language,), depths=(0, 100), samples=10)
    with pytest.raises(
        ConfigError, match=rf"--lengths 10: {task} \({language}\) takes at least [0-9]+ tokens"
    ) as refused:
        samples(settings.model_copy(update={"lengths": (10, 4096)}), resources)
    named = re.search(r"at least ([0-9]+)", str(refused.value))
    assert named
    smallest = int(named[1])
    assert all(
        sample.metadata["tokens"] <= smallest
        for sample in samples(settings.model_copy(update={"lengths": (smallest,)}), resources)
    )
    with pytest.raises(ConfigError, match="takes at least"):
        samples(settings.model_copy(update={"lengths": (smallest * 2 // 3,)}), resources)


def test_the_users_text_is_the_haystack(pieces: Tokenizer) -> None:
    lines = [
        f"Line {word} of the text that was given. It has two sentences.\n"
        for word in "one two three four five six".split()
    ]
    resources = Resources(pieces, 0, haystack=lines)
    for sample in samples(
        plan(tasks=("niah_single_2", "niah_multivalue"), languages=("en",)), resources
    ):
        assert tokens_of(pieces, sample) == 2048
        assert (sample.context or "").count("Line four of the text that was given.") > 3
        assert all(answer in (sample.context or "") for answer in sample.answers)


def questions() -> list[QuestionedText]:
    return [
        QuestionedText(
            question=f"What is thing {n}?",
            answers=(f"answer {n}", f"a{n}"),
            gold=(f"Thing {n} is answer {n}.",),
            documents=tuple(
                f"Thing {n} is not {other}, says author {other}." for other in range(3)
            ),
        )
        for n in range(60)
    ]


def test_the_users_documents(pieces: Tokenizer) -> None:
    resources = Resources(pieces, 0, questions=questions())
    created = list(
        samples(plan(tasks=("qa",), languages=("en",), lengths=(900,), samples=3), resources)
    )
    for sample in created:
        number = int(sample.id.rpartition("-")[2])
        assert tokens_of(pieces, sample) == 900
        assert sample.answers == (f"answer {number}", f"a{number}")
        assert (sample.context or "").count(f"Document: Thing {number} is answer {number}.\n") == 1
        assert all(f"Thing {number} is not {other}" in (sample.context or "") for other in range(3))


def test_too_few_documents_are_said(pieces: Tokenizer) -> None:
    resources = Resources(pieces, 0, questions=questions())
    with pytest.raises(
        ConfigError,
        match=r"--documents: all documents together have [0-9,]+ tokens, too few for a length of "
        r"9,000",
    ):
        samples(plan(tasks=("qa",), languages=("en",), lengths=(9000,)), resources)
