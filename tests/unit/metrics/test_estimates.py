"""The offline estimates, on words alone, against a person's labels and against cases whose answer is plain."""

from __future__ import annotations

import pytest

from memray_eval.metrics.claims import check_claims
from memray_eval.metrics.memory import cited
from memray_eval.types import Response, Sample
from tests.estimates import agreement


def test_the_estimates_agree_with_a_person() -> None:
    """Measured when set: keys precision 0.941, recall 0.815, F1 0.873; 180 of 277 claims found, grounding right on 165."""
    measured = agreement(lambda texts: {})
    assert measured.key_precision >= 0.92, measured
    assert measured.key_f1 >= 0.85, measured
    assert measured.claims_found >= 0.6 * measured.claims, measured
    assert measured.grounding_agrees >= 0.88 * measured.claims_found, measured


MEMORY = {
    "name": "Jason",
    "sleep_hours_avg": "5.5",
    "caffeine_intake": "high",
    "known_condition": "mild anemia",
    "blood_pressure": "142/90 mmHg",
    "smoker": True,
    "pets": ["Rex", "Mia"],
    "steps": 4200,
}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("You only sleep five and a half hours a night.", {"sleep_hours_avg"}),
        ("At 5.5 hours, rest comes first.", {"sleep_hours_avg"}),
        ("Your high caffeine habit keeps you awake.", {"caffeine_intake"}),
        ("Your caffeine intake matters.", {"caffeine_intake"}),
        ("A high fever is not to be ignored.", set()),
        ("MILD ANEMIA can explain it, Jason.", {"known_condition", "name"}),
        ("Your readings of 142 over 90 need care.", {"blood_pressure"}),
        ("Take Rex out, and Mia too.", {"pets"}),
        ("Your 4,200 steps are a start.", {"steps"}),
        ("Aim for 8 hours of sleep, and less coffee.", set()),
        ("At 52 years old, see a doctor.", {"age"}),
        ("Your blood type is 0 negative.", {"blood_type"}),
        ("Your blood type does not matter.", set()),  # nothing is claimed of it
        ("Blood type does not matter.", set()),
        ("", set()),
    ],
)
def test_plain_cases_of_citation(text: str, keys: set[str]) -> None:
    sample = Sample(id="s", query="q", memory=MEMORY, forbidden_keys=("age", "blood_type"))
    assert {citation.key for citation in cited(sample, Response(text=text), {})} == keys


def test_a_citation_quotes_the_sentence_that_makes_it() -> None:
    sample = Sample(id="s", query="q", memory=MEMORY)
    (citation,) = cited(sample, Response(text="Hello. Your mild anemia matters. Rest."), {})
    assert (citation.key, citation.quote) == ("known_condition", "Your mild anemia matters.")


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("You have mild anemia.", ["memory"]),
        ("You said your knee hurts when you climb stairs.", ["query"]),
        ("You mentioned the new night shifts.", ["history"]),
        ("You take 20 mg of fluoxetine.", ["none"]),
        ("Your sleep is 9.5 hours on average.", ["none"]),
        ("You should drink water. If you have pain, rest. Do you sleep well?", []),
        ("You're not alone, and regular walks help.", []),
        ("", []),
    ],
)
def test_plain_cases_of_claims(text: str, sources: list[str]) -> None:
    sample = Sample.model_validate(
        {
            "id": "s",
            "query": "My knee hurts when I climb stairs. What helps?",
            "memory": {"known_condition": "mild anemia", "sleep_hours_avg": "5.5 hours"},
            "history": [{"role": "user", "content": "They put me on new night shifts."}],
        }
    )
    assert [claim.source for claim in check_claims(sample, Response(text=text), {})] == sources
