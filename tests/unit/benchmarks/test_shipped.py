"""What the shipped samples of the companion, text and instruction suites promise."""

from collections import Counter

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.instruction.answers import offered_options
from memray_eval.benchmarks.instruction.counts import asked_steps
from memray_eval.metrics._text_features import OPTIMAL_WORDS, length_target
from memray_eval.types import Sample
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import PLAIN, read_folder


def shipped(suite: str) -> list[Sample]:
    samples = read_folder(REPOSITORY / "dataset" / suite, suite)
    assert all(isinstance(sample, Sample) for sample in samples)
    return samples


@pytest.mark.parametrize(("suite", "least"), [("companion", 12), ("instruction", 12), ("text", 4)])
def test_every_task_has_prompts_of_its_own(suite: str, least: int) -> None:
    samples = shipped(suite)
    counts = Counter(sample.task for sample in samples)
    assert min(counts.values()) >= least
    assert set(counts) == set(get_suite(suite).tasks or counts)
    assert len({sample.id for sample in samples}) == len(samples)
    assert len({(sample.query, str(sample.memory)) for sample in samples}) == len(samples)


def test_scenarios_of_the_companion_vary_what_they_are_about() -> None:
    samples = shipped("companion")
    assert all(sample.task == sample.scenario for sample in samples)
    turns = [len(sample.history) for sample in samples if sample.scenario == "continuity"]
    assert min(turns) >= 4
    assert sum(n >= 6 for n in turns) >= 6  # three exchanges
    people = [sample for sample in samples if sample.scenario == "demographics"]
    assert set(Counter(sample.query for sample in people).values()) == {3}
    buckets = {sample.metadata["bucket"] for sample in people}
    assert buckets == {"younger", "older", "vulnerable"}


def test_what_a_good_reply_of_the_companion_does_is_in_no_prompt() -> None:
    prompt = get_suite("companion").prompt
    for sample in shipped("companion"):
        assert sample.metadata["expected"]
        bare = sample.model_copy(update={"metadata": {}})
        assert prompt(sample, PLAIN) == prompt(bare, PLAIN)


def test_prompts_of_the_instruction_suite_give_their_checks_occasion() -> None:
    samples = shipped("instruction")
    for prompt_type in get_suite("instruction").tasks:
        own = [sample for sample in samples if sample.prompt_type == prompt_type]
        assert any(sample.answers for sample in own)
    plans = [sample for sample in samples if sample.prompt_type == "navigation"]
    assert all(asked_steps(sample.query) for sample in plans)
    reasoning = [sample for sample in samples if sample.prompt_type == "reasoning"]
    assert sum(bool(offered_options(sample.query)) for sample in reasoning) >= len(reasoning) - 1
    assert all(set(sample.answers) <= set(offered_options(sample.query)) for sample in reasoning)


def test_five_of_the_text_suites_twenty_prompts_name_a_length() -> None:
    samples = shipped("text")
    tasks = Counter(sample.task for sample in samples)
    assert tasks == dict.fromkeys(("explain", "advise", "compare", "instruct", "narrate"), 4)
    named = [sample for sample in samples if length_target(sample) != OPTIMAL_WORDS]
    assert len(named) == 5
    assert named == [sample for sample in samples if sample.metadata]
