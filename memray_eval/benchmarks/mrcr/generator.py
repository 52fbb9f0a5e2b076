"""Conversations in which one request is made 2, 4 or 8 times, each time with another answer from a
seeded grammar. Its tokens are those of the bare messages, each counted by itself."""

from __future__ import annotations

import math
from functools import partial
from itertools import chain, cycle
from random import Random
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from memray_eval.benchmarks.generator.plan import Room, SampleDraft, Task, TaskSet, TooShort
from memray_eval.benchmarks.generator.prose import (
    QuestionOrder,
    TextUnit,
    scatter,
    sentence,
    word_of,
)
from memray_eval.benchmarks.generator.resources import Resources, TokenCounter
from memray_eval.benchmarks.mrcr.suite import PREFIX, TASKS, read_messages, to_json
from memray_eval.types import Message

TOPICS = tuple(
    """
    anchors|apple trees|balloons|barns|beehives|bells|bicycles|blankets|bridges|brooms|buttons
    |candles|canoes|carpets|cellars|chimneys|clocks|clouds|coats|compasses|crows|curtains|drums
    |echoes|elevators|envelopes|fences|ferries|fireflies|flutes|foxes|fountains|gardens|gates
    |glaciers|gloves|hammocks|harbours|hedgehogs|herons|hinges|hotels|icicles|inkwells|islands
    |jugglers|kettles|keys|kites|ladders|lanterns|lemons|lighthouses|locks|magnets|maps|markets
    |masks|meadows|mirrors|moths|mountains|mushrooms|oars|onions|orchards|otters|owls|paddles
    |pears|pianos|pigeons|pillows|postcards|puddles|quilts|rafts|railways|recipes|ribbons|rivers
    |robins|roofs|ropes|sails|sandals|saucers|scarecrows|shadows|shells|shovels|snails
    |spoons|stairs|statues|stoves|suitcases|swallows|swings|teapots|tents|tides|towers
    |trains|tunnels|umbrellas|valleys|violets|walnuts|waterfalls|weathercocks|wells|whales
    |windmills|windows|wolves
    """.replace("\n", "")
    .replace("    ", "")
    .strip()
    .split("|")
)


class Form(NamedTuple):
    """The beginning and end of a form; `breaks`: each sentence is a line of its own."""

    opening: tuple[str, ...]
    closing: tuple[str, ...]
    breaks: bool = False


FORMS = {
    "poem": Form(
        ("O {topic}, {topic}!", "I sing of {topic} today.", "Who has not dreamt of {topic}?"),
        ("So much, and no more, of {topic}.", "And still I think of {topic}."),
        breaks=True,
    ),
    "song": Form(
        ("La la la, here come the {topic}.", "One, two, three, the {topic}!"),
        ("La la la, there go the {topic}.", "Once more, the {topic}!"),
        breaks=True,
    ),
    "letter": Form(
        ("My dear friend, you asked me about {topic}.", "Dear cousin, I must tell you of {topic}."),
        ("Yours, with my best wishes to all the {topic}.", "Write soon, and mention {topic}."),
    ),
    "short story": Form(
        ("Once there was a town that lived for {topic}.", "It all began with {topic}."),
        ("And that was the end of the {topic}.", "Nobody spoke of {topic} again."),
    ),
    "diary entry": Form(
        ("Today I could think of nothing but {topic}.", "A quiet day, but for the {topic}."),
        ("To bed early; more of {topic} tomorrow.", "I am weary of {topic}."),
    ),
    "speech": Form(
        ("Friends, I have come to speak of {topic}.", "Citizens, let us be frank about {topic}."),
        ("I thank you, in the name of all {topic}.", "Long live {topic}!"),
    ),
    "news report": Form(
        ("The council met last night to discuss {topic}.", "New rules for {topic} are at hand."),
        ("The question of {topic} remains open.", "More about {topic} in our next issue."),
    ),
    "fable": Form(
        ("In the days when {topic} could talk, this came to pass.", "Hear what became of {topic}."),
        ("Which shows what {topic} are worth.", "Such is the lesson of {topic}."),
    ),
    "travel note": Form(
        ("We came by the slow train to see the {topic}.", "The road to the {topic} is a long one."),
        ("One should see the {topic} once.", "We left, and took no {topic} with us."),
    ),
    "review": Form(
        ("I did not expect much of {topic}.", "Of all the {topic} I know, these are the oddest."),
        ("All in all, {topic} for every taste.", "Three stars of five for these {topic}."),
    ),
    "riddle": Form(
        ("What do all {topic} have in common?", "Guess what I say of {topic}."),
        ("The answer, of course, has to do with {topic}.", "Now guess again, {topic}."),
        breaks=True,
    ),
    "advertisement": Form(
        ("Are you in need of {topic}?", "Finest {topic}, new and used!"),
        ("Ask for our {topic} by name.", "No {topic} are sold on Sundays."),
    ),
}
_ON_TOPIC = (
    "Some say that {topic} bring luck.",
    "There is more to {topic} than people think.",
    "My aunt kept a list of {topic} in the kitchen drawer.",
    "In our street, {topic} were a matter for grown-ups.",
    "Without {topic} the year would be a long one.",
    "He knew {topic} by heart, and said so.",
    "Nobody had ever counted the {topic}.",
    "For {topic} there is a time, as there is for rain.",
)
LEAST_SENTENCES, MOST_SENTENCES = 4, 8
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
SPEAKERS: tuple[Literal["user", "assistant"], ...] = ("user", "assistant")
_BREAK = "\x1e"  # between a request and its answer in a unit's text


