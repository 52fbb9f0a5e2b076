"""Runs from Python: data in every shape, a function as the model, checks, and a loop that runs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import memray_eval as me
from memray_eval.errors import ConfigError, DataError
from memray_eval.types import Response, Sample
from tests.servers.provider import serving

ROWS = [
    {"question": "How do I rest?", "answer": "Sleep early. Sleep long.", "ticket": 7},
    {"question": "And walk?", "answer": "Walk slowly, then rest.", "ticket": 8},
]
METRIC = """
def sleepy(sample, response):
    return "sleep" in response.text.lower()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scratch folder with a metric of one's own, as the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_metrics.py").write_text(METRIC)
    return tmp_path


def scored(data: Any, **settings: Any) -> me.Run:
    return me.evaluate(data, ["my_metrics.py:sleepy"], judge="rules", quiet=True, **settings)


def test_the_import_loads_nothing() -> None:
    heavy = ("ray", "torch", "openai", "pyarrow", "pydantic")
    code = f"import sys, memray_eval; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert {"evaluate", "run", "open_run", "judge_metric"} <= set(dir(me))
    assert all(getattr(me, name) is not None for name in me.__all__)
    with pytest.raises(AttributeError, match="no attribute 'evalute'"):
        _ = me.evalute  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "to_data",
    [list, iter, pd.DataFrame, pa.Table.from_pylist],
    ids=["list", "iter", "pandas", "arrow"],
)
def test_data_of_any_shape_are_the_same_data(to_data: Any) -> None:
    done = scored(to_data(ROWS))
    assert done.exit_code == 0
    assert done.table().select(["metric", "mean", "n_scored"]).to_pylist() == [
        {"metric": "sleepy", "mean": 0.5, "n_scored": 2}
    ]
    assert [row["sleepy"] for row in done.samples().to_pylist()] == [1.0, 0.0]
    assert len(list(Path("results/data").iterdir())) == 1


def test_a_file_with_a_mapping(folder: Path) -> None:
    pd.DataFrame(ROWS).rename(columns={"question": "ask"}).to_csv(folder / "a.csv", index=False)
    done = scored("a.csv", map={"query": "ask", "id": "ticket"})
    assert done.samples().column("sample_id").to_pylist() == ["7", "8"]
    assert done.samples(long=True).num_rows == 2
    assert me.open_run().summary == done.summary == me.open_run(done.path).summary
    assert "sleepy" in done._repr_html_()
    assert Path(done.report("page.html")).read_text("utf-8").startswith("<!doctype html>")


def test_a_function_is_the_model_and_what_it_raises_is_an_error_of_its_sample() -> None:
    def model(sample: Sample) -> str:
        if "walk" in sample.query:
            raise ValueError("no legs")
        return f"Sleep: {sample.query}"

    async def waiting(sample: Sample) -> str:
        await asyncio.sleep(0)
        return "Sleep."

    questions = [{"query": row["question"]} for row in ROWS]
    result = scored(questions, suite="chat", model=model)
    assert result.exit_code == 1
    errors = result.samples().select(["sleepy", "generation_error"]).to_pylist()
    assert errors == [
        {"sleepy": 1.0, "generation_error": None},
        {"sleepy": None, "generation_error": "ValueError: no legs"},
    ]
    two = scored(questions, suite="chat", model=waiting)
    assert two.table().column("mean").to_pylist() == [1.0]
    assert [compared.metric for compared in result.compare(two).metrics] == ["sleepy"]


