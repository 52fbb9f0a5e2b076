"""`memray-eval doctor --engine` with real vLLM on the CPU: the first thing to run in an image."""

from pathlib import Path

import pytest

from memray_eval.config.sections import ClusterConfig, EngineConfig
from memray_eval.errors import ResourceError
from memray_eval.execution.ray.engine_check import N_TOKENS, check_engine_over_ray
from tests.build import run_command


@pytest.mark.night
def test_an_engine_of_the_embedded_model_answers(tmp_path: Path) -> None:
    done = run_command("doctor", "--engine", "embedded", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("[  ok] engine of embedded on cpu: up in ")
    assert " 8 tokens in " in last


def test_a_folder_that_holds_no_model_is_named(tmp_path: Path) -> None:
    done = run_command("doctor", "--engine", str(tmp_path), cwd=tmp_path)
    assert done.returncode == 3
    assert f"[fail] the engine of {tmp_path} ended with exit code 1: " in done.stdout
    assert "The last lines of its log:" in done.stdout


@pytest.mark.night
def test_an_engine_in_a_placement_group_answers_by_its_server() -> None:
    """The way of an engine with several workers, of one here: vLLM's CPU build refuses workers over
    Ray (ray_utils.py: "current platform cpu does not support ray")."""
    report = check_engine_over_ray(EngineConfig(), "embedded", "cpu", ClusterConfig())
    assert (report.device, report.n_tokens) == ("1 workers of Ray (cpu)", N_TOKENS)
    assert report.text
    over_ray = EngineConfig(engine_kwargs={"distributed_executor_backend": "ray"})
    message = r"^the engine of embedded: an engine of embedded failed"
    with pytest.raises(ResourceError, match=message):
        check_engine_over_ray(over_ray, "embedded", "cpu", ClusterConfig())
