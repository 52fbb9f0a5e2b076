"""The memory suite's splits with baselines, from the generator to the summary."""

import json
import re
from pathlib import Path

from memray_eval.benchmarks.memory.generator import TASKS, samples
from memray_eval.config.loading import load_config
from tests.build import finish, write_lines


def test_a_candidate_is_held_against_the_best_baseline(tmp_path: Path) -> None:
    rows = (json.loads(sample.model_dump_json()) for sample in samples(TASKS, [40]))
    write_lines(tmp_path / "splits.jsonl", rows)
    (tmp_path / "mine.py").write_text("def answer(messages):\n    return 'See a doctor.'\n")
    (tmp_path / "job.yaml").write_text(
        f"""
suite: memory
dataset: splits.jsonl
candidates: [{{baseline: dump}}, {{baseline: none}}, {{name: mine, model: "mine.py:answer"}}]
metrics: [memory_conduct]
out: {tmp_path / "results"}
limit: 90
"""
    )
    summary = finish(load_config(tmp_path / "job.yaml")).summary
    assert summary.n_failed_units == 0
    assert {task.task for task in summary.tasks} == set(TASKS)
    assert summary.recommendation is None  # no baseline is to be used
    (note,) = [note for note in summary.notes if "baseline" in note]
    assert re.fullmatch(
        r"mine is (not shown to be above|below) the best baseline, (dump|none): "
        r"0\.\d{3} and 0\.\d{3} in memory_conduct\.",
        note,
    )
    assert summary.notes[0] == note
    assert {(heat.measure, heat.lengths) for heat in summary.heat_maps} == {("entries", (40.0,))}
    assert {twin.candidate for twin in summary.twins} == {"dump", "none", "mine"}