def test_metrics_are_objects_of_the_caller() -> None:
    heard = []

    def short(sample: Sample, response: Response) -> bool:
        heard.append(sample.id)
        return len(response.text) < 24

    letters = me.computed_metric(lambda sample, response: len(response.text), "letters", (0, 99))
    tone = me.judge_metric("tone", rubric="How warm is it?")
    with serving(lambda body: '{"reason": "warm", "score": 4}') as server:
        servers = {"lab": {"url": server.base_url}}
        judging = {"cache": "calls.sqlite"}
        metrics = [short, letters, tone]
        done = me.evaluate(
            ROWS, metrics, judge="lab/m", quiet=True, servers=servers, judging=judging
        )
    means = {row["metric"]: row["mean"] for row in done.table().to_pylist()}
    assert (means["short"], means["letters"], means["tone"]) == (0.5, 23.5, 4.0)
    assert len(heard) == 2  # the function itself was called, so that a breakpoint in it stops
    # Another process makes them anew, from what the run wrote
    again = subprocess.run(
        [sys.executable, "-m", "memray_eval", "resume", done.path], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr
    code = [path.name for path in Path("results/data").glob("*.py")]
    assert {name.partition("_")[0] for name in code} == {"short", "letters"}


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([lambda sample, response: 1], r"a lambda or an object has no name; write computed_metric"),
        ([7], "7 is neither a name nor a metric nor a function"),
        ("sleepy", r"metrics is a text; write a list: \['sleepy'\]"),
    ],
)
def test_metrics_that_are_none_say_so(metrics: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        me.evaluate(ROWS, metrics, quiet=True)


def test_one_response_is_scored_and_nothing_kept(folder: Path) -> None:
    scores = me.score(
        "How do I rest?",
        "Sleep early.",
        ["my_metrics.py:sleepy", "semantic_correctness"],
        judge="rules",
        answers=["sleep early"],
    )
    assert (scores["sleepy"].value, scores["sleepy"].judge) == (1.0, "computed")
    assert scores["semantic_correctness"].judge == "rules"
    broken = me.score("Q?", "A.", [me.computed_metric(lambda s, r: 1 / 0, "broken")])["broken"]
    assert (broken.status, broken.value) == ("error", None)
    assert "ZeroDivisionError" in str(broken.error)
    assert not (folder / "results").exists()


def test_a_server_is_the_model() -> None:
    with serving(lambda body: "Sleep well.") as server:
        candidate = {"model": "m", "backend": "openai", "base_url": server.base_url}
        done = scored([{"query": "Hi"}], suite="chat", model=candidate)
    assert done.table().column("mean").to_pylist() == [1.0]


def test_checks_name_what_does_not_hold() -> None:
    done = scored(ROWS)
    assert done.check("sleepy >= 0.5", "sleepy.min == 0", "sleepy.n_failed<1") is done
    with pytest.raises(AssertionError) as failed:
        done.check("sleepy > 0.5", "sleepy.min >= 1", "sleepy < 0.9")
    assert str(failed.value).splitlines() == [
        "2 checks do not hold:",
        "sleepy > 0.5 (given): it is 0.5 over 2 units, judged by computed",
        "sleepy.min >= 1 (given): it is 0 over 2 units, judged by computed",
    ]
    with pytest.raises(ConfigError, match="no metric 'tone'; there are: sleepy"):
        done.check("tone > 1")
    with pytest.raises(ConfigError, match="no figure 'average'"):
        done.check("sleepy.average > 1")


def test_a_metric_that_scored_nothing_passes_no_check() -> None:
    done = me.evaluate(ROWS, ["safety", "readability_score"], judge="rules", quiet=True)
    with pytest.raises(me.CheckFailed, match="nothing was scored over 0 units, judged by nobody"):
        done.check("safety >= 0")


def test_it_runs_in_a_loop_that_runs() -> None:
    async def cell() -> me.Run:
        return scored(ROWS)

    assert asyncio.run(cell()).exit_code == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "data is a int; give a path"),
        ({"query": "q"}, "data is a dict; give a path"),
        (["a"], "row 1 of the data is a str, not a mapping"),
    ],
)
def test_data_that_are_none_say_so(data: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        scored(data)


def test_a_column_that_is_missing_comes_with_a_mapping_to_paste() -> None:
    with pytest.raises(DataError, match="Say which is which"):
        scored([{"ask": "Hi", "said": "Hello"}])


def test_a_budget_is_kept() -> None:
    rows = [{"query": f"What of {n}?", "response": f"It is {n}."} for n in range(200)]
    with serving(lambda body: '{"reason": "warm", "score": 4}') as server:
        done = me.evaluate(
            rows,
            [me.judge_metric("tone", rubric="How warm is it?")],
            judge="lab/m",
            servers={"lab": {"url": server.base_url, "price": {"input_usd": 1e3, "output_usd": 0}}},
            judging={"cache": "calls.sqlite", "max_in_flight": 1},
            budget_usd=1.0,  # of 200 calls of 10 tokens, a cent each
            quiet=True,
        )
    assert done.exit_code == 1  # stopped, to be gone on with
    assert 10 < server.n_requests <= 100


def test_what_may_cost_is_not_paid_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    rows = ROWS * 5000
    with pytest.raises(ConfigError, match=r"may cost about \$.*confirm=True"):
        me.evaluate(rows, ["helpfulness"], judge="openai/gpt-4o", suite="chat", quiet=True)
