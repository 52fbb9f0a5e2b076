"""MRCR: generated conversations of exact lengths, and its score against difflib's own account of
what two texts have in common."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import partial
from random import Random

import pytest

from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.mrcr.generator import FORMS, MRCR, ORDINALS, TOPICS, write_piece
from memray_eval.benchmarks.mrcr.suite import prefix_ratio, prompt
from memray_eval.ports import Tokenizer
from memray_eval.types import Candidate, Message, Sample, Score
from tests.build import score_text
from tests.unit.benchmarks.builders import generated

ASKED = re.compile(
    r"request for an? ([a-z ]+) about ([a-z ]+) (\d) times\. Repeat the (\w+) of these "
    r"answers word for word, with (\w{10}) put"
)


sampled = partial(generated, MRCR, n=8)


def messages_of(sample: Sample) -> tuple[Message, ...]:
    return prompt(sample, Candidate(name="a", model="m")).messages


def tokens_of(tokenizer: Tokenizer, sample: Sample) -> int:
    return sum(tokenizer.count(message.content) for message in messages_of(sample))


def solve(sample: Sample) -> tuple[str, int, int]:
    """The answer by the messages alone, how often its request is made, and where it stands."""
    messages = messages_of(sample)
    match = ASKED.search(messages[-1].content)
    assert match
    form, topic, n, ordinal, prefix = match.groups()
    places = [
        position
        for position, message in enumerate(messages[:-1])
        if message.role == "user"
        and re.fullmatch(rf"Write an? {form} about {topic}\.", message.content)
    ]
    assert len(places) == int(n)
    position = places[ORDINALS.index(ordinal)]
    return prefix + messages[position + 1].content, len(places), position


def test_every_answer_is_found_again_and_every_length_is_exact(
    resources: Resources, pieces: Tokenizer
) -> None:
    for sample in sampled(resources, 4096, 9001):
        answer, n, position = solve(sample)
        assert sample.answers == (answer,), sample.id
        assert (sample.task, sample.metadata["n_needles"]) == (f"{n}needle", n)
        assert sample.metadata["desired_msg_index"] == position
        assert tokens_of(pieces, sample) == sample.metadata["tokens"] == sample.metadata["length"]
        messages = messages_of(sample)
        assert sample.metadata["total_messages"] == len(messages)
        assert sample.metadata["n_chars"] == sum(len(message.content) for message in messages)
        roles = [message.role for message in messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_each_needle_is_asked_for_and_no_two_are_the_same(resources: Resources) -> None:
    for task in ("2needle", "4needle", "8needle"):
        n = int(task[0])
        result = [sample for sample in sampled(resources, 8192) if sample.task == task]
        ordinals = {ASKED.search(sample.query)[4] for sample in result}  # type: ignore[index]
        assert ordinals == set(ORDINALS[:n])
        for sample in result:
            needles = {solve(sample)[0]}
            messages = messages_of(sample)
            ask = messages[sample.metadata["desired_msg_index"]].content
            needles = {
                messages[position + 1].content
                for position, message in enumerate(messages)
                if message.content == ask
            }
            assert len(needles) == n
            prefix = sample.metadata["random_string_to_prepend"]
            worth = [prefix_ratio(prefix + needle, sample.answers[0], prefix) for needle in needles]
            assert sorted(worth)[-1] == 1.0 > sorted(worth)[-2]  # another needle is not as good


@pytest.mark.parametrize("length", [2**17, pytest.param(2**20, marks=pytest.mark.night)])
def test_the_longest_conversations_are_exact_and_solved(pieces: Tokenizer, length: int) -> None:
    for sample in sampled(Resources(pieces, 0), length, n=2):
        assert tokens_of(pieces, sample) == length
        assert sample.answers == (solve(sample)[0],)


def test_a_tokenizer_whose_counts_do_not_add_up_gets_no_sample_that_is_too_long(
    triples: Tokenizer,
) -> None:
    for sample in sampled(Resources(triples, 0), 4096, n=2):
        assert 4080 <= tokens_of(triples, sample) == sample.metadata["tokens"] <= 4096
        assert sample.answers == (solve(sample)[0],)


PAIRS = 1_000
PREFIX = "aB3dE5gH7j"


def scored(metric: str, reply: str, *answers: str, **metadata: object) -> Score:
    fields = {"id": "1", "suite": "mrcr", "task": "2needle", "query": "q", "metadata": metadata}
    return score_text(metric, Sample.model_validate({**fields, "answers": answers}), reply)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (f"{PREFIX}once upon a time", 1.0),
        ("once upon a time", 0.0),
        (f" {PREFIX}once upon a time", 0.0),  # as the original: not even a space before it
        (f"{PREFIX.lower()}once upon a time", 0.0),
        (PREFIX, 0.0),
        (f"{PREFIX}once", 0.4),  # 2 * 4 / (4 + 16)
        ("", 0.0),
    ],
)
def test_ratio(reply: str, expected: float) -> None:
    assert prefix_ratio(reply, f"{PREFIX}once upon a time", PREFIX) == pytest.approx(expected)


def a_reply(rng: Random, answer: str) -> str:
    """The answer, or what a model makes of it: words lost, others in their place, another piece."""
    words = answer.split(" ")
    kind = rng.randrange(5)
    if kind == 0:
        return answer
    if kind == 1:
        return " ".join(word for word in words if rng.random() > 0.2)
    if kind == 2:
        return " ".join(rng.choice(words) if rng.random() < 0.3 else word for word in words)
    if kind == 3:
        return PREFIX + write_piece(rng, rng.choice(list(FORMS)), rng.choice(TOPICS))
    return answer.removeprefix(PREFIX)


def test_it_agrees_with_difflib_on_generated_replies() -> None:
    rng, seen = Random(16), set[float]()
    for _ in range(PAIRS):
        piece = write_piece(rng, rng.choice(list(FORMS)), rng.choice(TOPICS))[
            : rng.randint(40, 400)
        ]
        reply = a_reply(rng, PREFIX + piece)
        expected = 0.0
        if reply[: len(PREFIX)] == PREFIX:
            text = reply[len(PREFIX) :]
            blocks = SequenceMatcher(None, text, piece).get_matching_blocks()
            expected = 2 * sum(block.size for block in blocks) / (len(text) + len(piece))
        value = prefix_ratio(reply, PREFIX + piece, PREFIX)
        assert value == pytest.approx(expected, abs=1e-12)
        seen.add(round(value, 6))
    assert len(seen) > 200


def test_it_compares_one_answer() -> None:
    score = scored("mrcr_ratio", "x", "x", "y", random_string_to_prepend=PREFIX)
    assert (score.status, score.error) == (
        "error",
        "ValueError: MRCR compares one answer; the sample has 2",
    )
