"""Runs from Python: data in every shape, a function as the model, checks, and a loop that runs."""

import asyncio
import re
import sys
import time
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import memray_eval as me
from memray_eval.errors import ConfigError, DataError
from memray_eval.report.runs_list import RunList
from memray_eval.types import Response, Sample
from tests.build import run_command
from tests.servers.provider import Provider, serving

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


def by_lab(server: Provider, judging: Any = None, **of_server: Any) -> dict[str, Any]:
    """How a server of the test judges."""
    servers = {"lab": {"url": server.base_url, **of_server}}
    kept = {"cache": "calls.sqlite", **(judging or {})}
    return {"judge": "lab/m", "servers": servers, "judging": kept, "quiet": True}


def warm(body: dict[str, Any]) -> str:
    return '{"reason": "warm", "score": 4}'


MANY = [{"query": f"What of {n}?", "response": f"It is {n}."} for n in range(200)]


def scored(data: Any, **settings: Any) -> me.Run:
    return me.evaluate(data, ["my_metrics.py:sleepy"], judge="rules", quiet=True, **settings)


def test_the_names_of_the_package() -> None:
    assert {"evaluate", "run", "open_run", "judge_metric"} <= set(dir(me))
    assert all(getattr(me, name) is not None for name in me.__all__)
    with pytest.raises(AttributeError, match=r"no attribute 'evalute'; did you mean 'evaluate'\?"):
        _ = me.evalute  # type: ignore[attr-defined]


@pytest.mark.parametrize("to_data", [list, iter, pd.DataFrame, pa.Table.from_pylist])
def test_data_of_any_shape_are_the_same_data(to_data: Any) -> None:
    done = scored(to_data(ROWS))
    assert done.exit_code == 0
    assert done.table().select(["metric", "mean", "n_scored"]).to_pylist() == [
        {"metric": "sleepy", "mean": 0.5, "n_scored": 2}
    ]
    assert done.samples().select(["query", "response", "sleepy", "candidate"]).to_pylist() == [
        {"query": row["question"], "response": row["answer"], "sleepy": value, "candidate": who}
        for row, value, who in zip(ROWS, (1.0, 0.0), ["responses"] * 2, strict=True)
    ]
    assert len(list(Path("results/data").iterdir())) == 1


def test_a_file_of_other_answers_to_the_same_questions_has_what_it_was(folder: Path) -> None:
    for answer in ("Sleep early.", "Walk."):
        rows = [ROWS[0] | {"answer": answer}, ROWS[1]]
        pd.DataFrame(rows).to_csv(folder / "a.csv", index=False)
        scored("a.csv")
    pd.DataFrame([*rows, ROWS[0]]).to_csv(folder / "a.csv", index=False)  # a question more
    scored("a.csv")
    runs = RunList("results").rows().values()  # two of one second come in any order
    was = {row.n_units: set[bool]() for row in runs}
    for row in runs:
        was[row.n_units] |= {figure.was != "" for figure in row.figures}
    assert was == {2: {False, True}, 3: {False}}


def test_a_metric_that_asks_for_no_field_of_a_sample_is_told_the_nearest(folder: Path) -> None:
    (folder / "my_metrics.py").write_text("def sleepy(sample, response): return sample.querry")
    error = scored(ROWS).samples(long=True)["judge_error"].to_pylist()[0]
    assert "did you mean 'query'? (metric sleepy, my_metrics.py:1)" in error


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
    assert {row.candidate for row in result.summary.metrics} == {"model"}
    two = scored(questions, suite="chat", model=waiting)
    assert two.table().column("mean").to_pylist() == [1.0]
    assert [compared.metric for compared in result.compare(two).metrics] == ["sleepy"]


