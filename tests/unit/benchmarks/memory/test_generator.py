import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.generator import (
    CANARY,
    TASKS,
    Case,
    hold_back,
    load_cases,
    parse_cases,
    samples,
)
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.datasets.parsing import parse_sample
from memray_eval.metrics.assistant.memory_conduct import measure
from memray_eval.text_processing.numerals import memory_entries
from memray_eval.types import Candidate, Response, Sample
from tests.bench.memory_splits import agreement
from tests.conftest import REPOSITORY

PACKAGE = Path(baselines.__file__).parent
HELD_BACK = REPOSITORY / "tests/data/memory_held_back/cases.yaml"
CANDIDATE = Candidate(name="c", model="m")
ALL = tuple(samples(TASKS, [40]))
CASE = load_cases()[0].model_dump()


def of(task: str, *kinds: str) -> list[Sample]:
    own = (sample for sample in ALL if sample.task == task)
    return [sample for sample in own if not kinds or sample.metadata["kind"] in kinds]


def conduct(name: str, samples: list[Sample]) -> float:
    """The share of samples in which a baseline does what is expected."""

    def answer(sample: Sample) -> Response:
        messages = [message.model_dump() for message in SUITE.prompt(sample, CANDIDATE).messages]
        return Response(text=getattr(baselines, name)(messages))

    return fmean(measure(sample, answer(sample)).value for sample in samples)


def test_every_split_has_sixty_samples_that_are_valid() -> None:
    counts = Counter(sample.task for sample in ALL)
    assert set(counts) == set(TASKS)
    assert min(n for name, n in counts.items() if name != "languages") >= 60
    languages = Counter(sample.language for sample in of("languages"))
    assert languages == dict.fromkeys(("de", "es", "zh", "ar", "hi"), 6)
    assert len({sample.id for sample in ALL}) == len(ALL)
    for sample in ALL:
        assert parse_sample(sample.model_dump(mode="json", exclude_defaults=True), "") == sample


@pytest.mark.parametrize("seed", [0, 1])
def test_twins_deal_each_attribute_about_equally_often(seed: int) -> None:
    twins = list(samples(["twins"], seed=seed))
    dealt = {sample.metadata["twin"]: sample.metadata["attribute"] for sample in twins}
    counts = Counter(dealt.values()).values()  # 10, 10, 10 and 11 before three are left out
    assert (sum(counts), len(counts)) == (38, 4)
    assert min(counts) >= 8
    assert len(twins) == 2 * len(dealt)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["dump", "all_but_last", "key_words"])
def test_no_script_wins_a_split(task: str, name: str) -> None:
    assert conduct(name, of(task)) <= 0.55


def test_whoever_quotes_all_reveals() -> None:
    assert conduct("dump", of("not_to_reveal", "bystander")) <= 0.1
    assert conduct("dump", of("not_to_reveal", "twin")) >= 0.9


@pytest.mark.parametrize("task", TASKS)
def test_a_place_in_memory_gives_nothing_away(task: str) -> None:
    places = defaultdict[str, list[float]](list)
    for sample in of(task):
        keys = [key for key, _ in memory_entries(sample)]
        for role in ("required_keys", "forbidden_keys"):
            places[role] += [keys.index(key) / (len(keys) - 1) for key in getattr(sample, role)]
    assert all(0.45 <= fmean(places[role]) <= 0.55 for role in ("required_keys", "forbidden_keys"))
    lasts = ((memory_entries(sample)[-1][0], sample.forbidden_keys) for sample in of(task))
    assert 0.35 <= fmean(last in forbidden for last, forbidden in lasts) <= 0.65


def test_a_seed_makes_the_same_and_a_part_the_same_of_it() -> None:
    again = {sample.id: sample for sample in samples(["twins", "large"], [40])}
    assert again == {sample.id: sample for sample in ALL if sample.task in ("twins", "large")}
    other = list(samples(["large"], [40], seed=1))
    assert other != of("large")


@pytest.mark.parametrize(("size", "share"), [(40, 0.15), (400, 0.01), (4000, 0.01)])
def test_a_large_memory_forbids_near_misses_and_secrets(size: int, share: float) -> None:
    cases = {case.id: case for case in load_cases()}
    secrets = {(case.secret.key, case.tempting[case.secret.key]) for case in cases.values()}
    for sample in islice(samples(["large"], [size]), 12):
        case, kind, memory = cases[sample.metadata["case"]], sample.metadata["kind"], sample.memory
        assert len(memory) == size
        assert len(sample.required_keys) <= share * size
        assert (case.deciding in memory) is (kind == str(size))
        required = required_of(case.theme)
        near = [k for k, text in memory.items() if k.startswith(tuple(required[str(text)]))]
        assert len(near) >= (8 if size == 40 else 40)
        assert not set(near) & set(sample.required_keys)
        private = [key for key, text in memory.items() if (key, text) in secrets]
        of_others = [key for key in near if "_of_" in key]
        assert {*case.tempting, *of_others, *private} == set(sample.forbidden_keys)


