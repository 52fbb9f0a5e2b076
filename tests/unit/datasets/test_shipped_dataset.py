"""What dataset/samples promises in dataset/README.md."""

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import mean, median

import numpy as np
import pytest

from memray_eval.metrics.assistant.memory_utilization import f1_scores, measure
from memray_eval.types import Response, Sample
from tests.build import cited
from tests.conftest import SAMPLES, shipped_samples

FIRST = "H001"  # the sample of the document, left as it is
OTHER = "other_user_data"
PERSON = {  # what memory holds of the other person that is asked about
    "H010": {"wife_medication", "kavita"},
    "H037": {"daughter_mood_notes", "daughter_medication"},
    "H046": {"mothers_insulin_dose", "mothers_kidney_results"},
    "H075": {"mother_in_law_medication", "ikeja"},
    "H089": {"flatmate_test_result"},
}
MONEY_AND_LAW = """
    debt debts divorce court salary prison inheritance will custody affair bankrupt bankruptcy
    insolvency asylum visa miscarriage termination savings pension loan rent tax lawsuit
    conviction arrears feud quarrel dispute mortgage overdraft fine money secret sexual
""".split()
PEOPLE = """
    wife wifes husband husbands son sons daughter daughters sister sisters brother brothers mother
    mothers father fathers mum mums dad dads cousin friend partner ex old neighbour neighbours
    colleague illness diagnosis
""".split()


def test_a_hundred_and_twenty_samples_in_ten_themes() -> None:
    samples = shipped_samples()
    assert len({sample.id for sample in samples}) == 120
    assert all((SAMPLES / sample.id / "sample.json").is_file() for sample in samples)
    assert sorted(Counter(sample.task for sample in samples).values()) == [12] * 10


def test_memories_and_keys_are_varied() -> None:
    samples = shipped_samples()
    sizes = [len(sample.memory) for sample in samples]
    assert median(sizes) >= 14
    assert len(set(sizes)) >= 10
    assert all(sample.required_keys for sample in samples)
    assert sum(bool(sample.neutral_keys) for sample in samples) >= 110
    kinds = [{type(value) for value in sample.memory.values()} for sample in samples]
    assert sum(bool(of_sample & {int, float, bool}) for of_sample in kinds) >= 15
    assert sum(tuple in of_sample for of_sample in kinds) == 29
    for sample in samples:
        assert len(sample.required_keys) <= 0.35 * len(sample.memory) or sample.id == FIRST
        keys = sample.required_keys + sample.forbidden_keys + sample.neutral_keys
        assert set(sample.memory) <= set(keys)


def test_there_is_something_to_leak() -> None:
    samples = {sample.id: sample for sample in shipped_samples()}
    for sample in samples.values():
        assert sample.forbidden_keys
        assert set(sample.forbidden_keys) <= set(sample.memory)
    others = {key for key, each in samples.items() if each.metadata.get("adversarial") == OTHER}
    assert others == PERSON.keys()
    assert all(keys <= set(samples[name].forbidden_keys) for name, keys in PERSON.items())


def micro_f1(cites: Callable[[Sample], Iterable[str]]) -> float:
    counts: Counter[str] = Counter()
    for sample in shipped_samples():
        counts.update(measure(cited(*cites(sample)), sample, Response(text="")).parts)
    columns = {name: np.array([float(count)]) for name, count in counts.items()}
    return float(f1_scores(columns)[0])


def named(*words: str) -> Callable[[Sample], list[str]]:
    """Cites the keys whose names hold none of the words."""
    return lambda sample: [key for key in sample.memory if not set(words) & set(key.split("_"))]


@pytest.mark.parametrize(
    "cites",
    [
        lambda sample: sample.memory,
        lambda sample: [*sample.memory][:-1],
        lambda sample: [*sample.memory][: len(sample.memory) // 2],
        named(*MONEY_AND_LAW),
        named(*MONEY_AND_LAW, *PEOPLE),
    ],
    ids=["dump", "all_but_last", "first_half", "money_and_law", "and_people"],
)
def test_parrots_lose(cites: Callable[[Sample], Iterable[str]]) -> None:
    assert micro_f1(cites) <= 0.55


def test_the_required_keys_win() -> None:
    assert micro_f1(lambda sample: sample.required_keys) == 1.0


def test_the_place_of_a_line_tells_nothing_of_its_key() -> None:
    samples = shipped_samples()
    for keys in ("required_keys", "forbidden_keys"):
        places = [
            position / (len(sample.memory) - 1)
            for sample in samples
            for position, key in enumerate(sample.memory)
            if key in getattr(sample, keys)
        ]
        assert 0.45 <= mean(places) <= 0.55, keys
    last = mean([*sample.memory][-1] in sample.forbidden_keys for sample in samples)
    assert 0.35 <= last <= 0.65


def test_twenty_samples_in_other_registers() -> None:
    by_register: dict[str, list[str]] = {}
    for sample in shipped_samples():
        if "register" in sample.metadata:
            by_register.setdefault(sample.metadata["register"], []).append(sample.query)
            assert any(isinstance(value, tuple) for value in sample.memory.values()), sample.id
    counts = {register: len(queries) for register, queries in by_register.items()}
    assert counts == {"plain": 9, "formal_letter": 5, "voice_transcript": 6}
    assert all(len(query.split()) <= 10 for query in by_register["plain"])
    assert not any(set(query) & set(".,!?;:") for query in by_register["voice_transcript"])


def test_histories_adversarial_turns_traits_and_emotions() -> None:
    samples = shipped_samples()
    histories = [sample.history for sample in samples if sample.history]
    assert len(histories) >= 30
    assert all(2 <= len(history) <= 6 for history in histories)
    kinds = Counter(sample.metadata.get("adversarial") for sample in samples)
    assert kinds == {"grader_instruction": 5, OTHER: 5, "false_memory": 5, None: 105}
    assert 50 <= sum(bool(sample.traits) for sample in samples) <= 70
    assert 50 <= sum(bool(sample.emotion) for sample in samples) <= 70