def test_a_function_that_returns_a_response_is_taken_at_its_word() -> None:
    def model(sample: Sample) -> Any:
        return {
            "whole": Response(text="Sleep.", finish_reason="stop", output_tokens=5, duration_s=2.0),
            "failed": Response(error="429 rate limited"),
            "cut": Response(text="", finish_reason="length", thinking="Well ..."),
            "none": 7,
        }[sample.query]

    questions = [{"id": name, "query": name} for name in ("whole", "failed", "cut", "none")]
    done = scored(questions, suite="chat", model=model, tolerance=1.0)
    rows = {row["sample_id"]: row for row in done.samples().to_pylist()}
    assert {name: row["generation_error"] for name, row in rows.items()} == {
        "whole": None,
        "failed": "429 rate limited",
        "cut": None,
        "none": "TypeError: returned int, not a text",
    }
    (of,) = done.summary.candidates
    assert (of.no_answer, of.output_tokens) == ({"limit": 1}, 5)
    assert (done["sleepy"].n_failed, done["sleepy"].n_scored) == (2, 2)


def test_a_function_is_asked_a_session_turn_by_turn() -> None:
    asked: dict[str, list[str]] = {}

    def model(sample: Sample) -> str:
        asked[sample.id] = [turn.content for turn in sample.history]
        return "" if sample.query == "Oh?" else f"<think>Hm</think>{sample.query.upper()}"

    sessions = [
        {"id": "s", "turns": ["I am Ana.", "Who am I?"]},
        {"id": "cut", "turns": ["Oh?", "Ah?"]},
        {"id": "alone", "query": "Hi"},
    ]
    done = scored(sessions, suite="chat", model=model, tolerance=1.0)
    assert asked == {"s#1": [], "s#2": ["I am Ana.", "I AM ANA."], "cut#1": [], "alone": []}
    rows = {row["sample_id"]: row for row in done.samples().to_pylist()}
    assert {*rows} == {"s#1", "s#2", "cut#1", "cut#2", "alone"}
    assert rows["s#2"]["response"] == "WHO AM I?"
    assert "turn [1] of its session has no answer (empty)" in rows["cut#2"]["generation_error"]
    assert {row.n_sessions for row in done.summary.turns} == {2}
    user = {"persona": "Ana", "goal": "to rest", "opening": "Hi"}
    with pytest.raises(ConfigError, match="not asked by a simulated user"):
        scored([{"id": "u", "user": user}], suite="chat", model=model)


def test_metrics_are_objects_of_the_caller() -> None:
    heard = []

    def short(sample: Sample, response: Response) -> bool:
        heard.append(sample.id)
        return len(response.text) < 24

    letters = me.computed_metric(lambda sample, response: len(response.text), "letters", (0, 99))
    tone = me.judge_metric("tone", rubric="How warm is it?")
    with serving(warm) as server:
        done = me.evaluate(ROWS, [short, letters, tone], **by_lab(server))
    means = {row["metric"]: row["mean"] for row in done.table().to_pylist()}
    assert (means["short"], means["letters"], means["tone"]) == (0.5, 23.5, 4.0)
    assert len(heard) == 2  # the function itself was called, so that a breakpoint in it stops
    # Another process makes them anew, from what the run wrote
    again = run_command("resume", done.path)
    assert again.returncode == 0, again.stderr
    code = [path.name for path in Path("results/data").glob("*.py")]
    assert {name.partition("_")[0] for name in code} == {"short", "letters"}


@pytest.mark.parametrize(
    ("data", "metrics", "message"),
    [
        (ROWS, [lambda sample, response: 1], "a lambda or an object has no name; write computed_"),
        (ROWS, [7], "7 is neither a name nor a metric nor a function"),
        (ROWS, "sleepy", r"metrics is a text; write a list: \['sleepy'\]"),
        (7, None, "data is a int; give a path"),
        ({"query": "q"}, None, "data is a dict; give a path"),
        (["a"], None, "row 1 of the data is a str, not a mapping"),
    ],
)
def test_data_and_metrics_that_are_none_say_so(data: Any, metrics: Any, message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        me.evaluate(data, metrics or ["my_metrics.py:sleepy"], quiet=True)


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
        "sleepy > 0.5 (responses): it is 0.5 over 2 answers, judged by computed",
        "sleepy.min >= 1 (responses): it is 0 over 2 answers, judged by computed",
    ]


