"""The needles job on the embedded model, through the command line: lengths that hold, and the map
of length by depth."""

from pathlib import Path

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_command
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.night
CHAT_TOKENS = 30  # SmolLM2's system prompt and marks around one user message


def test_needles_are_asked_at_their_length_and_mapped(tmp_path: Path) -> None:
    job = str(REPOSITORY / "jobs" / "needles.yaml")
    done = run_command(
        "run", job, "--limit", "4", "--out", str(tmp_path), "--set", "tasks=[passkey]", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (folder,) = (path.parent for path in tmp_path.glob("*/summary.json"))
    records = list(RunFolder(str(folder)).each())
    assert len(records) == 4
    for record in records:
        assert record.response is not None
        assert record.response.prompt_tokens == record.sample.metadata["tokens"] + CHAT_TOKENS
        assert (record.response.prompt_form, record.response.truncated_tokens) == ("chat", 0)
        assert record.response.cached_tokens is not None
    full = run_command("report", "--full", str(folder), cwd=tmp_path).stdout
    assert "LENGTH BY DEPTH: rule_score" in full
    assert "passkey" in full
