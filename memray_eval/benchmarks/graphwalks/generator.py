"""Random directed graphs of any length, written as lists of edges in random order, and questions
about them that have one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random

import numpy as np

from memray_eval.benchmarks.generator.plan import Task, TaskSet
from memray_eval.benchmarks.generator.pools import SPARE, TextUnit, scatter
from memray_eval.benchmarks.generator.question_order import (
    IntArray,
    QuestionOrder,
    integers,
    shuffle,
)
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec
from memray_eval.benchmarks.generator.token_counter import LINE

HEAD = (
    "Below is a directed graph: a list of edges, one a line, in no order. After the list an "
    "operation follows, which names a node; find the set of nodes that it results in. Here is a "
    "small graph with the answers to two operations:\n"
    "0a -> 0b\n0a -> 0c\n0b -> 0d\n0c -> 0d\n"
    "Operation: list the parents of the node 0d.\nFinal Answer: [0b, 0c]\n"
    "Operation: list the nodes at distance 2 from the node 0a.\nFinal Answer: [0d]\n"
)
TITLE = "The graph of the question has these edges:\n"
CLOSING = "This is the end of the list."
FORM = (
    " Reply with nothing but a last line of this form, with the nodes in any order, or with "
    "nothing between the brackets where there are none:\nFinal Answer: [node, node, node]"
)
PARENTS = (
    "Operation: list the parents of the node {node}: all nodes with an edge to it. Do not list "
    "the node itself."
)
BFS = (
    "Operation: list the nodes at distance {depth} from the node {node}: all nodes to which the "
    "shortest path from it has exactly {depth} edges."
)
OUT_EDGES = 4  # of a node, before the last edges are left out
LEAST_EDGES, LEAST_NODES = 12, 8
RESERVE = 16  # tokens by which one question may be longer than another
EMPTY = 10  # of so many questions for parents one asks a node that has none, where there is one
DEEPEST, MOST_NODES = 4, 256  # of a question for a distance, and of its answer

Graph = Mapping[int, list[int]]
# The node that is asked for, the nodes that are the answer, and at which distance they are
Ask = Callable[[Random, list[tuple[int, int]]], tuple[int, Iterable[int], int]]


def parents(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The last of every EMPTY questions is about a node without parents: an empty set."""

    def ask(rng: Random, edges: list[tuple[int, int]]) -> tuple[int, Iterable[int], int]:
        into: dict[int, list[int]] = {}
        for source, target in edges:
            into.setdefault(target, []).append(source)
        orphans = sorted({source for source, _ in edges} - into.keys())
        wants_none = order.number % EMPTY == EMPTY - 1 and bool(orphans)
        node = rng.choice(orphans if wants_none else sorted(into))
        return node, into.get(node, ()), 1

    return _make(order, resources, slack, PARENTS, ask)


def bfs(order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """The distance goes from 1 to DEEPEST by the sample's number. Where no node is so far from the
    one that is asked for, or more than MOST_NODES are, it is the greatest below."""

    def ask(rng: Random, edges: list[tuple[int, int]]) -> tuple[int, Iterable[int], int]:
        graph: dict[int, list[int]] = {}
        for source, target in edges:
            graph.setdefault(source, []).append(target)
        node = rng.choice(sorted(graph))
        levels = _levels(graph, node, 1 + order.number % DEEPEST)
        depth = max(d for d, level in enumerate(levels) if d and len(level) <= MOST_NODES)
        return node, levels[depth], depth

    return _make(order, resources, slack, BFS, ask)


def _levels(graph: Graph, node: int, deepest: int) -> list[list[int]]:
    """The nodes at distance 0, 1, ... from a node, up to the last distance that any is at."""
    levels, seen = [[node]], {node}
    while len(levels) <= deepest:
        level = dict.fromkeys(
            target
            for source in levels[-1]
            for target in graph.get(source, ())
            if target not in seen
        )
        if not level:
            break
        seen.update(level)
        levels.append(list(level))
    return levels


def _make(
    order: QuestionOrder, resources: Resources, slack: int, wording: str, ask: Ask
) -> SampleDraft:
    """The edges that fit, and a question about them. They leave RESERVE tokens for a question that
    takes more of them than the one they are fitted beside; the filler line takes what is left."""
    rng, counter = order.rng(), resources.counter
    spread = scatter(1 << 40, resources.seed, "nodes")  # one name a number, ten digits each

    def node(_: Random, number: int) -> TextUnit:
        return TextUnit(f"{spread(number):010x}")

    sources = resources.pool("sources", "", node, measure=lambda name: counter.line(f"{name} ->"))
    targets = resources.pool(
        "targets", "", node, measure=lambda name: counter.after("0a ->", f" {name}\n")
    )
    n_edges = int(order.length / (sources.mean + targets.mean) * SPARE) + 2 * LEAST_EDGES
    numbers = sources.sample(rng, max(LEAST_NODES, n_edges // OUT_EDGES))
    targets.grow(max(numbers) + 1)
    edges = _draw_edges(rng, len(numbers))
    names = sources.texts(numbers)
    costs = np.array(sources.counts(numbers))[edges[:, 0]]
    costs += np.array(targets.counts(numbers))[edges[:, 1]]
    totals = counter.known(LINE, TITLE) + np.cumsum(costs)

    def frame(query: str) -> SampleSpec:
        return SampleSpec(order, resources, slack, HEAD, CLOSING, query + FORM)

    n = frame(wording.format(node=names[0], depth=1)).most(totals + RESERVE, LEAST_EDGES)
    kept = [(source, target) for source, target in edges[:n].tolist()]
    start, answer, depth = ask(rng, kept)
    lines = (f"{names[source]} -> {names[target]}\n" for source, target in kept)
    spec = frame(wording.format(node=names[start], depth=depth))
    answers = tuple(names[node] for node in answer)
    draft = spec.finish(TITLE + "".join(lines), int(totals[n - 1]), answers)
    return draft._replace(about={"distance": depth, "edges": n})


def _draw_edges(rng: Random, n_nodes: int) -> IntArray:
    """OUT_EDGES from every node to others, none twice, in random order: source, target."""
    source = np.repeat(np.arange(n_nodes), OUT_EDGES)
    target = (source + 1 + integers(rng, len(source), n_nodes - 1)) % n_nodes
    pairs = shuffle(rng, np.unique(source * n_nodes + target))
    return np.stack([pairs // n_nodes, pairs % n_nodes], axis=1)


GRAPHWALKS = TaskSet(
    suite="graphwalks",
    tasks={
        "parents": Task(parents, has_depth=False, needs_all=True),
        "bfs": Task(bfs, has_depth=False, needs_all=True),
    },
)
