"""Stories of our own, their sentences scattered over a long text in their order."""

from __future__ import annotations

from functools import partial

from memray_eval.benchmarks.babilong.stories import STORIES
from memray_eval.benchmarks.generator.plan import Task, TaskSet
from memray_eval.benchmarks.generator.pools import insert_needles, insert_sentence
from memray_eval.benchmarks.generator.question_order import QuestionOrder
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec

HEAD, CLOSING = "Notes from a small town.\n", "This is the end of the text."
LEAST_LINES = 4


def hide_story(kind: str, order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Each sentence of the story stands within a paragraph of its own, at places drawn at
    random."""
    rng = order.rng()
    story = STORIES[kind](rng)
    spec = SampleSpec(order, resources, slack, HEAD, CLOSING, story.question)
    pile = resources.essay(order.language)
    drawn = pile.draw(rng, order.length, extra=len(story.facts))
    hosts, lines = drawn[: len(story.facts)], drawn[len(story.facts) :]
    facts = [
        insert_sentence(pile.unit(host).text, fact)
        for host, fact in zip(hosts, story.facts, strict=True)
    ]
    own, totals = int(resources.counter.lines(facts).sum()), pile.totals(lines)
    n = spec.most(totals + own, LEAST_LINES)
    places = sorted(rng.choices(range(n + 1), k=len(facts)))
    body = insert_needles(pile.texts(lines[:n]), list(zip(places, facts, strict=True)))
    draft = spec.finish(body, own + int(totals[n - 1]), (story.answer,))
    return draft._replace(about={"facts": list(story.facts)})


BABILONG = TaskSet(
    suite="babilong",
    tasks={task: Task(partial(hide_story, task), has_depth=False) for task in STORIES},
)