def required_of(theme: str) -> Mapping[str, list[str]]:
    """What the theme's required entries say, or once said -> the starts of keys like theirs."""
    keys: dict[str, list[str]] = defaultdict(list)
    for case in (case for case in load_cases() if case.theme == theme):
        for key, text in (*case.required.items(), (case.deciding, case.earlier.value)):
            keys[text].append(f"{key}_")
    return keys


def test_twins_of_a_premise_are_the_cases_own_or_differ_in_its_value_alone() -> None:
    cases = {case.id: case for case in load_cases()}
    in_own_words = []
    for false, true in zip(of("false_premise", "false"), of("false_premise", "twin"), strict=True):
        case = cases[false.metadata["case"]]
        in_own_words.append(false.query == case.false_premise)
        swapped = false.query.replace(case.earlier.value, case.required[case.deciding])
        assert true.query == (case.true_premise if in_own_words[-1] else swapped)
    assert 0.25 <= fmean(in_own_words) <= 0.75


def held_back() -> tuple[Case, ...]:
    return parse_cases(yaml.safe_load(HELD_BACK.read_text("utf-8")))


def test_held_back_questions_are_shipped_without_their_labels() -> None:
    shipped = (REPOSITORY / "dataset/memory_held_back/questions.jsonl").read_text("utf-8")
    pairs = hold_back(samples(TASKS, [40], cases=held_back()))
    assert [json.loads(line) for line in shipped.splitlines()] == [
        question.model_dump(mode="json", exclude_defaults=True) for question, _ in pairs
    ]
    for question, key in pairs:
        assert {*question.metadata} == {"canary"}
        assert not question.required_keys + question.forbidden_keys + question.neutral_keys
        assert (question.id, question.query, question.memory) == (key.id, key.query, key.memory)
        assert key.metadata["expects"] or not key.required_keys
        assert key.task not in question.id


def test_nothing_that_is_packaged_has_labels_of_the_held_back_cases() -> None:
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    wheel = wheel["build"]["targets"]["wheel"]
    folders = [REPOSITORY / folder for folder in (*wheel["packages"], *wheel["force-include"])]
    packaged = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    assert HELD_BACK not in packaged
    ids = [case.id.encode() for case in held_back()]
    assert not [file for file in packaged if any(case in file.read_bytes() for case in ids)]
    assert not {case.id for case in held_back()} & {case.id for case in load_cases()}


def test_the_datasheet_names_this_version_and_the_canary() -> None:
    digest = sha256()
    for name in ("cases.yaml", "languages.yaml"):
        text = (PACKAGE / name).read_text("utf-8")
        assert CANARY in text
        digest.update(text.encode())
    for sample in ALL:
        digest.update(sample.model_dump_json(exclude_defaults=True).encode())
    sheet = (PACKAGE / "DATASHEET.md").read_text("utf-8")
    assert CANARY in sheet
    assert f"Version 2 (sha256 {digest.hexdigest()})" in sheet


@pytest.mark.parametrize("task", TASKS)
def test_the_readme_has_the_kappas_of_a_split(task: str) -> None:
    cells = [task, str(len(of(task))), *agreement(task)]
    assert f"| {' | '.join(cells)} |" in (PACKAGE / "README.md").read_text("utf-8")


PRESENT = {"value": CASE["required"][CASE["deciding"]], "marks": CASE["marks"]}


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({**CASE, "deciding": "nothing"}, "deciding: 'nothing' is not one of required"),
        ({**CASE, "id": "a", "marks": ["quinine"]}, "case a: marks .* are not in"),
        ({**CASE, "earlier": PRESENT}, "earlier.value: equals the present one"),
        ({**CASE, "secret": {**CASE["secret"], "key": "nothing"}}, "secret.key: 'nothing' is not"),
        ({**CASE, "asks_for": CASE["marks"], "leave_out": ()}, "asks_for: 'warfarin' has a mark"),
        ({**CASE, "quest": 1}, "quest: no such key; did you mean 'query'|quest"),
        (3, "case 2: "),
        (None, "cases: a list, as in cases.yaml"),
    ],
)
def test_a_file_of_cases_that_cannot_be_read(case: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_cases({"cases": [CASE, case]} if case else {})
