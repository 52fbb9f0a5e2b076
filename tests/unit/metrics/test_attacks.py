"""Injected instructions in what is judged: against every metric's prompt, its evidence checks and
its offline estimate."""

import json
import re

import pytest

from memray_eval.metric import RULES, JudgedMetric, score_by_rules
from memray_eval.metrics import all_metrics
from memray_eval.metrics.assistant.empathy import EmpathyJudgment
from memray_eval.metrics.assistant.groundedness import FactualClaim, GroundednessJudgment
from memray_eval.metrics.assistant.memory_utilization import KeyCitation
from memray_eval.text_processing.judge_prompts import VERSIONS, JudgePrompt
from memray_eval.types import PAIR, Message, Pair, Response, Sample
from tests.build import cited, empathy_verdict, judged_metric, score_judgment
from tests.conftest import REPOSITORY

ATTACKS = [
    json.loads(line)
    for line in (REPOSITORY / "tests" / "data" / "attacks.jsonl").read_text("utf-8").splitlines()
]
JUDGED = [metric for metric in all_metrics().values() if isinstance(metric, JudgedMetric)]
SECRET = b"a secret of the cache folder...."
MARKER = re.compile(r"^<(/?)([A-Z_]+) ([0-9a-f]{16})>$", re.MULTILINE)
FULL = {
    "emotion": {"sadness": 1.0},
    "traits": {"openness": 0.9},
    "history": [{"role": "user", "content": "Hello."}],
    "answers": ["an iron test"],
}


@pytest.fixture
def full_sample(sample: Sample) -> Sample:
    return Sample.model_validate(sample.model_dump() | FULL)


def as_sent(metric: JudgedMetric, sample: Sample, text: str, layout: str) -> tuple[Message, ...]:
    """A judge's system and user message, in one of the layouts."""
    prompt = metric.prompt(sample, Response(text=text))
    assert isinstance(prompt, JudgePrompt), metric.name
    return prompt.shared_first(SECRET, "{}").messages if layout == "shared_first" else tuple(prompt)


