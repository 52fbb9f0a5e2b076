"""Adding a metric is adding one file: it is listed, runs, and shows in summary and report with no
other edit."""

import json
import shutil
from pathlib import Path

from tests.build import run_command
from tests.conftest import REPOSITORY

BREVITY = '''
"""Brevity: is the response short? 1 for up to ten words, 0 for more. An empty response is short."""

from memray_eval.metric import ComputedMetric, MetricValue


def measure(sample, response):
    return MetricValue(value=float(len(response.text.split()) <= 10))


METRIC = ComputedMetric(title="BREVITY", value_label="Brevity", scale=(0, 1), measure=measure)
'''


def test_one_file_is_a_metric(tmp_path: Path) -> None:
    package = tmp_path / "copy" / "memray_eval"
    shutil.copytree(REPOSITORY / "memray_eval", package)
    (package / "metrics" / "assistant" / "brevity.py").write_text(BREVITY)
    rows = [
        {"id": "a", "query": "q", "response": "Rest."},
        {"id": "b", "query": "q", "response": "word " * 20},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    def cli(*words: str) -> str:
        done = run_command(*words, cwd=tmp_path, PYTHONPATH=str(package.parent))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "  brevity  (0 to 1; computed)" in cli("list", "metrics")
    summary = cli(
        "evaluate", "rows.jsonl", "--metrics", "brevity", "--judge", "rules", "--out", "out"
    )
    assert "\nbrevity   0.500 " in summary
    (folder,) = (tmp_path / "out").iterdir()
    assert cli("report", f"out/{folder.name}") == summary
    assert "[1] BREVITY" in cli("report", str(folder), "--full")
