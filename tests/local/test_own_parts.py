"""Whole runs whose reader, suite, metrics, judge and candidate are a user's, in one file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import memray_eval as me
from memray_eval.config.loading import load_config
from memray_eval.errors import ConfigError, DataError
from memray_eval.execution.session import RunResult
from tests.build import GIVEN, finish, go_on, run_command, write_lines

MINE = """
from pathlib import Path

import memray_eval as me

CALLS = []

def brief(sample, response):
    return len(response.text) < 40

tone = me.judge_metric("tone", rubric="How warm is it, 1 to 5?")

desk = me.suite(
    lambda sample: f"A customer asks: {sample.query}",
    metrics=[brief, tone],
    system="You work for {{ metadata.company }}.",
    adapt=lambda row: {"query": row["ask"], "id": row["nr"], "metadata": {"company": row["firm"]}},
)

def read(path):
    for number, line in enumerate(Path(path).read_text().splitlines()):
        if line.startswith("!"):
            raise OSError("the export is cut off")
        yield {"ask": line, "nr": str(number), "firm": "ACME"}

async def ask(messages, judgment):
    CALLS.append(messages)
    return judgment(reason="warm", score=4), {"input_tokens": 100, "output_tokens": 10}

def silent(messages, judgment):
    raise PermissionError("no key for the desk")

def odd(messages, judgment):
    return 7

def answer(messages):
    if "walk" in messages[-1]["content"]:
        raise ValueError("no legs")
    return f"<think>hm</think>{messages[0]['content']} {messages[-1]['content']}"

def number(messages):
    return 7
"""


LOUD = """
import sys

def quits(sample, response):
    print("LOUD")
    sys.exit(0)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scratch folder with a user's file and questions, in a folder of the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "my.py").write_text(MINE)
    (tmp_path / "mine" / "asked.txt").write_text("Why so late?\nMay I sleep?\n")
    return tmp_path / "mine"


