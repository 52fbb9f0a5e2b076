"""The notebook of jobs/, run in a kernel: its figures are those of the command line."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import memray_eval as me
from tests.build import run_command
from tests.conftest import HANG_S, REPOSITORY

NOTEBOOK = REPOSITORY / "jobs" / "notebook.ipynb"
METRICS = "my.py:is_brief,lexical_diversity,readability_score"
METRIC = "def is_brief(sample, response):\n    return len(response.text.split()) <= 10\n"


def figures(run: me.Run) -> list[dict[str, Any]]:
    return run.table().select(["metric", "mean", "stderr", "min", "max", "n"]).to_pylist()


def printed(folder: Path, *words: str) -> str:
    """What the command line prints on stdout."""
    done = run_command(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.night)])
def test_its_figures_are_those_of_the_command_line(tmp_path: Path, executor: str) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("quiet=True", f'quiet=True, executor="{executor}"')
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=HANG_S, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    tables = [out["data"]["text/html"] for out in shown if "text/html" in out.get("data", {})]
    assert '<th scope="row">is_brief</th>' in tables[0]
    # The run, its metrics, its samples, what passed the check, a comparison, labels, a run again
    assert len(tables) == 7
    assert "I hear you. Try to sleep earlier" in tables[2]
    assert "No difference is shown between responses and shorter" in " ".join(tables[4].split())
    assert "weighted kappa" in tables[5]
    held: dict[str, Any] = {}
    for cell in notebook.cells:
        if cell.source.startswith(("import memray_eval", "people =")):
            exec(cell.source.partition("me.calibrate")[0], held)
    for name in ("rows", "labels"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, held[name])))
    (tmp_path / "my.py").write_text(METRIC)
    printed(tmp_path, "evaluate", "rows.jsonl", "--metrics", METRICS, "--out", "cli")
    out = str(tmp_path / "results")
    done, after = me.open_run("latest~2", out), me.open_run("latest~1", out)
    compared = json.loads(printed(tmp_path, "compare", done.path, after.path, "--json"))
    differences = [f"{row['paired']['difference']:+z.4f}" for row in compared["metrics"]]
    assert [text for text in differences if f"<td>{text}</td>" in tables[4]] == differences
    fields = ",".join(f"{name}={name}" for name in ("query", "response", "answers", "human"))
    how = ("--metric", "semantic_correctness", "--map", fields, "--json")
    (judge,) = json.loads(printed(tmp_path, "calibrate", "labels.jsonl", *how))["judges"]
    assert f"<td>{judge['figures']['kappa']['value']:.3f} [" in tables[5]
    # Units have other ids by their candidate's name, and are added up in another order
    of_cli = figures(me.open_run(out=f"{tmp_path}/cli"))
    for row, same in zip(figures(done), of_cli, strict=True):
        assert row.pop("metric") == same.pop("metric")
        assert row == pytest.approx(same, rel=1e-12)
    assert len(figures(done)) == 3


def test_progress_shows_in_a_cell_whose_loop_runs(tmp_path: Path) -> None:
    code = (
        "import memray_eval as me\n"
        "def brief(sample, response):\n"
        "    return True\n"
        'done = me.evaluate([{"query": "Q?", "response": "A."}], [brief], executor="local")'
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=HANG_S, kernel_name="python3", resources=resources).execute()
    outputs = notebook.cells[0].outputs
    (view,) = [out.data["text/plain"] for out in outputs if out.output_type == "display_data"]
    stages = [line.split() for line in view.splitlines()[1:]]
    assert [(words[0], words[2]) for words in stages] == [
        (name, "1/1") for name in ("read", "judge", "write")
    ]
    assert "read 1/1" not in "".join(out.text for out in outputs if out.output_type == "stream")
