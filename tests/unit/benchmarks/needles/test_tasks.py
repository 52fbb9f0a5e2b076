"""Each task's answer, found again from its text alone."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

import pytest

from memray_eval.benchmarks.needles.generate import samples
from memray_eval.benchmarks.needles.plan import Plan
from memray_eval.benchmarks.needles.resources import Resources
from memray_eval.benchmarks.needles.tasks import TASKS
from memray_eval.benchmarks.needles.tasks.words import ADJECTIVES, NOUNS
from memray_eval.types import Sample

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
FACT = re.compile(rf"The secret (?:number|code) of ([a-z]+-[a-z]+|{UUID}) is ({UUID}|[0-9]{{7}})\.")


def generated(
    resources: Resources, *tasks: str, n: int = 7, length: int = 4096, depths: Sequence[int] = (30,)
) -> list[Sample]:
    words = {name: TASKS[name] for name in tasks}
    plan = Plan(tasks=words, lengths=(length,), depths=tuple(depths), samples=n)
    return list(samples(plan, resources))


def text_of(sample: Sample) -> str:
    assert sample.context
    return sample.context


def test_passkey_and_number_string_hold_one_number(resources: Resources) -> None:
    for sample in generated(resources, "passkey", "number_string"):
        digits = 5 if sample.task == "passkey" else 10
        assert re.findall(r"[0-9]+", text_of(sample)) == [sample.answers[0]] * 2
        assert len(sample.answers[0]) == digits
    runs = [sample.answers[0] for sample in generated(resources, "number_string", n=30)]
    assert all(re.search(r"(.)\1", number) for number in runs)


def test_kv_retrieval_is_json_with_the_pair_at_its_depth(resources: Resources) -> None:
    for sample in generated(resources, "kv_retrieval", n=2, depths=(0, 50, 100)):
        result = re.search(r"\{.*\}", text_of(sample), re.DOTALL)
        assert result
        pairs = list(json.loads(result[0]).items())
        position = next(position for position, (key, _) in enumerate(pairs) if key in sample.query)
        assert pairs[position][1] == sample.answers[0]
        assert position == round(sample.metadata["depth"] / 100 * (len(pairs) - 1))
        assert all(re.fullmatch(UUID, text) for pair in pairs for text in pair)


def test_math_find(resources: Resources) -> None:
    for sample in generated(resources, "math_find", n=14):
        numbers = json.loads("[" + re.findall(r"[0-9]+(?:, [0-9]+)+", text_of(sample))[0] + "]")
        kind, distinct = int(sample.id.rpartition("-")[2]) % 7, sorted(set(numbers))
        expected: Any = [*distinct[:-4:-1], *distinct[:3], median(numbers)][kind]
        label = sample.metadata["label"]
        assert label == expected == float(sample.answers[0])
        assert isinstance(label, float if kind == 6 and len(numbers) % 2 == 0 else int)


def test_math_calc(resources: Resources) -> None:
    for sample in generated(resources, "math_calc"):
        expression = re.findall(r"[0-9]+(?: [+-] [0-9]+)+", text_of(sample))[0]
        value, *steps = (int(number) for number in re.sub(r"([+-]) ", r"\1", expression).split())
        values = []
        for step in steps:
            value += step
            values.append(value)
        assert sample.metadata["label"] == values == json.loads(sample.answers[0])
        assert min(values) >= 0
        assert max(values) <= 99
        assert {"+", "-"} <= set(expression)


def test_code_run(resources: Resources) -> None:
    for sample in generated(resources, "code_run", n=10):
        lines = text_of(sample).splitlines()
        code = "\n".join(line for line in lines if line.startswith(("def ", "    return ")))
        functions: dict[str, Any] = {}
        exec(code, functions)
        call = re.search(r"(func_[0-9]+)\((-?[0-9]+)\)", sample.query)
        assert call
        result = functions[call[1]](int(call[2]))
        assert result == sample.metadata["label"] == int(sample.answers[0])
        numbers = [int(number) for number in re.findall(r"def func_([0-9]+)", code)]
        assert numbers == sorted(set(numbers))
        depth, name = 1, call[1]
        while called := re.search(rf"def {name}\(x\):\n    return (func_[0-9]+)", code):
            depth, name = depth + 1, called[1]
        assert depth == (2, 4, 6, 8, 10)[int(sample.id.rpartition("-")[2]) % 5]


FACTS = {f"niah_single_{n}": 1 for n in (1, 2, 3)} | {
    "niah_multikey_2": None,
    "niah_multikey_3": None,
}
FACTS |= dict.fromkeys(("niah_multikey_1", "niah_multivalue", "niah_multiquery"), 4)


@pytest.mark.parametrize("task", FACTS)
def test_niah(resources: Resources, task: str) -> None:
    for sample in generated(resources, task):
        result = FACT.findall(text_of(sample))
        wanted = [value for key, value in result if key in sample.query]
        assert sorted(wanted) == sorted(sample.answers)
        assert len(result) == FACTS[task] or (FACTS[task] is None and len(result) > 30)
        assert len({value for _, value in result}) == len(result)
        assert len({key for key, _ in result}) == (1 if task == "niah_multivalue" else len(result))
        assert not any(answer in sample.query for answer in sample.answers)
        needs_all = task in ("niah_multivalue", "niah_multiquery")
        assert sample.metadata.get("needs_all", False) == needs_all


def test_vt(resources: Resources) -> None:
    assignment = re.compile(r"^VAR ([A-Z]+) = (?:VAR )?([A-Z]+|[0-9]+)$", re.MULTILINE)
    for sample in generated(resources, "vt"):
        values: dict[str, str] = {}
        for name, source in assignment.findall(text_of(sample)):
            values[name] = values.get(source, source)
        chain = [name for name, value in values.items() if value in sample.query]
        assert (chain, len(chain)) == ([*sample.answers], 5)
        others = values.keys() - set(sample.answers)
        assert not any(other in name for other in others for name in sample.answers)


def test_cwe(resources: Resources) -> None:
    orders = set()
    for sample in (*generated(resources, "cwe", n=10), *generated(resources, "cwe", length=3000)):
        often, seldom = (30, 3) if sample.metadata["length"] >= 4096 else (6, 1)
        listed = re.findall(r"^([0-9]+)\. (\S+)$", text_of(sample), re.MULTILINE)
        start = [position for position, (number, _) in enumerate(listed) if number == "1"][-1]
        counts = Counter(word for _, word in listed[start:])
        assert [int(number) for number, _ in listed[start:]] == list(range(1, counts.total() + 1))
        assert {word for word, n in counts.items() if n == often} == set(sample.answers)
        assert {n for word, n in counts.items() if word not in sample.answers} == {seldom}
        assert len({len(word) for word in counts}) == 1
        assert not any(word in counts for _, word in listed[:start])
        orders.add(tuple(at for at, (_, word) in enumerate(listed) if word in sample.answers))
    assert len(orders) == 17  # each sample has an order of its own


def test_fwe(resources: Resources) -> None:
    for sample in (*generated(resources, "fwe"), *generated(resources, "fwe", length=400)):
        line = next(line for line in text_of(sample).splitlines() if line.startswith("... "))
        ranked = Counter(line.split()).most_common()
        (dots, _), (first_word, first), (two, second), (three, third), (_, fourth), *_ = ranked
        assert dots == "..."
        assert (first_word, two, three) == sample.answers
        assert first > second > third > fourth


def test_qa_has_one_document_with_the_answer(resources: Resources) -> None:
    questions = set()
    for sample in generated(resources, "qa", n=25):
        documents = [line for line in text_of(sample).splitlines() if line.startswith("Document: ")]
        (holding,) = (document for document in documents if sample.answers[0] in document)
        names = re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", sample.query)
        name = max((word for word in names if word in holding), key=len)
        assert [document for document in documents if name in document] == [holding]
        assert not re.search(r"\{|\}", text_of(sample) + sample.query)
        questions.add(sample.query.replace(name, ""))
    assert len(questions) == 5


def test_no_key_is_part_of_another() -> None:
    assert len(set(ADJECTIVES)) == len(ADJECTIVES)
    assert len(set(NOUNS)) == len(NOUNS)
    assert not [(a, b) for a in ADJECTIVES for b in ADJECTIVES if a != b and b.endswith(a)]
    assert not [(a, b) for a in NOUNS for b in NOUNS if a != b and b.startswith(a)]
