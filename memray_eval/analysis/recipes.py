"""How far a figure depends on how a judge is asked: the same answers by several recipes.

A recipe is a rubric of semantic_correctness (strict, lenient, a file) or a benchmark's own judge.
Beside the answers each judges planted ones, which are wrong by how they are made: `vague` stays
with the question's subject and answers nothing, `detail` is the right answer with another number,
the other of yes and no, or another sample's answer. Those of them that it takes for right are its
false accepts."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Literal, NamedTuple, TypeAlias

from memray_eval.metrics.long_context import semantic_correctness
from memray_eval.types import Frozen, Record, Response, Sample

RIGHT = 0.5  # a score from here on takes an answer for right
TRIED = 50  # samples whose answers may stand for a wrong one
QUOTED_CHARS = 200  # of a question
Kind: TypeAlias = Literal["vague", "detail"]
KINDS: tuple[Kind, ...] = ("vague", "detail")
_NUMBER = re.compile(r"\d+")
_OPPOSITE = {"yes": "No", "no": "Yes"}


class JudgedAnswer(NamedTuple):
    """An answer that a recipe judges."""

    sample: str
    candidate: str
    epoch: int


class RecipeFigures(Frozen):
    """What one recipe made of the answers. `means` are by candidate, over the answers that every
    recipe scored; `false_accepts` is, by kind, the share of the `n_planted` planted answers with a
    verdict that it takes for right, None without one."""

    recipe: str
    metric: str
    digest: str
    n_scored: int
    means: dict[str, float]
    n_planted: dict[Kind, int]
    false_accepts: dict[Kind, float | None]


class RecipeSpan(Frozen):
    """The recipes side by side: of `n_compared` answers that all scored, `n_flipped` are right by
    one and wrong by another. `spans` is each candidate's lowest and highest mean, `swaps` the pairs
    of candidates of which one recipe puts the one ahead and another the other."""

    recipes: tuple[RecipeFigures, ...]
    n_answers: int
    n_compared: int
    n_flipped: int
    spans: dict[str, tuple[float, float]]
    swaps: tuple[tuple[str, str], ...]


class RecipeScores(NamedTuple):
    """All that one recipe said: scores of the answers, and of planted ones by their kind."""

    recipe: str
    metric: str
    digest: str
    scores: Mapping[JudgedAnswer, float | None]
    planted: Mapping[Kind, Sequence[float | None]]


def plant_answers(samples: Iterable[Sample]) -> Iterator[tuple[Kind, Sample, str]]:
    """Wrong answers to samples with a right one; none that `rules` find the right answer in."""
    known = [of for of in samples if of.answers and of.metadata.get("unanswerable") is not True]
    for number, sample in enumerate(known):
        question = sample.query[-QUOTED_CHARS:]
        yield "vague", sample, f'On "{question}": that came up, and went much as one would expect.'
        others = (known[(number + step) % len(known)] for step in range(1, TRIED + 1))
        for text in _details(sample, others):
            by_rules = semantic_correctness.rules(sample, Response(text=text), {})
            if by_rules.verdict != semantic_correctness.CORRECT:
                yield "detail", sample, text
                break


def _details(sample: Sample, others: Iterable[Sample]) -> Iterator[str]:
    right = sample.answers[0]
    if opposite := _OPPOSITE.get(right.strip(" .").casefold()):
        yield opposite
    if _NUMBER.search(right):
        yield _NUMBER.sub(_another_number, right, count=1)
    yield from (other.answers[0] for other in others if other.task == sample.task)


def _another_number(found: re.Match[str]) -> str:
    """Off by half, so that no approximate answer is met; a year by three."""
    number, width = int(found[0]), len(found[0])
    step = 3 if 1000 <= number <= 2100 else number // 2 + 1
    return str(number + step).zfill(width)


def scores_of(records: Iterable[Record], metric: str) -> dict[JudgedAnswer, float | None]:
    """The metric's score of each answer of a run, None without a verdict."""
    scores = dict[JudgedAnswer, float | None]()
    for record in records:
        unit = JudgedAnswer(record.sample.id, record.candidate.name, record.epoch)
        scores[unit] = next((s.value for s in record.scores if s.metric == metric), None)
    return scores


def compare_recipes(judged: Sequence[RecipeScores]) -> RecipeSpan:
    """The recipes' figures and what differs, over the answers that every recipe scored."""
    scored = [{unit for unit, score in of.scores.items() if score is not None} for of in judged]
    units = [unit for unit in judged[0].scores if all(unit in of for of in scored)]
    recipes = tuple(_figures(of, units) for of in judged)
    verdicts = [{(of.scores[unit] or 0.0) >= RIGHT for of in judged} for unit in units]
    means = {name: [of.means[name] for of in recipes] for name in sorted(recipes[0].means)}
    return RecipeSpan(
        recipes=recipes,
        n_answers=len(judged[0].scores),
        n_compared=len(units),
        n_flipped=sum(len(seen) > 1 for seen in verdicts),
        spans={name: (min(of), max(of)) for name, of in means.items()},
        swaps=tuple(
            (a, b)
            for a, b in combinations(means, 2)
            if {x > y for x, y in zip(means[a], means[b], strict=True) if x != y} == {True, False}
        ),
    )


def _figures(of: RecipeScores, units: Sequence[JudgedAnswer]) -> RecipeFigures:
    by_candidate = defaultdict[str, list[float]](list)
    for unit in units:
        by_candidate[unit.candidate].append(of.scores[unit] or 0.0)
    planted = {kind: of.planted.get(kind, ()) for kind in KINDS}
    known = {kind: [v for v in values if v is not None] for kind, values in planted.items()}
    return RecipeFigures(
        recipe=of.recipe,
        metric=of.metric,
        digest=of.digest,
        n_scored=sum(value is not None for value in of.scores.values()),
        means={name: fmean(values) for name, values in by_candidate.items()},
        n_planted={kind: len(values) for kind, values in known.items()},
        false_accepts={
            kind: fmean(value >= RIGHT for value in values) if values else None
            for kind, values in known.items()
        },
    )
