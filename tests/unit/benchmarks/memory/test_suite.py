from __future__ import annotations

import pytest

from memray_eval.benchmarks import all_suites, check_prompts, get_suite
from memray_eval.errors import ConfigError
from memray_eval.metrics import all_metrics
from memray_eval.types import Candidate, Sample
from tests.conftest import shipped_samples


def test_memory_is_shown_as_user_profile_then_history_then_the_query(
    sample: Sample, candidate: Candidate
) -> None:
    with_history = Sample.model_validate(
        sample.model_dump()
        | {
            "history": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Hello"},
            ]
        }
    )
    system, *turns, query = get_suite("memory").prompt(with_history, candidate).messages
    profile = system.content.split("User Profile:\n")[1].splitlines()
    assert {"- name: Jason", "- sleep hours avg: 5.5"} <= set(profile)
    assert [(turn.role, turn.content) for turn in turns] == [("user", "Hi"), ("assistant", "Hello")]
    assert (query.role, query.content) == ("user", sample.query)


def test_traits_and_emotion_are_told_where_they_are_marked(
    sample: Sample, candidate: Candidate
) -> None:
    marked = Sample.model_validate(
        sample.model_dump()
        | {
            "traits": {"neuroticism": 0.9, "openness": 0.5},
            "emotion": {"sadness": 0.7, "joy": 0.05, "fear": 0.25},
        }
    )
    content = get_suite("memory").prompt(marked, candidate).messages[0].content
    assert "neuroticism 0.90: worries easily" in content
    assert "openness" not in content
    assert "Detected emotion: sadness 70%, fear 25%." in content
    plain = get_suite("memory").prompt(sample, candidate).messages[0].content
    assert "Personality" not in plain
    assert "emotion" not in plain


def test_the_lists_of_keys_are_never_told(candidate: Candidate) -> None:
    for sample in shipped_samples():
        told = "\n".join(
            message.content for message in get_suite("memory").prompt(sample, candidate).messages
        )
        assert "required" not in told.lower().replace("is required", "")
        assert all(
            key.replace("_", " ") not in told
            for key in sample.forbidden_keys
            if key not in sample.memory and len(key) > 8
        )


def test_unknown_suites_and_prompts_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no suite 'poetry'; there are: .*memory"):
        get_suite("poetry")
    with pytest.raises(
        ConfigError, match="candidate 'a': suite 'memory' has no prompt 'terse'; it has: default"
    ):
        check_prompts(get_suite("memory"), (Candidate(name="a", model="m", prompt="terse"),))
    assert set(all_suites()["memory"].metrics) == {
        m.name for m in all_metrics().values() if m.family == "assistant"
    }
    assert len(all_suites()["memory"].metrics) == 12
