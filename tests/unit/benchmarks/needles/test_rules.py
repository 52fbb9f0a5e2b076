"""BABILong's rule: its tasks, and the samples that it does not score."""

from memray_eval.benchmarks import babilong
from memray_eval.types import Sample
from tests.build import score_text


def sample(task: str, *answers: str, **fields: object) -> Sample:
    about = {"id": "1", "query": "q", "task": task, "answers": answers}
    return Sample.model_validate(about | fields)


def test_babilong_knows_twenty_tasks_and_takes_the_samples_own_classes() -> None:
    assert set(babilong.LABELS) == {f"qa{number}" for number in range(1, 21)}
    assert score_text("babilong", sample("chat", "x"), "x").status == "not_applicable"
    own_classes = sample("rooms", "attic", classes=["attic", "cellar"])
    assert score_text("babilong", own_classes, "In the attic").value == 1.0
    assert score_text("babilong", sample("qa1", "kitchen", "garden"), "kitchen").status == "error"
    named = sample("chat", "x", metadata={"rule": "babilong"})
    assert score_text("rule_score", named, "x").status == "error"
