"""Stories scattered over a text: exact lengths, and answers that are found again from the text
alone."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial

import pytest

from memray_eval.benchmarks.babilong.generator import BABILONG
from memray_eval.benchmarks.babilong.rules import LABELS, only_label
from memray_eval.benchmarks.generator.generate import samples
from memray_eval.benchmarks.generator.plan import Plan
from memray_eval.benchmarks.generator.resources import Resources
from memray_eval.benchmarks.generator.sample_spec import plain_prompt
from memray_eval.ports import Tokenizer
from tests.unit.benchmarks.builders import generated

NAMES = "Mary|John|Daniel|Sandra|Fred|Jeff|Bill"
FACT = re.compile(rf"\b(?:{NAMES}) [^.]*\.|\bThe \w+ is (?:north|south|east|west) of the \w+\.")
GOES = re.compile(r"(\w+) (?:went|moved|ran) to the (\w+)\.")
TAKES = re.compile(r"(\w+) (?:took|picked up) the (\w+)\.")
DROPS = re.compile(r"(\w+) (?:put down|left) the (\w+)(?: there)?\.")
GIVES = re.compile(r"(\w+) (?:gave|passed) the (\w+) to (\w+)\.")
LIES = re.compile(r"The (\w+) is (\w+) of the (\w+)\.")


sampled = partial(generated, BABILONG, n=12)


def holders(facts: list[str]) -> dict[str, str]:
    """Who holds what at the end, read backwards: what was told last of a thing counts."""
    held: dict[str, str] = {}
    seen: set[str] = set()
    for fact in reversed(facts):
        if (result := GIVES.fullmatch(fact)) and result[2] not in seen:
            held[result[2]] = result[3]
        elif (result := TAKES.fullmatch(fact)) and result[2] not in seen:
            held[result[2]] = result[1]
        elif not (result := result or DROPS.fullmatch(fact)):
            continue
        seen.add(result[2])
    return held


def places_of(thing: str, facts: list[str]) -> list[str]:
    """The places that a thing was at, one after another: at each time, that of who holds it."""
    trail: list[str] = []
    for end in range(1, len(facts) + 1):
        who = holders(facts[:end]).get(thing)
        gone = [
            result[2]
            for fact in facts[:end]
            if (result := GOES.fullmatch(fact)) and result[1] == who
        ]
        if gone and trail[-1:] != gone[-1:]:
            trail.append(gone[-1])
    return trail


def solve(task: str, facts: list[str], question: str) -> str:
    names = re.findall(r"[A-Za-z]+", question)
    if task == "qa1":
        return [
            result[2]
            for fact in facts
            if (result := GOES.fullmatch(fact)) and result[1] == names[2]
        ][-1]
    if task == "qa2":
        return places_of(names[3], facts)[-1]
    if task == "qa3":
        trail = places_of(names[3], facts)
        return trail[trail.index(names[-1]) - 1]
    if task == "qa4":
        lies = [result.groups() for fact in facts if (result := LIES.fullmatch(fact))]
        if names[-1] == "of":  # What is the garden north of?
            return next(other for liar, way, other in lies if (liar, way) == (names[3], names[4]))
        return next(liar for liar, way, other in lies if (way, other) == (names[2], names[-1]))
    if task == "qa5":
        gifts = [result.groups() for fact in facts if (result := GIVES.fullmatch(fact))]
        named = set(names)
        answers = {
            (set(gift) - named).pop()
            for gift in gifts
            if len(set(gift) & named) == 2 and _fits(question, gift)
        }
        assert len(answers) == 1
        return answers.pop()
    if task in ("qa6", "qa9", "qa10"):
        last = [fact for fact in facts if fact.startswith(names[1])][-1]
        if names[-1] not in last:
            return "no"
        return "no" if "no longer" in last else "maybe" if "either" in last else "yes"
    who = names[4] if task == "qa7" else names[2]
    own = sorted(thing for thing, holder in holders(facts).items() if holder == who)
    if task == "qa7":
        return ("none", "one", "two", "three")[len(own)]
    return ",".join(own) or "nothing"


def _fits(question: str, gift: tuple[str, ...]) -> bool:
    who, thing, other = gift
    if question.startswith("What"):
        return question == f"What did {who} give to {other}?"
    if question.startswith("Who did"):
        return question == f"Who did {who} give the {thing} to?"
    return question == f"Who gave the {thing} to {other}?"


def test_every_answer_is_found_again_and_every_length_is_exact(
    resources: Resources, pieces: Tokenizer
) -> None:
    answers: dict[str, Counter[str]] = {}
    for sample in sampled(resources, 4096, 5003):
        facts = FACT.findall(sample.context or "")
        assert facts == sample.metadata["facts"], sample.id
        answer = solve(sample.task, facts, sample.query)
        assert sample.answers == (answer,), (sample.id, facts, sample.query)
        text = plain_prompt(sample.context or "", sample.query)
        assert pieces.count(text) == sample.metadata["tokens"] == sample.metadata["length"]
        answers.setdefault(sample.task, Counter())[answer] += 1
    assert set(answers) == {f"qa{number}" for number in range(1, 11)}
    assert all(len(counted) > 1 for counted in answers.values())
    assert set(answers["qa10"]) == {"yes", "no", "maybe"}


def test_the_rule_can_score_every_answer(resources: Resources) -> None:
    for sample in sampled(resources, 3000, n=30):
        answer = sample.answers[0]
        assert only_label(f"{answer}.", answer, sample.query, LABELS[sample.task]) == 1.0, sample


def test_the_facts_stand_in_their_order_all_over_the_text(resources: Resources) -> None:
    for sample in sampled(resources, 16_000, n=3):
        context = sample.context or ""
        places = [context.index(fact) for fact in dict.fromkeys(sample.metadata["facts"])]
        if sample.task == "qa4":
            continue
        assert max(places) - min(places) > len(context) / 4
        assert len({context.count("\n", 0, position) for position in places}) == len(places)


@pytest.mark.parametrize("task", sorted(BABILONG.tasks))
def test_the_users_text_is_the_background(pieces: Tokenizer, task: str) -> None:
    lines = [f"Line {word} of a book. It goes on for a while.\n" for word in "abc"]
    plan = Plan(task_set=BABILONG, tasks=(task,), languages=("en",), lengths=(1500,), depths=(50,))
    (sample,) = samples(plan, Resources(pieces, 0, haystack=lines))
    assert (sample.context or "").count("of a book.") > 20
    assert pieces.count(plain_prompt(sample.context or "", sample.query)) == 1500
