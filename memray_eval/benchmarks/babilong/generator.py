"""Little stories of bAbI's first ten kinds in our own sentences (what happened, a question, its
answer), scattered over a long text in their order. The answer is read off the world that the story
leaves behind; it is never one that BABILong's rule could not score (qa7's "none")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from random import Random
from typing import NamedTuple

from memray_eval.benchmarks.generator.plan import Task, TaskSet
from memray_eval.benchmarks.generator.pools import insert_sentence
from memray_eval.benchmarks.generator.question_order import QuestionOrder
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import SampleDraft, SampleSpec

PEOPLE = ("Mary", "John", "Daniel", "Sandra")
GIVERS = ("Mary", "Fred", "Jeff", "Bill")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
THINGS = ("apple", "football", "milk")
DIRECTIONS = {"north": "south", "south": "north", "east": "west", "west": "east"}
NUMBERS = ("none", "one", "two", "three")
GOES = ("{who} went to the {place}.", "{who} moved to the {place}.", "{who} ran to the {place}.")
TAKES = ("{who} took the {thing}.", "{who} picked up the {thing}.")
DROPS = ("{who} put down the {thing}.", "{who} left the {thing} there.")
GIVES = ("{who} gave the {thing} to {other}.", "{who} passed the {thing} to {other}.")
EVENTS = (6, 10)  # the fewest and the most of a story that goes on
HEAD, CLOSING = "Notes from a small town.\n", "This is the end of the text."
LEAST_LINES = 4


class Story(NamedTuple):
    facts: tuple[str, ...]
    question: str
    answer: str


class World:
    """Who is where and holds what, and the sentences that told it."""

    def __init__(self, rng: Random, people: tuple[str, ...]) -> None:
        self.rng, self.people = rng, people
        self.facts: list[str] = []
        self.place: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.trail: dict[str, list[str]] = {}  # the places that a thing was at, in order

    def tell(self, templates: tuple[str, ...], **names: str) -> None:
        self.facts.append(self.rng.choice(templates).format(**names))

    def go(self, who: str) -> None:
        place = self.rng.choice([place for place in PLACES if place != self.place.get(who)])
        self.place[who] = place
        self.tell(GOES, who=who, place=place)
        for thing in self.held_by(who):
            self._note(thing, place)

    def take(self, who: str, thing: str) -> None:
        self.holder[thing] = who
        self.tell(TAKES, who=who, thing=thing)
        if who in self.place:
            self._note(thing, self.place[who])

    def drop(self, who: str, thing: str) -> None:
        del self.holder[thing]
        self.tell(DROPS, who=who, thing=thing)

    def give(self, who: str, thing: str, other: str) -> None:
        self.holder[thing] = other
        self.tell(GIVES, who=who, thing=thing, other=other)
        if other in self.place:
            self._note(thing, self.place[other])

    def held_by(self, who: str) -> list[str]:
        return [thing for thing in THINGS if self.holder.get(thing) == who]

    def _note(self, thing: str, place: str) -> None:
        trail = self.trail.setdefault(thing, [])
        if not trail or trail[-1] != place:
            trail.append(place)

    def happen(self, gives: bool = False) -> None:
        """One event: someone goes, takes what lies where they are (or has not been seen), puts
        something down, or, with `gives`, passes it on to someone at the same place."""
        who = self.rng.choice(self.people)
        held, kind = self.held_by(who), self.rng.random()
        if who not in self.place or kind < 0.4:
            self.go(who)
            return
        place = self.place[who]
        free = [
            thing
            for thing in THINGS
            if thing not in self.holder and self.trail.get(thing, [place])[-1] == place
        ]
        near = [other for other in self.people if other != who and self.place.get(other) == place]
        if held and near and gives:
            self.give(who, self.rng.choice(held), self.rng.choice(near))
        elif free and kind < 0.8:
            self.take(who, self.rng.choice(free))
        elif held:
            self.drop(who, self.rng.choice(held))
        else:
            self.go(who)


def _until(
    rng: Random,
    ask: Callable[[World], tuple[str, str] | None],
    people: tuple[str, ...] = PEOPLE,
    gives: bool = False,
) -> Story:
    """The first of several stories about which there is something to ask."""
    while True:
        world = World(rng, people)
        for _ in range(rng.randint(*EVENTS)):
            world.happen(gives)
        if (question := ask(world)) is not None:
            return Story(tuple(world.facts), *question)


def _walk_about(rng: Random) -> tuple[tuple[str, ...], str, str]:
    """The facts of people who go from place to place, one of the people, and where they are."""
    world = World(rng, PEOPLE)
    for _ in range(rng.randint(*EVENTS)):
        world.go(rng.choice(PEOPLE))
    who = rng.choice(sorted(world.place))
    return tuple(world.facts), who, world.place[who]


def where_is_someone(rng: Random) -> Story:
    facts, who, place = _walk_about(rng)
    return Story(facts, f"Where is {who}?", place)


def where_is_a_thing(rng: Random) -> Story:
    def ask(world: World) -> tuple[str, str] | None:
        moved = sorted(thing for thing, trail in world.trail.items() if len(trail) > 1)
        if not moved:
            return None
        thing = rng.choice(moved)
        return f"Where is the {thing}?", world.trail[thing][-1]

    return _until(rng, ask)


def where_was_a_thing(rng: Random) -> Story:
    """About a place that the thing came to once, so that there is one place before it."""

    def ask(world: World) -> tuple[str, str] | None:
        steps = [
            (thing, before, after)
            for thing, trail in sorted(world.trail.items())
            for before, after in pairwise(trail)
            if trail.count(after) == 1
        ]
        if not steps:
            return None
        thing, before, after = rng.choice(steps)
        return f"Where was the {thing} before the {after}?", before

    return _until(rng, ask)


def which_way(rng: Random) -> Story:
    """Three rooms in a row: asked is what lies beside the middle one, or on whose side it is."""
    first, middle, last = rng.sample(PLACES, 3)
    way = rng.choice(sorted(DIRECTIONS))
    facts = [f"The {first} is {way} of the {middle}.", f"The {middle} is {way} of the {last}."]
    rng.shuffle(facts)
    if rng.random() < 0.5:
        return Story(tuple(facts), f"What is {way} of the {middle}?", first)
    return Story(tuple(facts), f"What is the {middle} {way} of?", last)


def who_gave_what(rng: Random) -> Story:
    """About something that was given once."""
    world = World(rng, GIVERS)
    gifts = []
    for _ in range(rng.randint(*EVENTS)):
        thing = rng.choice(THINGS)
        if thing not in world.holder:
            world.take(rng.choice(GIVERS), thing)
        else:
            who = world.holder[thing]
            other = rng.choice([person for person in GIVERS if person != who])
            world.give(who, thing, other)
            gifts.append((who, thing, other))
        if rng.random() < 0.25:
            world.go(rng.choice(GIVERS))
    questions = []
    for who, thing, other in gifts:
        questions += [
            (f"What did {who} give to {other}?", thing),
            (f"Who gave the {thing} to {other}?", who),
            (f"Who did {who} give the {thing} to?", other),
        ]
    times = Counter(question for question, _ in questions)
    clear = [person for person in questions if times[person[0]] == 1]
    return Story(tuple(world.facts), *rng.choice(clear)) if clear else who_gave_what(rng)


def is_someone_there(rng: Random) -> Story:
    facts, who, place = _walk_about(rng)
    if rng.random() < 0.5:
        return Story(facts, f"Is {who} in the {place}?", "yes")
    other = rng.choice([location for location in PLACES if location != place])
    return Story(facts, f"Is {who} in the {other}?", "no")


def how_many_things(rng: Random) -> Story:
    def ask(world: World) -> tuple[str, str] | None:
        holders = sorted(set(world.holder.values()))
        if not holders:
            return None
        who = rng.choice(holders)
        return f"How many things is {who} carrying?", NUMBERS[len(world.held_by(who))]

    return _until(rng, ask, gives=True)


def what_is_carried(rng: Random) -> Story:
    def ask(world: World) -> tuple[str, str] | None:
        if not world.trail:
            return None
        who = rng.choice(world.people)
        return f"What is {who} carrying?", ",".join(world.held_by(who)) or "nothing"

    return _until(rng, ask, gives=True)


def is_someone_still_there(rng: Random) -> Story:
    """A move tells where someone is, "no longer" where not: the last about a person is asked."""
    facts, last = [], dict[str, tuple[str, bool]]()
    for _ in range(rng.randint(*EVENTS)):
        who, location, is_there = rng.choice(PEOPLE), rng.choice(PLACES), rng.random() < 0.6
        if is_there:
            facts.append(rng.choice(GOES).format(who=who, place=location))
        else:
            facts.append(f"{who} is no longer in the {location}.")
        last[who] = location, is_there
    who = rng.choice(sorted(last))
    location, is_there = last[who]
    if is_there and rng.random() < 0.5:
        location = rng.choice([other for other in PLACES if other != location])
        return Story(tuple(facts), f"Is {who} in the {location}?", "no")
    return Story(tuple(facts), f"Is {who} in the {location}?", "yes" if is_there else "no")


def may_someone_be_there(rng: Random) -> Story:
    """People in one of two places: "maybe" for either, "no" for any other."""
    facts, last = [], dict[str, tuple[str, ...]]()
    for _ in range(rng.randint(*EVENTS)):
        who = rng.choice(PEOPLE)
        places = tuple(rng.sample(PLACES, rng.choice((1, 2))))
        if len(places) == 1:
            facts.append(rng.choice(GOES).format(who=who, place=places[0]))
        else:
            facts.append(f"{who} is either in the {places[0]} or in the {places[1]}.")
        last[who] = places
    who = rng.choice(sorted(last))
    places = last[who]
    if rng.random() < 0.3:
        location = rng.choice([other for other in PLACES if other not in places])
        return Story(tuple(facts), f"Is {who} in the {location}?", "no")
    answer = "yes" if len(places) == 1 else "maybe"
    return Story(tuple(facts), f"Is {who} in the {rng.choice(places)}?", answer)


STORIES: Mapping[str, Callable[[Random], Story]] = {
    "qa1": where_is_someone,
    "qa2": where_is_a_thing,
    "qa3": where_was_a_thing,
    "qa4": which_way,
    "qa5": who_gave_what,
    "qa6": is_someone_there,
    "qa7": how_many_things,
    "qa8": what_is_carried,
    "qa9": is_someone_still_there,
    "qa10": may_someone_be_there,
}


def hide_story(kind: str, order: QuestionOrder, resources: Resources, slack: int) -> SampleDraft:
    """Each sentence of the story is within a paragraph of its own, drawn at random."""
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
    draft = spec.hide(
        facts,
        pile,
        lines,
        (story.answer,),
        draw_places=lambda n: sorted(rng.choices(range(n + 1), k=len(facts))),
        least=LEAST_LINES,
    )
    return draft._replace(about={"facts": list(story.facts)})


BABILONG = TaskSet(
    suite="babilong",
    tasks={task: Task(partial(hide_story, task), has_depth=False) for task in STORIES},
)
