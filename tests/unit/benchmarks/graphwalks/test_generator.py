"""Generated graphs: exact lengths, and answers that are found again from the text alone."""

from __future__ import annotations

import re
from functools import partial

import pytest

from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.benchmarks.graphwalks.generator import GRAPHWALKS
from memray_eval.benchmarks.graphwalks.suite import TASKS, prompt
from memray_eval.errors import ConfigError
from memray_eval.ports import Tokenizer
from memray_eval.types import Candidate, Sample
from tests.unit.benchmarks.builders import generated

EDGE = re.compile(r"^([0-9a-f]{10}) -> ([0-9a-f]{10})$", re.MULTILINE)


sampled = partial(generated, GRAPHWALKS, n=20)


def solve(sample: Sample) -> set[str]:
    """The answer by the text alone: distances by relaxing all edges again and again."""
    edges = EDGE.findall(sample.context or "")
    match = re.search(
        r"(?:distance ([0-9]+) from the|parents of the) node ([0-9a-f]{10})", sample.query
    )
    assert match
    node = match[2]
    if match[1] is None:
        return {source for source, target in edges if target == node} - {node}
    distance, changed = {node: 0}, True
    while changed:
        changed = False
        for source, target in edges:
            step = distance.get(source, 10**9) + 1
            if step < distance.get(target, 10**9):
                distance[target], changed = step, True
    return {name for name, steps in distance.items() if steps == int(match[1])}


def test_every_answer_is_found_again_and_every_length_is_exact(
    resources: Resources, pieces: Tokenizer
) -> None:
    result = sampled(resources, 2048, 4001)
    for sample in result:
        assert set(sample.answers) == solve(sample), sample.id
        assert len(set(sample.answers)) == len(sample.answers)
        text = plain_prompt(sample.context or "", sample.query)
        assert pieces.count(text) == sample.metadata["tokens"] == sample.metadata["length"]
        assert sample.metadata["bucket"] in ("2k", "4001")
    parents = [sample for sample in result if sample.task == "parents"]
    assert any(not sample.answers for sample in parents)  # of ten, one has no parents
    assert sum(bool(sample.answers) for sample in parents) > len(parents) / 2
    distances = {sample.metadata["distance"] for sample in result if sample.task == "bfs"}
    assert {1, 2, 3} <= distances
    assert all(sample.answers for sample in result if sample.task == "bfs")


def test_a_long_graph_has_many_nodes_and_no_edge_twice(
    resources: Resources, pieces: Tokenizer
) -> None:
    for sample in sampled(resources, 65_536, n=1):
        edges = EDGE.findall(sample.context or "")
        assert len(edges) == len(set(edges)) == sample.metadata["edges"] > 2000
        assert all(source != target for source, target in edges)
        assert set(sample.answers) == solve(sample)
        assert pieces.count(plain_prompt(sample.context or "", sample.query)) == 65_536


@pytest.mark.parametrize("length", [2**17, pytest.param(2**20, marks=pytest.mark.night)])
def test_the_longest_graphs_are_exact_and_solved(pieces: Tokenizer, length: int) -> None:
    for sample in sampled(Resources(pieces, 0), length, n=2):
        assert pieces.count(plain_prompt(sample.context or "", sample.query)) == length
        assert set(sample.answers) == solve(sample)


def test_what_is_asked_is_what_was_counted_and_too_short_a_length_is_said(
    resources: Resources,
) -> None:
    sample = sampled(resources, 2048, n=1)[0]
    prompted = prompt(sample, Candidate(name="a", model="m"))
    assert prompted.messages[0].content == plain_prompt(sample.context or "", sample.query)
    with pytest.raises(ConfigError, match=r"--lengths 300: parents \(en\) takes at least [0-9]+"):
        sampled(resources, 300)
    assert tuple(GRAPHWALKS.tasks) == TASKS