def request(form: str, topic: str) -> str:
    """The user's request for a piece."""
    return f"Write {'an' if form[0] in 'aeiou' else 'a'} {form} about {topic}."


def write_piece(rng: Random, form: str, topic: str) -> str:
    """A piece of LEAST_SENTENCES to MOST_SENTENCES sentences between its first and its last."""
    layout, names = FORMS[form], {"topic": topic}
    body = [
        rng.choice(_ON_TOPIC).format(**names) if rng.random() < 0.4 else sentence(rng, "en")
        for _ in range(rng.randint(LEAST_SENTENCES, MOST_SENTENCES))
    ]
    parts = [rng.choice(layout.opening), *body, rng.choice(layout.closing)]
    text = ("\n" if layout.breaks else " ").join(part.format(**names) for part in parts)
    return text[0].upper() + text[1:]


def recall_piece(
    n_needles: int, order: QuestionOrder, resources: Resources, slack: int
) -> SampleDraft:
    """Sample i asks for needle i modulo `n_needles`; a filler line ends the last near piece."""
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
    turns = zip(cycle(SPEAKERS), chain.from_iterable(conversation), strict=False)
    messages = [Message(role=role, content=text) for role, text in turns]
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
    """The needles, all different, and two near pieces: one of their form, one on their topic."""
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
    """All pairs in one conversation, the sample's own at random places; where the needles stand."""
    places = sorted(rng.sample(range(len(others) + len(pairs)), len(pairs)))
    near = sorted(rng.sample(places, len(pairs) - n_needles))
    needles = [position for position in places if position not in near]
    mixed = list(others)
    for position, pair in sorted(zip([*needles, *near], pairs, strict=True)):
        mixed.insert(position, pair)
    return mixed, needles


def _draw_others(
    rng: Random, order: QuestionOrder, resources: Resources, repeated: str
) -> tuple[list[Pair], list[int]]:
    """Requests with answers and tokens, to fill the length, none of them the asked one."""
    counter, spread = resources.counter, scatter(len(KINDS), resources.seed, "pieces")

    def make(maker: Random, number: int) -> TextUnit:
        kind = KINDS[spread(number % len(KINDS))]
        return TextUnit(f"{request(*kind)}{_BREAK}{write_piece(maker, *kind)}")

    def count_pair(text: str) -> int:
        return sum(counter.whole(part) for part in text.split(_BREAK))

    pool = resources.pool("pieces", order.language, make, measure=count_pair)
    numbers = pool.draw(rng, order.length, extra=math.ceil(order.length / len(KINDS)))
    pairs, counts = list[Pair](), list[int]()
    for text, count in zip(pool.texts(numbers), pool.counts(numbers).tolist(), strict=True):
        ask, answer = text.split(_BREAK)
        if ask != repeated:
            pairs.append((ask, answer))
            counts.append(count)
    return pairs, counts


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
