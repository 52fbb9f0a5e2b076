"""The secret of a cache folder: made once, the same for all, and refused where it is none."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memray_eval.errors import ConfigError, ResourceError
from memray_eval.execution.services import prompt_secret
from memray_eval.judges.prompt_secret import SECRET_BYTES, secret_beside, secret_in


def test_a_secret_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    file = tmp_path / "new" / "calls.sqlite"
    with ThreadPoolExecutor(8) as threads:
        secrets = set(threads.map(secret_beside, [str(file)] * 32))
    assert len(secrets) == 1
    assert len(secrets.pop()) == SECRET_BYTES
    (kept,) = (tmp_path / "new").iterdir()
    assert kept.name == "calls.sqlite.secret"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert secret_beside(str(tmp_path / "calls.sqlite")) != secret_beside(str(file))


def test_a_folder_of_segments_has_the_first_of_its_secrets(tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/calls"
    slept: list[float] = []

    def another_begins(delay_s: float) -> None:
        """Between writing a secret and looking again, one that began before writes its own."""
        slept.append(delay_s)
        first = tmp_path / "calls" / "prompt-secret-000000000000001-aa"
        first.write_text("ab" * SECRET_BYTES)

    assert secret_in(folder, another_begins) == b"\xab" * SECRET_BYTES
    assert secret_in(folder, another_begins) == b"\xab" * SECRET_BYTES
    assert len(slept) == 1  # who finds one does not wait


@pytest.mark.parametrize("content", ["", "xyz", "ab" * 31, "ab" * 40])
def test_what_is_no_secret_is_said_in_a_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "calls.secret").write_text(content)
    with pytest.raises(ConfigError, match="is no secret of judge prompts"):
        secret_beside(str(tmp_path / "calls"))
    (tmp_path / "prompt-secret-1").write_text(content)
    with pytest.raises(ConfigError, match="prompt-secret-1 is no secret"):
        secret_in(f"file://{tmp_path}")


def test_a_folder_that_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be used"):
        secret_beside(str(tmp_path / "file" / "calls"))


def test_without_a_memory_of_calls_each_session_has_its_own(tmp_path: Path) -> None:
    assert prompt_secret("off", str(tmp_path)) != prompt_secret("off", str(tmp_path))
    kept = str(tmp_path / "calls")
    assert prompt_secret(kept, "results/r") == prompt_secret(kept, "results/other")
    assert list(tmp_path.iterdir()) == [tmp_path / "calls.secret"]
