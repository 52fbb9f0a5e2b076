"""The text suite: bare prompts, asked at several temperatures and scored by the text family
alone."""

from __future__ import annotations

import json
from collections import Counter

from memray_eval.benchmarks import get_suite
from memray_eval.config.loading import load_config
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sources import Entry
from memray_eval.metrics.text._features import OPTIMAL_WORDS, length_target
from memray_eval.types import Candidate, Sample, Turn
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "dataset" / "text" / "prompts.jsonl"
SUITE = get_suite("text")
READING = SampleReader(suite="text", adapt=SUITE.adapt)


def shipped() -> list[Sample]:
    lines = enumerate(FILE.read_text("utf-8").splitlines())
    found = [
        READING.sample(Entry(n, n + 1, str(FILE), str(n), json.loads(line), len(line)))
        for n, line in lines
    ]
    return [sample for sample in found if sample is not None]


def test_the_prompt_is_bare() -> None:
    sample = Sample(
        id="a", query="Why?", memory={"name": "Ana"}, history=(Turn(role="user", content="Hi"),)
    )
    prompt = SUITE.prompt(sample, Candidate(name="c", model="m"))
    assert [(message.role, message.content) for message in prompt.messages] == [("user", "Why?")]
    assert (prompt.max_tokens, prompt.is_chat) == (512, True)


def test_twenty_prompts_in_five_tasks_of_which_five_name_a_length() -> None:
    samples = shipped()
    assert len({sample.query for sample in samples}) == len({sample.id for sample in samples}) == 20
    tasks = Counter(sample.task for sample in samples)
    assert tasks == dict.fromkeys(("explain", "advise", "compare", "instruct", "narrate"), 4)
    named = {sample.query for sample in samples if length_target(sample) != OPTIMAL_WORDS}
    assert named == {sample.query for sample in samples if sample.metadata}
    assert len(named) == 5


def test_the_job_asks_at_the_three_temperatures_of_the_source() -> None:
    job = load_config(REPOSITORY / "jobs" / "text.yaml")
    assert (job.suite, job.dataset, job.judge) == ("text", str(FILE.parent), "rules")
    assert [candidate.sampling.temperature for candidate in job.candidates] == [0.3, 0.7, 1.2]
    assert len({candidate.name for candidate in job.candidates}) == 3
