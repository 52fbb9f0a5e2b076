import pytest

from memray_eval.benchmarks.memory import baselines
from memray_eval.benchmarks.memory.suite import SUITE
from memray_eval.config.schema import RunConfig
from memray_eval.config.servers import is_baseline
from memray_eval.errors import ConfigError
from memray_eval.extensions import attribute_of
from memray_eval.types import Candidate, Sample

CANDIDATE = Candidate(name="c", model="m")
SAMPLE = Sample(
    id="s",
    query="Is oat milk fine with my coffee?",
    memory={
        "coffee": "two espressos",
        "son_debts": "8,000 euros",
        "milk_allergy": "hives",
        "street": "Elm Road",
        "car": "a red estate",
        "piano": "plays on Sundays",
        "garden": "roses",
    },
)


def messages(sample: Sample = SAMPLE) -> list[dict[str, str]]:
    return [message.model_dump() for message in SUITE.prompt(sample, CANDIDATE).messages]


def quoted(name: str, sample: Sample = SAMPLE) -> set[str]:
    """The keys that a baseline quotes."""
    text = getattr(baselines, name)(messages(sample))
    return {key for key in sample.memory if f"- {key.replace('_', ' ')}: " in text}


def test_what_each_quotes() -> None:
    assert quoted("dump") == set(SAMPLE.memory)
    assert len(quoted("all_but_last")) == len(SAMPLE.memory) - 1
    assert quoted("none") == set()
    assert quoted("key_words") == set(SAMPLE.memory) - {"son_debts"}
    assert {"coffee", "milk_allergy"} <= quoted("lexical_retrieval")
    assert len(quoted("lexical_retrieval")) == baselines.RETRIEVED


@pytest.mark.parametrize(
    "name", [name for name in SUITE.baselines if name != "embedding_retrieval"]
)
def test_an_empty_profile_is_quoted_by_none(name: str) -> None:
    assert quoted(name, SAMPLE.model_copy(update={"memory": {}})) == set()


def test_a_value_of_several_lines_is_one_entry() -> None:
    sample = SAMPLE.model_copy(update={"memory": {"note": "first\n- second: x", "b": "c"}})
    assert "second: x" in baselines.dump(messages(sample))


def job(suite: str = "memory", **entry: object) -> RunConfig:
    return RunConfig.model_validate({"suite": suite, "dataset": "d", "candidates": [entry]})


def test_a_job_names_a_baseline() -> None:
    (candidate,) = job(baseline="dump").candidates
    assert (candidate.name, candidate.model, candidate.backend) == ("dump", "baseline/dump", "code")
    assert all(callable(getattr(baselines, name)) for name in SUITE.baselines)
    with pytest.raises(ValueError, match="'companion' has no baselines"):
        job("companion", baseline="dump")
    with pytest.raises(ValueError, match="no key 'temperature'"):
        job(baseline="dump", temperature=1)


def test_a_candidate_without_memory_has_an_empty_profile() -> None:
    without = CANDIDATE.model_copy(update={"prompt": "no_memory"})
    shown, hidden = SUITE.prompt(SAMPLE, CANDIDATE), SUITE.prompt(SAMPLE, without)
    assert "two espressos" in shown.messages[0].content
    assert "two espressos" not in hidden.messages[0].content
    assert shown.messages[1:] == hidden.messages[1:]


def test_a_mistyped_baseline_is_met_with_the_nearest() -> None:
    (candidate,) = job(baseline="lexical_retreival").candidates
    assert is_baseline(candidate)
    with pytest.raises(ConfigError, match=r"'lexical_retreival'; did you mean 'lexical_retrieval'"):
        attribute_of(baselines, candidate.model.partition("/")[2], "baselines")
