"""GraphWalks' readings of a reply and its scores, against a computation of their own."""

from fractions import Fraction
from random import Random

import pytest

from memray_eval.benchmarks import graphwalks as rules
from memray_eval.types import Sample
from tests.build import score_text

PAIRS = 10_000
RIGHT = ["a1", "b2", "c3"]


def scored(metric: str, reply: str, *answers: str, task: str = "bfs"):  # type: ignore[no-untyped-def]
    sample = Sample(id="1", suite="graphwalks", task=task, query="q", answers=answers)
    return score_text(metric, sample, reply)


@pytest.mark.parametrize(
    ("reply", "strict", "flexible", "harness"),
    [
        ("Final Answer: [a1, b2, c3]", 1.0, 1.0, 1.0),
        ("So.\nFinal Answer: [a1, b2, c3]\n", 1.0, 1.0, 1.0),
        ("Final Answer: ['a1',\"b2\", c3,]", 1.0, 1.0, 1.0),
        ("Final Answer: [a1, b2, c3]\nI hope that helps.", 0.0, 1.0, 0.0),
        ("final answer: [a1, b2, c3]", 0.0, 0.0, 0.0),
        ("Final Answer: []", 0.0, 0.0, 0.0),
        ("Final Answer: a1", 0.0, 0.0, 0.0),
        ("", 0.0, 0.0, 0.0),
        ("Final Answer: [a1, a1, x9]", 0.4, 0.4, 0.4),
    ],
)
def test_readings(reply: str, strict: float, flexible: float, harness: float) -> None:
    assert scored("graphwalks_f1", reply, *RIGHT).value == pytest.approx(strict)
    assert scored("graphwalks_flexible_f1", reply, *RIGHT).value == pytest.approx(flexible)
    assert scored("graphwalks_harness_f1", reply, *RIGHT).value == pytest.approx(harness)


def test_both_empty_is_right_but_for_the_harness() -> None:
    values = {
        name: scored(f"graphwalks_{name}", "Final Answer: []").value
        for name in ("f1", "flexible_f1", "harness_f1")
    }
    assert values == {"f1": 1.0, "flexible_f1": 1.0, "harness_f1": 0.0}
    assert scored("graphwalks_f1", "There are none.").value == 0.0  # it lists nothing
    assert scored("graphwalks_f1", "Final Answer: [a1]").value == 0.0


def a_reply(rng: Random, nodes: list[str]) -> tuple[str, list[str] | None]:
    """A reply in one of the ways in which models write, and what its last line lists, if
    anything."""
    quote = rng.choice(["", "", "'", '"'])
    listed = [f"{quote}{node}{quote}" for node in nodes]
    gap, comma = rng.choice(["", " ", "  "]), rng.choice([", ", ",", " , "])
    line = f"Final Answer:{gap}[{comma.join(listed)}]"
    kind = rng.randrange(6)
    if kind == 0:
        return f"Let me see.\n{line}{rng.choice(['', chr(10)])}", nodes
    if kind == 1:
        return f"{line}\nThat is all.", None
    if kind == 2:
        return f"**{line}**", nodes
    if kind == 3:
        return line.replace("[", "(").replace("]", ")"), None
    return line, nodes


def independent_f1(listed: list[str] | None, right: list[str]) -> Fraction:
    """2 |A and B| / (|A| + |B|), counted on sorted lists."""
    if listed is None:
        return Fraction(0)
    own, wanted = sorted(set(listed)), sorted(set(right))
    if not own and not wanted:
        return Fraction(1)
    same = sum(node in wanted for node in own)
    return Fraction(2 * same, len(own) + len(wanted))


def test_f1_agrees_with_an_independent_computation_on_generated_pairs() -> None:
    rng, seen = Random(16), set[float]()
    for _ in range(PAIRS):
        names = [f"{rng.getrandbits(40):010x}" for _ in range(12)]
        right = rng.sample(names, rng.randrange(6))
        listed_nodes = rng.choices(names, k=rng.randrange(7))
        reply, listed = a_reply(rng, listed_nodes)
        value = rules.strict_f1(reply, right)
        assert value == pytest.approx(float(independent_f1(listed, right)), abs=1e-12), reply
        seen.add(round(value, 6))
    assert len(seen) > 20