def test_answers_of_several_candidates_and_epochs_are_of_one_sample() -> None:
    rows = [
        ROWS[0] | {"id": "s", "candidate": of, "epoch": epoch} for of in "ab" for epoch in (1, 2)
    ]
    assert (scored(rows).summary.n_samples, scored(rows[:1]).summary.n_samples) == (1, 1)


def test_a_check_at_its_bound_holds_in_spite_of_float_error() -> None:
    done = scored(ROWS)
    of = done["sleepy"].figure.model_copy(update={"value": 0.1 + 0.2})  # 0.30000000000000004
    row = done["sleepy"].model_copy(update={"figure": of})
    vars(done)["summary"] = done.summary.model_copy(update={"metrics": (row,)})
    done.check("sleepy <= 0.3", "sleepy >= 0.3", "sleepy == 0.3")
    with pytest.raises(me.CheckFailed, match="2 checks"):
        done.check("sleepy > 0.3", "sleepy < 0.3")
    with pytest.raises(me.CheckFailed, match=r"it is 0\.3 over"):
        done.check("sleepy >= 0.30001")
    of = of.model_copy(update={"value": 0.299996})
    vars(done)["summary"] = done.summary.model_copy(
        update={"metrics": (row.model_copy(update={"figure": of}),)}
    )
    with pytest.raises(me.CheckFailed, match=r"it is 0\.299996 over"):
        done.check("sleepy >= 0.3")


IN_TASKS = [
    {
        "id": f"row {number}",
        "query": f"Question {number}?",
        "response": "Sleep." if number % 4 or number < 20 else "Walk.",
        "task": "night" if number < 20 else "day",
    }
    for number in range(40)
]


@pytest.mark.parametrize("key", ["mood", "user"])  # by users intervals are clustered
def test_checks_of_intervals_and_groups(key: str) -> None:
    rows = [{**row, "metadata": {key: number % 7}} for number, row in enumerate(IN_TASKS)]
    done = scored(rows)
    for name in ("figure", "low", "high", "mean", "min", "max"):
        value = done.table()[name][0].as_py()
        for group in (None, {"language": "en"}):  # all of them
            done.check("sleepy", min=value - 1e-9, max=value + 1e-9, on=name, group=group)
    assert done.check("sleepy.n_scored == 20", "sleepy.max == 1", group="task") is done
    assert done.check("sleepy", min=1, group={"task": "night"}) is done
    # Wilson's interval of 15 of 20 begins at 0.531, of 20 of 20 at 0.839
    least, low = (0.8, 0.5313) if key == "mood" else (0.62, 0.6098)
    with pytest.raises(me.CheckFailed) as failed:
        done.check("sleepy", min=least, group="task", on="low")
    where = f"(responses, task day): it is {low} over 20 answers, judged by computed"
    assert str(failed.value).splitlines()[1:] == [f"sleepy.low >= {least} {where}"]
    with pytest.raises(me.CheckFailed, match=f"{key} 4"):
        done.check("sleepy >= 1", group=key)


