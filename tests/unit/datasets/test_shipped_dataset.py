"""What dataset/samples promises in dataset/README.md."""

from __future__ import annotations

import json
from collections import Counter

from tests.conftest import SAMPLES, shipped_samples


def test_a_hundred_samples_in_ten_themes() -> None:
    samples = shipped_samples()
    assert len({sample.id for sample in samples}) == 100
    themes = Counter(sample.task for sample in samples)
    assert len(themes) == 10
    assert set(themes.values()) == {10}
    assert all(json.loads((SAMPLES / sample.id / "sample.json").read_text("utf-8"))["id"] == sample.id for sample in samples)


def test_memories_and_keys_are_varied() -> None:
    samples = shipped_samples()
    assert {len(sample.memory) for sample in samples} == set(range(3, 13))
    assert all(sample.required_keys and sample.forbidden_keys for sample in samples)
    present = sum(any(key in sample.memory for key in sample.forbidden_keys) for sample in samples)
    absent = sum(any(key not in sample.memory for key in sample.forbidden_keys) for sample in samples)
    assert min(present, absent) >= 40
    assert sum(bool(sample.neutral_keys) for sample in samples) >= 50
    assert sum(any(isinstance(value, int | float) for value in sample.memory.values()) for sample in samples) >= 15


def test_histories_and_adversarial_turns() -> None:
    samples = shipped_samples()
    histories = [sample.history for sample in samples if sample.history]
    assert len(histories) >= 30
    assert all(2 <= len(history) <= 6 for history in histories)
    kinds = Counter(sample.metadata["adversarial"] for sample in samples if "adversarial" in sample.metadata)
    assert kinds == {"grader_instruction": 5, "other_user_data": 5, "false_memory": 5}


def test_about_half_have_traits_and_emotion() -> None:
    samples = shipped_samples()
    assert 40 <= sum(bool(sample.traits) for sample in samples) <= 60
    assert 40 <= sum(bool(sample.emotion) for sample in samples) <= 60
