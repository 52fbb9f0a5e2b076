import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.config.schema import JobFile
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Retrieval


def job(**candidate: object) -> JobFile:
    entry = {"name": "a", "model": "m", **candidate}
    return JobFile.model_validate({"suite": "locomo", "dataset": "d", "candidates": [entry]})


def test_contexts_stand_for_a_candidate_each() -> None:
    expanded = job(contexts=["full", "retrieved"], retrieved={"k": 5}).expand().candidates
    assert [entry.name for entry in expanded] == ["a-full", "a-retrieved"]
    assert [entry.context for entry in expanded] == ["full", "retrieved"]
    assert (expanded[0].retrieved, expanded[1].retrieved) == (None, Retrieval(k=5))
    assert expanded[1].arm == "retrieved: 5 turns by bm25"
    several = job(contexts=["none"], temperatures=[0.0, 1.0]).expand().candidates
    assert [entry.name for entry in several] == ["a-t0.0-none", "a-t1.0-none"]


def test_a_suite_without_conversations_takes_no_arm() -> None:
    shown = Candidate(name="a", model="m", context="oracle")
    with pytest.raises(ConfigError, match="has no conversations of which context: oracle"):
        check_prompts(get_suite("longbench"), (shown,))
    check_prompts(get_suite("locomo"), (shown,))