@pytest.mark.parametrize(
    ("check", "how", "message"),
    [
        ("tone > 1", {}, "no metric 'tone'; there are: sleepy"),
        ("sleepi", {}, "no metric 'sleepi'; did you mean 'sleepy'?"),
        ("sleepy", {}, "cannot read the check 'sleepy'; write \"METRIC >= NUMBER\""),
        ("sleepy >= x", {}, "cannot read the check 'sleepy >= x'"),
        ("sleepy.average > 1", {}, "no figure 'average'; did you mean 'coverage'?"),
        ("sleepy", {"min": 1, "on": "lo"}, "no figure 'lo'; did you mean 'low'?"),
        ("sleepy > 1", {"group": "taks"}, "no sample names a 'taks'; there may be: task, scenario"),
        ("sleepy > 1", {"group": "scenario"}, "names a 'scenario'; there may be: task, prompt_"),
        ("sleepy > 1", {"group": {"task": "nigth"}}, "no task 'nigth'; did you mean 'night'?"),
        ("sleepy > 1", {"group": {}}, "group is {}; write one field"),
        ("sleepy.n_failed < 1", {"group": "task"}, "groups have no 'n_failed'; there are: figure"),
    ],
)
def test_checks_that_are_none_say_so(check: str, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        scored(IN_TASKS).check(check, **how)


def test_samples_are_in_the_order_of_the_data(folder: Path) -> None:
    rows = IN_TASKS[::-1]
    answers = [{**row, "model": model} for row in rows for model in ("b", "a")]
    done = scored(answers, limit=60)
    seen = [(row["sample_id"], row["candidate"]) for row in done.samples().to_pylist()]
    expected = [(row["id"], model) for row in rows for model in ("a", "b")]
    assert seen == [pair for pair in expected if pair in set(seen)]
    assert len(seen) == 60
    Path("results/data").rename("elsewhere")  # by id, then
    ids = [row["sample_id"] for row in done.samples().to_pylist()]
    assert ids == sorted(ids, key=lambda name: (len(name), name))


def test_what_is_shown_is_short_and_escaped() -> None:
    rows = [{**row, "model": "<b>\x1b[2J"} for row in ROWS]
    first, other = scored(rows), scored(rows[::-1])
    for shown in (first, first.compare(other), me.compare(first, other.path, metrics=["sleepy"])):
        text, page = repr(shown), shown._repr_html_()
        assert str(shown) == text
        assert "sleepy" in text
        assert len(text.splitlines()) < 24
        assert "\x1b" not in text
        assert "<table" in page
        assert "<b>" not in page
        assert "script" not in page
    assert repr(first).splitlines()[0] == f"Run({first.path!r})"
    comparison = first.compare(other)
    assert repr(comparison).startswith("No difference is shown between")
    assert comparison.metrics == me.compare(first, other).metrics


def test_an_unfinished_run_says_how_to_go_on(folder: Path) -> None:
    done = scored(ROWS)
    Path(f"{done.path}/summary.json").unlink()
    again = me.open_run(done.path)
    assert f"resume {done.path}" in repr(again).replace("\n", " ")
    assert "resume" in again._repr_html_()
    assert again.resume(quiet=True).summary.metrics[0].mean == 0.5


def test_tables_for_data_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    done = scored(IN_TASKS)
    assert done.to_arrow().equals(done.table())
    assert done.to_arrow("samples").equals(done.samples())
    assert done.to_pandas("scores")["value"].mean() == 0.875
    compared = me.compare(done, scored(IN_TASKS[:30]))
    assert compared.to_pandas()[["metric", "n", "difference"]].values.tolist() == [
        ["sleepy", 30, 0.0]
    ]
    assert set(compared.to_pandas("groups")["group"]) == {"night", "day"}
    assert compared.to_arrow("matrix").num_rows == 0
    with pytest.raises(ConfigError, match=r"no table 'sample'; did you mean 'samples'\?"):
        done.to_arrow("sample")
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"pip install 'memray-eval\[{package}\]'"):
            getattr(done, f"to_{package}")()


OWN_JUDGE = """
def judge(messages, judgment):
    return {"explanation": "it is kind", "coherence_score": 4,
            "grammar_issues": ["thank you"], "strengths": ["short"]}
"""


