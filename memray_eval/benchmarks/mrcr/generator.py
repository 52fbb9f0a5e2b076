"""Conversations of any length in which one request is made 2, 4 or 8 times, each time with another
answer.

The tokens of a sample are those of its messages, each counted by itself, without special tokens and
without what a chat template puts around them."""

from __future__ import annotations

import math
from functools import partial
from random import Random
from typing import TypeAlias

import numpy as np

from memray_eval.benchmarks.generator.plan import Task, TaskSet
from memray_eval.benchmarks.generator.pools import Unit, scatter
from memray_eval.benchmarks.generator.question_order import QuestionOrder, word_of
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import Room, SampleDraft, TooShort
from memray_eval.benchmarks.generator.token_counter import TokenCounter
from memray_eval.benchmarks.mrcr.pieces import FORMS, TOPICS, request, write_piece
from memray_eval.benchmarks.mrcr.suite import PREFIX, TASKS, read_messages, to_json
from memray_eval.types import Message

KINDS = tuple((form, topic) for form in FORMS for topic in TOPICS)
QUERY = (
    "Above you answered the request for a {form} about {topic} {n} times. Repeat the {ordinal} of "
    "these answers word for word, with {prefix} put directly before its first letter. Reply with "
    "that alone."
)
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
PREFIX_SIGNS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
PREFIX_LENGTH = 10
Pair: TypeAlias = tuple[str, str]  # what the user asks for, and the answer
_BREAK = "\x1e"  # between a request and its answer in a unit's text


def recall_piece(
    n_needles: int, order: QuestionOrder, resources: Resources, slack: int
) -> SampleDraft:
    """Sample i asks for needle i modulo `n_needles`. What is left of the length is a filler line
    below the last of the near pieces."""
    rng, counter = order.rng(), resources.counter
    form, topic = rng.choice(KINDS)
    pairs = _write_pairs(rng, n_needles, form, topic)
    number, prefix = order.number % n_needles, word_of(rng, PREFIX_SIGNS, PREFIX_LENGTH)
    query = QUERY.format(
        form=form, topic=topic, n=n_needles, ordinal=ORDINALS[number], prefix=prefix
    )
    fixed = counter.whole(query) + sum(counter.whole(text) for pair in pairs for text in pair)
    room = Room(counter, order.language, order.length - slack - fixed)
    if room.room < 0:
        raise TooShort(-room.room)
    others, counts = _draw_others(rng, order, resources, request(form, topic))
    totals = np.cumsum([0, *counts])
    n = room.most(totals) - 1
    filler, filled = room.fill(int(totals[n]))
    ask, answer = pairs[-1]
    conversation, places = _mix(rng, others[:n], [*pairs[:-1], (ask, answer + filler)], n_needles)
    messages = _to_messages(conversation)
    about = {
        PREFIX: prefix,
        "n_needles": n_needles,
        "desired_msg_index": 2 * places[number],
        "total_messages": len(messages) + 1,
        "n_chars": len(query) + sum(len(message.content) for message in messages),
    }
    answers, tokens = (prefix + pairs[number][1],), fixed + int(totals[n]) + filled
    return SampleDraft(to_json(messages), query, answers, None, tokens, about)


def _write_pairs(rng: Random, n_needles: int, form: str, topic: str) -> list[Pair]:
    """The needles, all different, and then two near pieces, of which one shares their form and one
    their topic. The last ends in a line break, for a filler line to follow."""
    needles: dict[str, None] = {}
    while len(needles) < n_needles:
        needles[write_piece(rng, form, topic)] = None
    other_topic = rng.choice([other for other in TOPICS if other != topic])
    other_form = rng.choice([other for other in FORMS if other != form])
    near = [(form, other_topic), (other_form, topic)]
    first, last = [(request(*kind), write_piece(rng, *kind)) for kind in near]
    repeated = request(form, topic)
    return [*((repeated, text) for text in needles), first, (last[0], f"{last[1]}\n")]


def _mix(
    rng: Random, others: list[Pair], pairs: list[Pair], n_needles: int
) -> tuple[list[Pair], list[int]]:
    """One conversation of all pairs, those of the sample's own at random places, the needles in
    their order; and where the needles stand."""
    places = sorted(rng.sample(range(len(others) + len(pairs)), len(pairs)))
    near = set(rng.sample(places, len(pairs) - n_needles))
    needles = [position for position in places if position not in near]
    mixed = list(others)
    for position, pair in sorted(zip([*needles, *sorted(near)], pairs, strict=True)):
        mixed.insert(position, pair)
    return mixed, needles


def _draw_others(
    rng: Random, order: QuestionOrder, resources: Resources, repeated: str
) -> tuple[list[Pair], list[int]]:
    """Requests with answers, and their tokens, enough for the sample's length, none of them for
    what is asked."""
    counter, spread = resources.counter, scatter(len(KINDS), resources.seed, "pieces")

    def make(maker: Random, number: int) -> Unit:
        kind = KINDS[spread(number % len(KINDS))]
        return Unit(f"{request(*kind)}{_BREAK}{write_piece(maker, *kind)}")

    def count_pair(text: str) -> int:
        return sum(counter.whole(part) for part in text.split(_BREAK))

    pool = resources.pool("pieces", order.language, make, measure=count_pair)
    numbers = pool.draw(rng, order.length, extra=math.ceil(order.length / len(KINDS)))
    counted = [
        ((ask, answer), count)
        for text, count in zip(pool.texts(numbers), pool.counts(numbers).tolist(), strict=True)
        for ask, answer in [text.split(_BREAK)]
        if ask != repeated
    ]
    return [pair for pair, _ in counted], [count for _, count in counted]


def _to_messages(conversation: list[Pair]) -> list[Message]:
    return [
        message
        for ask, answer in conversation
        for message in (
            Message(role="user", content=ask),
            Message(role="assistant", content=answer),
        )
    ]


def count_messages(counter: TokenCounter, draft: SampleDraft) -> int:
    """The tokens of all messages, each counted by itself."""
    earlier = read_messages(draft.context, "context")
    return counter.whole(draft.query) + sum(counter.whole(message.content) for message in earlier)


MRCR = TaskSet(
    suite="mrcr",
    tasks={
        task: Task(partial(recall_piece, int(task.removesuffix("needle"))), has_depth=False)
        for task in TASKS
    },
    count=count_messages,
)