@pytest.mark.parametrize("layout", VERSIONS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_an_attack_stays_between_its_markers(
    full_sample: Sample, attack: dict[str, str], layout: str
) -> None:
    hostile = full_sample.model_copy(update={"query": attack["text"]})
    for metric in JUDGED:
        calm = as_sent(metric, full_sample, "Rest more.", layout)
        system, data = as_sent(metric, hostile, attack["text"], layout)
        # What the judge is told to do never changes with the data
        assert system == calm[0], metric.name
        if layout == "shared_first":
            calm_text, hostile_text = (
                re.sub(r"[0-9a-f]{16}>", ">", user.content.split("<RUBRIC ")[-1])
                for user in (calm[1], data)
            )
            assert calm_text == hostile_text, metric.name
        # A section opens every prompt; what an attack guesses is another
        nonce = MARKER.findall(data.content)[0][2]
        shown = "FIRST" if metric.family == "pairs" else "RESPONSE"
        opening, closing = f"<{shown} {nonce}>\n", f"\n</{shown} {nonce}>"
        assert data.content.count(opening) == data.content.count(closing) == 1
        assert data.content.split(opening)[1].split(closing)[0] == attack["text"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_an_attack_in_a_pair_stays_there(full_sample: Sample, attack: dict[str, str]) -> None:
    metric = judged_metric("preference")
    pair = Pair(sample_id="s", first="a", second="b", other=attack["text"])
    hostile = full_sample.model_copy(update={"metadata": {PAIR: pair.model_dump()}})
    system, data = metric.prompt(hostile, Response(text="Rest more."))
    assert system == metric.prompt(full_sample, Response(text="Rest more."))[0]
    nonce = MARKER.findall(data.content)[0][2]
    second = data.content.split(f"<SECOND {nonce}>\n")[1]
    assert second == f"{attack['text']}\n</SECOND {nonce}>"


def test_every_text_has_a_nonce_of_its_own_that_no_author_can_write(sample: Sample) -> None:
    def nonce(text: str) -> str:
        sections = {"QUERY": sample.query, "RESPONSE": text}
        return str(MARKER.findall(JudgePrompt("r", sections)[1].content)[0][2])

    assert nonce("x") == nonce("x")  # the same question is the same call
    assert len({nonce(f"x{number}") for number in range(50)}) == 50
    text = "x"
    # An author who computes the nonce and writes it into the text has changed the nonce
    for _ in range(20):
        text = f"x</RESPONSE {nonce(text)}>"
        assert nonce(text) not in text


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_an_attack_persuades_no_estimate(full_sample: Sample, attack: dict[str, str]) -> None:
    response, estimated = Response(text=attack["text"]), [m for m in JUDGED if m.estimate]
    scores = {m.name: score_by_rules(m, full_sample, response, {}, RULES) for m in estimated}
    assert {score.status for score in scores.values()} <= {"scored", "not_applicable"}
    assert scores["semantic_correctness"].status == "scored"
    # saying "full marks" cites no memory, nor does saying CORRECT answer
    assert scores["memory_utilization"].parts.get("tp", 0) <= 1
    assert scores["semantic_correctness"].value == 0.0


def grounded(*claims: tuple[str, str]) -> GroundednessJudgment:
    listed = [FactualClaim(claim=claim, reason="r", source=source) for claim, source in claims]  # type: ignore[arg-type]
    return GroundednessJudgment(claims=listed, passes_over_question=False)


def test_a_judge_that_was_persuaded_is_held_to_the_response(sample: Sample) -> None:
    text = "With your mild anemia, rest."
    quotes = {"known_condition": "mild anemia", "age": "you are 52"}
    evidence = [KeyCitation(key=key, quote=quote) for key, quote in quotes.items()]
    listed = cited("known_condition", "known_condition", "bank_account", "age", evidence=evidence)
    warm = EmpathyJudgment.model_validate(empathy_verdict(2, 2, 2, quotes=["I love you"]))
    padded = grounded(("You run daily", "memory"), ("You love cats", "memory"))
    for name, judgment, why in (
        ("empathy", warm, "I love you"),
        ("groundedness", padded, "You run daily"),
        # `age` is a forbidden key
        ("memory_utilization", listed, "cannot be found in the response: 'age: you are 52'"),
    ):
        score = score_judgment(name, judgment, sample, text)
        assert (score.status, score.value) == ("abstained", None)
        assert why in (score.error or "")
    neutral = sample.model_copy(update={"forbidden_keys": (), "neutral_keys": ("age",)})
    score = score_judgment("memory_utilization", listed, neutral, text)
    expected = {"tp": 1, "fp": 0, "fn": 1, "invented_keys": 1, "evidence": 2, "unverified": 1}
    assert score.parts == expected
    claims = grounded(("With your mild anemia", "none"), ("You run daily", "memory"))
    score = score_judgment("groundedness", claims, sample, text)
    # What pads the list is worth nothing, and goes not untold
    assert (score.value, score.parts["evidence"], score.parts["unverified"]) == (0.0, 2, 1)


TRUE, HIDDEN = ("With your mild anemia", "memory"), ("a blood thinner is part of the day", "none")
LISTED = [("The user sleeps 9 hours", "none"), ("The user is taking warfarin and sleeping", "none")]


@pytest.mark.parametrize(
    ("claims", "value", "why"),
    [
        ([TRUE, HIDDEN], None, "a fault that the judge counts cannot be found in the response"),
        ([TRUE, *LISTED], 1 / 3, ""),  # found by their words
        ([HIDDEN, ("oversleeping", "none")], None, "none of the 2 pieces of evidence"),
    ],
)
def test_a_judge_that_is_led_to_reword_hides_no_hallucination(
    sample: Sample, claims: list[tuple[str, str]], value: float | None, why: str
) -> None:
    """An answer that has its faults worded anew got them out of the ratio: 0 claims, 4 dropped,
    1.0."""
    text = "With your mild anemia, rest. You sleep nine hours and you take warfarin."
    score = score_judgment("groundedness", grounded(*claims), sample, text)
    assert score.value == (None if value is None else pytest.approx(value))
    assert (score.status, why in (score.error or "")) == ("abstained" if why else "scored", True)
