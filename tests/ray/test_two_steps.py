"""Generate, then evaluate: seed 000's two steps, through the command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from memray_eval.cli import main
from memray_eval.config import RunConfig
from tests.servers.provider import serving


def cli(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["memray-eval", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_responses_are_written_and_then_judged(
    job: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(lambda body: "Rest more, and ask your doctor.") as server:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job(server, limit=4).model_dump(mode="json")))
        assert cli(monkeypatch, "generate", str(path), "--json") == 0
        folder, responses = (Path(line) for line in capsys.readouterr().out.splitlines())
        written = json.loads(responses.read_text())
        assert (written["model"], len(written["results"])) == ("served", 4)
        assert not list(folder.glob("scores*"))
        asked = len(server.requests)
        settings = ["--set", "embedding.model=openai/hashed", "--set", f"embedding.base_url={server.base_url}"]
        for source in (folder, responses):
            code = cli(
                monkeypatch, "evaluate", str(source), "--judge", "rules", "--metrics", "relevance,safety", "--json", *settings
            )
            assert code == 0
            out = capsys.readouterr()
            assert "RESPONSE RELEVANCE" in out.out
            assert "Total Samples: 4" in out.out
            assert "generate" not in out.err
            evaluation = json.loads(Path(out.err.splitlines()[-1]).read_text())
            assert set(evaluation["results"][0]["scores"]) == {"relevance", "safety"}
            assert evaluation["summary"]["n_units"] == 4
            assert {candidate["candidate"] for candidate in evaluation["summary"]["candidates"]} == {"served"}
        assert len(server.requests) == asked  # nothing was generated again
