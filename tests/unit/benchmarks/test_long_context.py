"""All long-context benchmarks in one suite: each row is read, asked and scored as its own."""

from typing import Any

import pytest

from memray_eval.benchmarks import all_suites
from memray_eval.benchmarks.long_context import SUITES, TASKS, adapt, as_published, prompt
from memray_eval.types import Sample
from tests.build import score_text
from tests.unit.benchmarks.records import PLAIN, record

MRCR = record("mrcr")


def sample_of(raw: dict[str, Any], path: str) -> Sample:
    return Sample.model_validate({"id": "1", "suite": "long_context", **adapt(raw, path)})


def test_it_holds_every_long_context_benchmark() -> None:
    conversations = {name for name, suite in all_suites().items() if suite.has_arms}
    others = {name for name, suite in all_suites().items() if suite.has_contexts}
    assert set(SUITES) == others - conversations - {"long_context", "qa"}
    assert len(set(TASKS)) == len(TASKS)
    assert {"mrcr:8needle", "graphwalks:bfs", "longbench:qasper"} <= set(TASKS)


def test_a_row_is_read_asked_and_scored_as_its_benchmark_does() -> None:
    sample = sample_of(MRCR, "rows/mrcr/2needle.parquet")
    assert (sample.task, sample.metadata["bucket"]) == ("mrcr:2needle", "up to 32k characters")
    own = as_published(sample)
    assert (own.suite, own.task, own.query) == ("mrcr", "2needle", sample.query)
    assert prompt(sample, PLAIN) == SUITES["mrcr"].prompt(own, PLAIN)
    score = score_text("rule_score", sample, "aB3Second poem.")
    assert (score.value, score.judge) == (1.0, "mrcr_ratio, openai/mrcr 204b0d4")
    assert score_text("mrcr_ratio", sample, "Second poem.").value == 0.0


def test_the_nearest_folder_names_the_benchmark() -> None:
    row = {"id": "p", "task": "passkey", "query": "?", "answers": ["1"], "context": "c"}
    assert adapt(row, "longbench/needles/x.parquet")["task"] == "needles:passkey"
    assert adapt(row, "rows/needles.parquet")["id"] == "needles:p"
    with pytest.raises(
        ValueError, match=r"no benchmark in the path of rows/x\.parquet; .* needles"
    ):
        adapt(row, "rows/x.parquet")
    with pytest.raises(ValueError, match="no task 'passkey'; there are: parents, bfs"):
        adapt(row, "rows/graphwalks/x.parquet")


def test_a_generated_samples_length_is_its_bucket() -> None:
    row = {"id": "p", "task": "passkey", "query": "?", "context": "c"}
    created = adapt(row | {"metadata": {"length": 8192, "tokens": 8190}}, "needles/x.parquet")
    assert created["metadata"]["bucket"] == "8k"
    own = adapt(row | {"metadata": {"length": 8192}}, "needles/x.parquet")
    assert "bucket" not in own["metadata"]
    assert adapt(row, "needles/x.parquet")["metadata"] == {}
    odd = adapt(row | {"metadata": {"length": "x", "tokens": 1}}, "needles/x.parquet")
    assert "bucket" not in odd["metadata"]


def test_a_row_of_a_run_passes_and_a_prompt_that_a_benchmark_lacks_is_its_default() -> None:
    written = {"sample_id": "mrcr:1", "task": "mrcr:2needle", "query": "q"}
    assert adapt(written, "anywhere.parquet") is written
    sample = sample_of(MRCR, "mrcr/x.parquet")
    transcript = PLAIN.model_copy(update={"prompt": "transcript"})
    assert len(prompt(sample, transcript).messages) == 1
    passkey = Sample(id="1", suite="long_context", task="needles:passkey", query="q", context="c")
    assert prompt(passkey, transcript) == prompt(passkey, PLAIN)
    with pytest.raises(ValueError, match="task 'passkey' names no benchmark"):
        prompt(passkey.model_copy(update={"task": "passkey"}), PLAIN)
