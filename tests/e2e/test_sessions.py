"""Sessions on a real engine: the turns of a session find their prefix in its cache."""

import json
from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_command, write_lines

ABOUT = "I am Ann, I live in Graz with my dog Bruno, and I work nights as a nurse. " * 25
TURNS = [ABOUT, "I slept four hours again.", "And when I am at work?", "What is my dog called?"]
# As blocks of a prefix cache are 128 tokens on a CPU, short prompts find less
LEAST_SHARE = 0.8


@pytest.mark.night
def test_later_turns_find_their_prefix(tmp_path: Path) -> None:
    rows = [
        {"id": f"s{n}", "memory": {"name": f"Ann {n}", "city": "Graz"}, "turns": TURNS}
        for n in range(3)
    ]
    job = {
        "suite": "memory",
        "dataset": str(write_lines(tmp_path / "sessions.jsonl", rows)),
        "candidates": [{"name": "small", "model": "embedded", "sampling": {"max_tokens": 16}}],
        "metrics": ["length_appropriateness"],
        "out": str(tmp_path / "out"),
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    done = run_command("run", "job.yaml", "--run-id", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    (sessions,) = RunFolder(f"{tmp_path}/out/s").read_summary().sessions
    assert (sessions.n_sessions, sessions.n_turns) == (3, 12)
    assert sessions.later_cached_tokens is not None
    assert sessions.later_cached_tokens / sessions.later_prompt_tokens >= LEAST_SHARE
    assert "of the prompt tokens were in the prefix cache" in " ".join(done.stdout.split())
