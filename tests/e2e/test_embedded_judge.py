"""The embedded judge: the whole LLM path with no key, on responses that the memory run made."""

import json
import os
from pathlib import Path

import psutil
import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_command
from tests.e2e.conftest import CommandRun

pytestmark = pytest.mark.night
FIELDS = ["cmdline", "environ"]


def test_the_embedded_judge_scores_by_guided_json_and_is_stopped_afterwards(
    memory_run: CommandRun, tmp_path: Path
) -> None:
    words = [
        "--judge",
        "embedded",
        "--limit",
        "3",
        "--metrics",
        "empathy,safety",
        "--no-cache",
        "--out",
        "out",
    ]
    done = run_command("evaluate", str(memory_run.folder), *words, cwd=tmp_path)
    # So small a model makes quotes up: of three answers all may be refused, which is code 1
    assert done.returncode in (0, 1), done.stderr[-4000:]
    assert (
        "empathy, safety: judged by a small local model, which proves the plumbing, not the scores."
        in " ".join(done.stdout.split())  # the console wraps notes
    )
    (folder,) = (tmp_path / "out").iterdir()
    records = list(RunFolder(str(folder)).each())
    assert any(score.usage.cached_input_tokens for record in records for score in record.scores)
    for record in records:
        for score in record.scores:
            assert score.status in ("scored", "abstained")
            assert score.judge == "embedded"
            assert score.usage.input_tokens > 100
            assert score.usage.output_tokens > 0
            assert json.loads(score.judgment or "")
    # Of this session: its cache folder holds the model
    ours, infos = os.environ["MEMRAY_EVAL_CACHE"], [it.info for it in psutil.process_iter(FIELDS)]
    left = [
        " ".join(info["cmdline"] or ())
        for info in infos
        if (info["environ"] or {}).get("MEMRAY_EVAL_CACHE") == ours
    ]
    assert not [line for line in left if "EngineActor" in line or "JudgePort" in line]