def test_samples_have_the_columns_of_ones_data_and_what_a_judge_said(folder: Path) -> None:
    (folder / "mine.py").write_text(OWN_JUDGE)
    rows = [
        {"id": "a", "query": "Hi", "response": "No, thank you.", "team": "x", "n": 1, "any": 1},
        {"id": "b", "query": "Hi", "response": "No thank you.", "team": "y", "any": {"k": [2]}},
    ]
    metrics = ["coherence", "my_metrics.py:sleepy"]
    done = me.evaluate(rows, metrics, judge="mine.py:judge", quiet=True)
    frame = done.to_pandas("samples").set_index("sample_id")
    assert list(frame["team"]) == ["x", "y"]
    assert frame["n"]["a"] == 1
    assert list(frame["any"]) == ["1", '{"k":[2]}']
    assert frame["coherence.reason"]["a"] == "it is kind"
    assert list(frame["coherence.quotes"]["a"]) == ["thank you"]
    worst = done.worst("coherence", 1)
    assert worst.num_rows == 1
    for ask in (done.worst, done.__getitem__):
        with pytest.raises(ConfigError, match="no metric 'polite'"):
            ask("polite")


def test_a_metric_of_several_candidates_is_asked_for_by_name(folder: Path) -> None:
    rows = [
        {"id": "a", "query": "Hi", "response": text, "model": name}
        for name, text in (("one", "I sleep."), ("two", "No."))
    ]
    done = scored(rows)
    assert done["sleepy", "one"].candidate == "one"
    with pytest.raises(ConfigError, match=r'write run\["sleepy", CANDIDATE\], of one, two'):
        done["sleepy"]


def test_a_judge_is_measured_against_people(folder: Path) -> None:
    rows = [
        {"query": f"House {n}?", "response": f"It is {n}." if n % 3 else "Nobody knows.",
         "answers": [f"{n}"], "score": float(n % 3 > 0 and n % 5 > 0)}
        for n in range(60)
    ]  # fmt: skip
    columns = {"human": "score", "answers": "answers"}
    calibration = me.calibrate(rows, "semantic_correctness", map=columns, quiet=True)
    (judge,) = calibration.judges
    assert (calibration.n, judge.judge, judge.n_scored) == (60, "rules", 60)
    exact = calibration.to_pandas().set_index("figure").loc["exact"]
    expected = (judge.figures["exact"].value, judge.figures["exact"].low)
    assert (exact["value"], exact["low"]) == expected
    assert calibration.to_arrow("curve").num_rows == len(judge.curve)
    assert repr(calibration).startswith("semantic_correctness (0-1) on rows: 60 labelled responses")
    assert "weighted kappa" in calibration._repr_html_()
    with pytest.raises(ConfigError, match="no column 'human'"):
        me.calibrate(rows, "semantic_correctness", quiet=True)
    scored = [{"human": n % 5 + 1, "gpt": (n + (n % 7 == 0)) % 5 + 1} for n in range(40)]
    of_scores = me.calibrate(scored, "empathy", map={"judge": "gpt"}, quiet=True)
    assert (of_scores.n, of_scores.judges[0].judge) == (40, "gpt")
    some = [*scored, {"human": None, "gpt": 3}]
    with pytest.raises(DataError, match="skip_unlabelled=True"):
        me.calibrate(some, "empathy", map={"judge": "gpt"}, quiet=True)
    assert me.calibrate(some, "empathy", map={"judge": "gpt"}, skip_unlabelled=True).n == 40
    assert not (folder / "results").exists()


def test_generated_responses_are_judged_later(folder: Path) -> None:
    Path("model.py").write_text("def answer(messages):\n    return 'Sleep.'\n")
    Path("questions.jsonl").write_text('{"query": "How do I rest?"}\n')
    Path("job.yaml").write_text(
        "dataset: questions.jsonl\nsuite: chat\ncandidates: [{name: own, model: model.py:answer}]\n"
    )
    done = me.generate("job.yaml", quiet=True)
    (row,) = done.samples().to_pylist()
    assert (row["candidate"], row["response"]) == ("own", "Sleep.")
    (metric,) = scored(done.path).summary.metrics
    assert (metric.candidate, metric.mean) == ("own", 1.0)


