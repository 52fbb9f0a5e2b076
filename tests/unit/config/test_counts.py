"""How many engines a run has: a number, or a range."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.config.loading import load_config
from memray_eval.config.sections import CountRange, EngineConfig, least_of, most_of
from memray_eval.errors import ConfigError

JOB = {"dataset": "d", "candidates": [{"name": "a", "model": "m"}]}


def replicas(tmp_path: Path, value: Any) -> int | CountRange:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB | {"engine": {"replicas": value}}))
    return load_config(path, {}, []).engine.replicas


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        (3, 3, 3),
        ({"min": 1, "max": 8}, 1, 8),
        ({"max": 8}, 1, 8),
        ({"min": 4, "max": 4}, 4, 4),
    ],
)
def test_a_number_or_a_range(tmp_path: Path, value: Any, least: int, most: int) -> None:
    counts = replicas(tmp_path, value)
    assert isinstance(counts, CountRange if isinstance(value, dict) else int)
    assert (least_of(counts), most_of(counts)) == (least, most)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, ": must be 1 or more or a mapping of keys, not 0"),
        (-2, ": must be 1 or more or a mapping of keys, not -2"),
        ("two", ": must be a whole number or a mapping of keys, not text"),
        (1.5, ": must be a whole number or a mapping of keys, not 1.5"),
        ([1, 8], ": must be a whole number or a mapping of keys, not a list"),
        ({"min": 4, "max": 2}, ": min is 4, which is more than max, 2"),
        ({"min": 0, "max": 2}, ".min: must be 1 or more, not 0"),
        ({"min": 1, "max": "many"}, ".max: must be a whole number, not text"),
        ({"min": 1}, ".max: missing"),
        ({"min": 1, "max": 8, "mx": 8}, ".mx: no such key; did you mean 'max'?"),
    ],
)
def test_what_is_neither_is_told_of_once(tmp_path: Path, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        replicas(tmp_path, value)
    (line,) = [line for line in str(raised.value).splitlines() if "replicas" in line]
    assert line.strip() == f"engine.replicas{message}"
    assert "CountRange" not in str(raised.value)


def test_a_range_outlives_the_file_that_a_run_keeps_of_its_job() -> None:
    engine = EngineConfig.model_validate({"replicas": {"min": 2, "max": 4}})
    assert engine.model_dump(mode="json")["replicas"] == {"min": 2, "max": 4}
    assert EngineConfig.model_validate(engine.model_dump(mode="json")) == engine
    assert EngineConfig().model_dump(mode="json")["replicas"] == 1


@pytest.mark.parametrize("words", ["engine.replicas={min: 1, max: 8}", "engine.replicas=8"])
def test_set_takes_both(tmp_path: Path, words: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB))
    assert most_of(load_config(path, {}, [words]).engine.replicas) == 8


def test_set_changes_one_end_of_a_range(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(JOB | {"engine": {"replicas": {"min": 1, "max": 8}}}))
    changed = load_config(path, {}, ["engine.replicas.max=4"])
    assert changed.engine.replicas == CountRange(min=1, max=4)
