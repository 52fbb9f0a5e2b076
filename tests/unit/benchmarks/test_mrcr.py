"""MRCR's score against difflib's own account of what two texts have in common."""

from difflib import SequenceMatcher
from random import Random

import pytest

from memray_eval.benchmarks.mrcr import prefix_ratio
from memray_eval.benchmarks.needles.prose import paragraph
from memray_eval.types import Sample, Score
from tests.build import score_text

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
        return PREFIX + paragraph(rng)
    return answer.removeprefix(PREFIX)


def test_it_agrees_with_difflib_on_generated_replies() -> None:
    rng, seen = Random(16), set[float]()
    for _ in range(PAIRS):
        piece = paragraph(rng)[: rng.randint(40, 400)]
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
    expected = ("error", "ValueError: MRCR compares one answer; the sample has 2")
    assert (score.status, score.error) == expected