def run_job(folder: Path, **keys: Any) -> RunResult:
    job = {
        "suite": "my.py:desk",
        "dataset": "asked.txt",
        "reader": "my.py:read",
        "candidates": [{"name": "mine", "model": "my.py:answer"}],
        "judge": "my.py:ask",
        "judging": {"cache": str(folder / "calls.sqlite"), "tries": 1},
        "out": "results",
        **keys,
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return finish(load_config(folder / "job.yaml"))


def records(done: RunResult) -> list[Any]:
    rows = done.folder.each()
    return sorted(rows, key=lambda record: record.sample.id)


def errors(done: RunResult) -> set[str | None]:
    return {score.error for record in records(done) for score in record.scores}


def test_all_of_them_in_one_run(folder: Path) -> None:
    done = run_job(folder, judging={"price": {"my/ask": {"input_usd": 10, "output_usd": 0}}})
    first, second = records(done)
    assert first.response.text == "You work for ACME. A customer asks: Why so late?"
    assert (first.response.thinking, first.sample.suite) == ("hm", "desk")
    by_name = {metric.metric: metric for metric in done.summary.metrics}
    assert (by_name["tone"].mean, by_name["tone"].judges) == (4.0, {"my/ask": 2})
    assert by_name["brief"].mean == 0.0
    cost = sum(score.cost_usd for record in (first, second) for score in record.scores)
    assert cost == pytest.approx(2 * 100 * 10 / 1e6)
    manifest = done.folder.read_manifest()
    assert set(manifest["own_code"]) == {"my.py"}
    assert "-asked-desk-" in manifest["run_id"]


def test_what_it_wrote_is_evaluated_and_a_function_answers_its_samples(folder: Path) -> None:
    done = run_job(folder)
    suite, judging = "mine/my.py:desk", {"cache": str(folder / "calls.sqlite")}
    keys: dict[str, Any] = {"judge": "mine/my.py:ask", "quiet": True, "judging": judging}
    again = me.evaluate(done.folder.path, suite=suite, **keys)
    assert again.summary.metrics[1].mean == 4.0
    data, reader = folder / "asked.txt", "mine/my.py:read"
    generated = me.evaluate(data, suite=suite, reader=reader, model=lambda sample: "hm", **keys)
    assert [metric.n_scored for metric in generated.summary.metrics] == [2, 2]


def test_a_fallback_and_a_model_on_the_command_line_are_found(folder: Path) -> None:
    fallbacks = {"fallbacks": ["my.py:ask"], "cache": str(folder / "calls.sqlite"), "tries": 1}
    done = run_job(folder, judge="my.py:silent", judging=fallbacks)
    assert done.summary.metrics[1].judges == {"my/ask": 2}
    config = load_config(folder / "job.yaml", {"candidates.0.model": "mine/my.py:number"})
    assert config.servers["my"].code == str(folder / "my.py")


def test_what_they_raise_is_an_error_of_its_unit(folder: Path) -> None:
    (folder / "asked.txt").write_text("May I walk?\nMay I sleep?\n")
    done = run_job(folder, judge={"tone": "my.py:silent"}, tolerance=1.0)
    walk, sleep = records(done)
    assert walk.response.error == "ValueError: no legs"
    (tone,) = [score for score in sleep.scores if score.metric == "tone"]
    assert tone.error == "Unavailable: silent raised PermissionError: no key for the desk"
    log = (Path(done.folder.path) / "log.jsonl").read_text()
    assert "no key for the desk" not in log  # an exception may quote what was judged


def test_what_they_return_that_is_none_says_so(folder: Path) -> None:
    done = run_job(folder, judge="my.py:odd", tolerance=1.0)
    assert "JudgeError: odd returned int: no judgment, mapping or text" in errors(done)
    model = [{"name": "n", "model": "my.py:number"}]
    answers = [record.response for record in records(run_job(folder, candidates=model))]
    assert {of.error for of in answers} == {"TypeError: returned int, not a text"}


def test_a_resumed_run_refuses_a_changed_file(folder: Path) -> None:
    done = run_job(folder)
    assert go_on(done.folder.path).exit_code == 0
    (folder / "my.py").write_text(MINE.replace("score=4", "score=5"))
    with pytest.raises(ConfigError, match=r"the code of my\.py was"):
        go_on(done.folder.path)


def test_a_changed_judge_is_asked_anew(folder: Path) -> None:
    assert run_job(folder).summary.metrics[1].mean == 4.0
    written = (folder / "my.py").stat()
    (folder / "my.py").write_text(MINE.replace("score=4", "score=5"))
    # As if within the same second: Python's bytecode tells files apart by it and their size
    os.utime(folder / "my.py", ns=(written.st_atime_ns, written.st_mtime_ns))
    assert run_job(folder).summary.metrics[1].mean == 5.0


TEMPLATE = {
    "name": "shop",
    "prompt": "prompt.md",
    "system": "You sell to {{ memory.name }}.",
    "metrics": ["my.py:brief", {"name": "tone", "rubric": "tone.md"}],
    "max_tokens": 9,
}


@pytest.fixture
def shop(folder: Path) -> dict[str, Any]:
    """The keys of a job with a template for a suite."""
    (folder / "prompt.md").write_text("{{ query }} ({{ task }})")
    (folder / "tone.md").write_text("How warm is it, 1 to 5?")
    rows = [{"query": "Hats?", "task": "hat", "memory": {"name": "Ana"}}, {"query": "Shoes?"}]
    write_lines(folder / "rows.jsonl", rows)
    return {"suite": TEMPLATE, "reader": None, "dataset": "rows.jsonl", "tolerance": 1.0}


def test_a_template_is_a_suite(folder: Path, shop: dict[str, Any]) -> None:
    done = run_job(folder, **shop)
    first, second = records(done)
    assert first.response.text == "You sell to Ana. Hats? (hat)"
    assert second.response.error.startswith("no prompt can be built: UndefinedError")
    assert [metric.metric for metric in done.summary.metrics] == ["brief", "tone"]
    assert done.summary.suite == "shop"


def test_a_resumed_run_refuses_a_changed_template(folder: Path, shop: dict[str, Any]) -> None:
    done = run_job(folder, **shop)
    (folder / "prompt.md").write_text("{{ query }}!")
    with pytest.raises(ConfigError, match="the prompt of suite shop was"):
        go_on(done.folder.path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"suite": "my.py:brief"}, r"brief is function, no suite; write NAME = memray_eval\.suite"),
        ({"suite": "my.py:nothing"}, r"my\.py defines no 'nothing'; it has: "),
        ({"suite": "chatt"}, r"no suite 'chatt'; did you mean 'chat'\? One of your own is FILE"),
        ({"judge": "my.py:nobody"}, r"defines no 'nobody'"),
        ({"judge": "my.py:CALLS"}, r"judge my/CALLS: CALLS of .*my\.py is no function"),
        ({"judge": "theirs.py:ask"}, r"no file .*theirs\.py"),
        ({"candidates": [{"name": "a", "model": "my.py:CALLS"}]}, r"CALLS of .* is no function"),
        (
            {"candidates": [{"name": "a", "model": "his/answer", "backend": "code"}]},
            r"no code answers as 'his/answer'; write the model as my_model\.py:FUNCTION",
        ),
        ({"servers": {"my": {"url": "http://localhost/v1"}}}, r"there is another server 'my'"),
        ({"servers": {"a": {"url": "http://a/v1", "code": "my.py"}}}, "write either url or code"),
        ({"reader": "my.py:nobody"}, "defines no 'nobody'"),
        ({"reader": "my.py"}, r"is no function; write my_reader\.py:FUNCTION"),
    ],
)
def test_what_is_not_there_is_named(folder: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        run_job(folder, **keys)
    assert not list(Path("results").glob("*/manifest.json"))


def test_a_reader_that_fails_says_after_which_row(folder: Path) -> None:
    (folder / "asked.txt").write_text("Why?\n!\n")
    message = r"my\.py:read failed after 1 rows of .*asked\.txt: OSError: the export is cut off"
    with pytest.raises(DataError, match=message):
        run_job(folder)


def test_what_own_code_prints_or_quits_does_not_reach_the_json(folder: Path) -> None:
    (folder / "loud.py").write_text(LOUD)
    (folder / "rows.jsonl").write_text('{"id": "a", "query": "q", "response": "r"}\n')
    job = {"dataset": "rows.jsonl", "candidates": [GIVEN], "executor": "local", "tolerance": 1.0}
    job |= {"metrics": ["loud.py:quits"]}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    for words in (["run", str(folder / "job.yaml")], ["resume", "latest"]):
        done = run_command(*words, "--json")
        assert done.returncode == 0, done.stderr
        assert "sys.exit(0)" in str(json.loads(done.stdout))
        assert "LOUD\n" in done.stderr
