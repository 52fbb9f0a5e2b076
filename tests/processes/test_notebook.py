"""The notebook of jobs/, run in a kernel: its figures are those of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import memray_eval as me
from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "jobs" / "notebook.ipynb"
METRICS = "my.py:is_brief,lexical_diversity,readability_score"
METRIC = "def is_brief(sample, response):\n    return len(response.text.split()) <= 10\n"


def figures(run: me.Run) -> list[dict[str, Any]]:
    return run.table().select(["metric", "mean", "stderr", "min", "max", "n"]).to_pylist()


@pytest.mark.parametrize("executor", ["local", pytest.param("ray", marks=pytest.mark.night)])
def test_its_figures_are_those_of_the_command_line(tmp_path: Path, executor: str) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace("quiet=True", f'quiet=True, executor="{executor}"')
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    tables = [out["data"]["text/html"] for out in shown if "text/html" in out.get("data", {})]
    assert "<td>is_brief</td>" in tables[0]
    assert len(tables) == 4  # the run, its metrics, its samples, and what passed the check
    rows: dict[str, Any] = {}
    exec(notebook.cells[1].source, rows)  # the cell that holds the rows
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows["rows"])))
    (tmp_path / "my.py").write_text(METRIC)
    words = ["evaluate", "rows.jsonl", "--metrics", METRICS]
    done = subprocess.run(
        [sys.executable, "-m", "memray_eval", *words, "--out", "cli"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    opened = me.open_run(out=str(tmp_path / "results"))
    # Units have other ids by their candidate's name, and are added up in another order
    of_cli = figures(me.open_run(out=f"{tmp_path}/cli"))
    for row, same in zip(figures(opened), of_cli, strict=True):
        assert row.pop("metric") == same.pop("metric")
        assert row == pytest.approx(same, rel=1e-12)
    assert len(figures(opened)) == 3


def test_progress_shows_in_a_cell_whose_loop_runs(tmp_path: Path) -> None:
    code = (
        "import memray_eval as me\n"
        "def brief(sample, response):\n"
        "    return True\n"
        'done = me.evaluate([{"query": "Q?", "response": "A."}], [brief], executor="local")'
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=240, kernel_name="python3", resources=resources).execute()
    progress = "".join(
        out["text"] for out in notebook.cells[0].outputs if out.get("name") == "stderr"
    )
    assert "read 1/1  judge 1/1  write 1/1" in progress
