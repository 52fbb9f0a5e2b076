"""Published records and templates of LongBench and LongBench v2, from ../shared/data."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import get_suite
from memray_eval.benchmarks.longbench.suite import TASKS, WORDINGS
from memray_eval.types import Sample
from tests.build import score_text
from tests.conftest import REPOSITORY
from tests.unit.benchmarks.records import PLAIN, record, sample_of, sent

DATA = REPOSITORY.parent / "shared" / "data"
LONGBENCH, LONGBENCH2 = DATA / "longbench", DATA / "longbench-v2" / "sample.jsonl"
pytestmark = pytest.mark.skipif(not LONGBENCH.is_dir(), reason=f"no {LONGBENCH}")


def read(suite: str, *files: Path) -> list[tuple[Sample, dict[str, Any]]]:
    """The records of files, each with its sample."""
    adapt = get_suite(suite).adapt
    return [
        (Sample.model_validate({**adapt(raw, str(file)), "suite": suite}), raw)
        for file in files
        for raw in map(json.loads, file.read_text("utf-8").splitlines())
    ]


@pytest.mark.parametrize(
    ("suite", "files", "n"),
    [("longbench", sorted(LONGBENCH.glob("*.jsonl")), 24), ("longbench2", [LONGBENCH2], 6)],
)
def test_every_record_is_a_sample_and_is_asked_whole(suite: str, files: list[Path], n: int) -> None:
    samples = read(suite, *files)
    assert len({sample.id for sample, _ in samples}) == len(samples) == n
    for sample, raw in samples:
        _, after = sent(sample).split(raw["context"])
        assert sample.context == raw["context"]
        assert after.count(sample.query) == 1
        assert raw.get("choice_D", "") in after
        if suite == "longbench":
            right, wrong = (
                score_text("rule_score", sample, text).value
                for text in (sample.answers[0], "nothing of this")
            )
            assert right == pytest.approx(1.0)
            assert wrong is not None
            assert wrong < 0.1
        else:
            right = raw["answer"]
            assert sample.answers == (right, f"{right}. {raw[f'choice_{right}']}")


def test_templates_render_as_python_would() -> None:
    prompts = json.loads((LONGBENCH / "dataset2prompt.json").read_text("utf-8"))
    lengths = json.loads((LONGBENCH / "dataset2maxlen.json").read_text("utf-8"))
    suite = get_suite("longbench", str(LONGBENCH))
    assert suite.tasks == TASKS == tuple(prompts)
    assert {task: wording.max_tokens for task, wording in WORDINGS.items()} == lengths
    for task, template in prompts.items():
        query = "Why {not}?" if "{input}" in template else ""
        changes = {"dataset": task, "context": "a {brace} and {input}", "input": query}
        prompt = suite.prompt(sample_of("longbench", **changes), PLAIN)
        assert prompt.messages[0].content == template.format(**record("longbench", **changes))
        assert prompt.max_tokens == lengths[task]
    for sample, raw in read("longbench", *LONGBENCH.glob("*.jsonl")):
        text = sent(sample, templates=str(LONGBENCH))
        assert text == prompts[sample.task].format(**raw)
