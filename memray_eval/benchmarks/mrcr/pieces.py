"""Short pieces of writing from a seeded grammar: a form (poem, letter, ...) about a topic."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from memray_eval.benchmarks.generator.prose import sentence

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
    """The beginning and the end of a form; `breaks` says whether each sentence is a line of its
    own."""

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