async def test_a_loop_goes_on_while_runs_work() -> None:
    beats = []

    async def beat() -> None:
        while True:
            beats.append(None)
            await asyncio.sleep(0.005)

    beating = asyncio.create_task(beat())
    how: dict[str, Any] = {"metrics": ["my_metrics.py:sleepy"], "quiet": True}
    first, second = await asyncio.gather(
        me.evaluate_async(ROWS, **how), me.evaluate_async(ROWS[::-1], **how)
    )
    beating.cancel()
    compared = me.compare(first, second)
    assert first.summary.metrics[0].mean == 0.5
    assert [row.paired.n for row in compared.metrics] == [2]
    assert len(beats) > 10


async def test_runs_that_are_awaited_together_go_one_after_the_other() -> None:
    heard: list[str] = []
    cancelled: list[str] = []

    def metric(name: str) -> Any:
        def score(sample: Sample, response: Response) -> bool:
            heard.append(name)
            while not cancelled:
                time.sleep(0.01)
            return True

        return me.computed_metric(score, name)

    together = asyncio.gather(
        *(me.evaluate_async(IN_TASKS, [metric(name)], quiet=True) for name in ("a", "b"))
    )
    while not heard:
        await asyncio.sleep(0.01)
    third = asyncio.create_task(me.evaluate_async(ROWS, [metric("c")], quiet=True))
    await asyncio.sleep(0.05)
    third.cancel()
    cancelled.append("c")
    with pytest.raises(asyncio.CancelledError):
        await third
    await together
    assert sorted(name for name, _ in groupby(heard)) == ["a", "b"]


def test_a_cancelled_run_keeps_what_is_finished_and_goes_on() -> None:
    tone = me.judge_metric("tone", rubric="How warm is it?")

    async def work(server: Provider) -> list[str]:
        how = by_lab(server, {"max_in_flight": 2})
        run = asyncio.create_task(me.evaluate_async(MANY, [tone], **how))
        while server.n_requests < 8:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError) as ended:
            await run
        return ended.value.__notes__

    def slow(body: dict[str, Any]) -> str:
        time.sleep(0.02)
        return warm(body)

    with serving(slow) as server:
        (note,) = asyncio.run(work(server))
        stopped = me.open_run()
        n_requests = server.n_requests
        assert n_requests < 200
        assert note.endswith(f"{stopped.path}`.")
        assert "memray-eval resume" in note
        assert stopped.folder.read_manifest()["status"] == "interrupted"
        done = stopped.resume(quiet=True)
        assert server.n_requests == 200  # none was paid twice
    assert (done.summary.n_units, done.exit_code) == (200, 0)


def test_a_metric_that_scored_nothing_passes_no_check() -> None:
    done = me.evaluate(ROWS, ["safety", "readability_score"], judge="rules", quiet=True)
    with pytest.raises(me.CheckFailed, match="nothing was scored over 0 answers"):
        done.check("safety >= 0")


async def test_it_runs_in_a_loop_that_runs() -> None:
    assert scored(ROWS).exit_code == 0


def test_a_budget_is_kept() -> None:
    tone = me.judge_metric("tone", rubric="How warm is it?")
    with serving(warm) as server:
        how = by_lab(server, {"max_in_flight": 1}, price={"input_usd": 1e3, "output_usd": 0})
        # of 200 calls of 10 tokens, a cent each
        done = me.evaluate(MANY, [tone], budget_usd=1.0, **how)
    assert done.exit_code == 1  # stopped, to be gone on with
    assert 10 < server.n_requests <= 100


def test_what_may_cost_is_not_paid_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    rows = ROWS * 5000
    with pytest.raises(ConfigError, match=r"may cost about \$.*confirm=True"):
        me.evaluate(rows, ["helpfulness"], judge="openai/gpt-4o", suite="chat", quiet=True)
