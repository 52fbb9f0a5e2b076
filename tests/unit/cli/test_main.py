"""The command line's messages and exit codes, for all that needs no Ray."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from memray_eval import __version__
from memray_eval.cli import main
from memray_eval.judges.call_cache import CachedCall, CallCache
from tests.conftest import REPOSITORY, SAMPLES

QUICKSTART = str(REPOSITORY / "jobs" / "quickstart.yaml")


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memray-eval", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return int(ended.value.code or 0), out.out, out.err

    return call


def test_help_and_version(cli) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = cli("--help")
    assert code == 0
    assert all(word in out for word in ("run", "report", "doctor", "dataset", "list", "Exit codes"))
    assert cli("--version")[:2] == (0, f"{__version__}\n")
    assert cli("run", "--help")[0] == 0


def test_doctor_checks_the_machine_though_the_config_is_wrong(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    job = tmp_path / "job.yaml"
    job.write_text(
        "suite: poetry\ndataset: absent.jsonl\n"
        "candidates: [{name: a, backend: openai, model: m, base_url: 'http://localhost:1/v1'}]\n"
    )
    code, out, err = cli("doctor", str(job))
    assert (code, err) == (3, "")
    failed = [line for line in out.splitlines() if line.startswith("[fail]")]
    assert [("absent.jsonl" in line, "no suite 'poetry'" in line) for line in failed[-2:]] == [
        (True, False),
        (False, True),
    ]
    assert not any("package vllm" in line for line in failed)


def test_lists(cli) -> None:  # type: ignore[no-untyped-def]
    listed = cli("list", "metrics")[1]
    assert "judge, best anthropic/claude-opus-4-5" in listed
    assert "estimate by rules: none: needs a judge" in listed
    assert "estimate by rules: recall 0.84, precision 0.75 on 60 labelled responses" in listed
    suites = [
        line.split()[0]
        for line in cli("list", "suites")[1].splitlines()
        if not line.startswith(" ")
    ]
    assert suites == [
        "babilong",
        "beam",
        "chat",
        "companion",
        "graphwalks",
        "helmet",
        "infinitebench",
        "instruction",
        "locomo",
        "long_context",
        "longbench",
        "longbench2",
        "longmemeval",
        "lveval",
        "memory",
        "mrcr",
        "needles",
        "nolima",
        "pairs",
        "personamem",
        "qa",
        "text",
    ]
    judges = cli("list", "judges")[1]
    assert (
        "openai/gpt-4o                     2.5     10  2026-05     no key   requests 500, "
        "tokens 30,000" in judges
    )
    assert "preferred for coherence, emotional_congruence, empathy, politeness" in judges
    message = " ".join(judges.split())
    assert "tokens 30,000 off from 2027-01-14 on; successor: openai/gpt-6-luna" in message
    assert "openai/gpt-4.1 unknown unknown no key off from 2027-01-14 on" in message
    assert "openai/gpt-4o-mini-tts" not in message, "it is no judge"


def test_a_good_dataset_validates(cli) -> None:  # type: ignore[no-untyped-def]
    assert cli("dataset", "validate", str(SAMPLES))[:2] == (0, f"{SAMPLES}: 120 valid samples\n")


def test_every_problem_of_a_bad_dataset_is_printed_and_the_code_is_2(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b", "query": "q"}\nbroken\n')
    code, out, _ = cli("dataset", "validate", str(path))
    assert code == 2
    assert f"{path}, line 1: sample a: query: missing" in out
    assert f"{path}, line 3: broken JSON at line 1, column 1" in out
    assert out.endswith("1 valid samples, 2 invalid\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["run", "absent.yaml"], 2, "error: no file absent.yaml"),
        (["run", QUICKSTART, "--metrics", "sparkle"], 2, "error: no metric 'sparkle'"),
        (
            ["run", QUICKSTART, "--judge", "gpt"],
            2,
            "no judge 'gpt'; write auto, rules, embedded or PROVIDER/MODEL",
        ),
        (
            ["run", QUICKSTART, "--judge", "openai/gpt-4o"],
            2,
            "judge openai/gpt-4o needs a key in the environment variable OPENAI_API_KEY",
        ),
        (["run", QUICKSTART, "--set", "suite=poetry"], 2, "error: no suite 'poetry'"),
        (["run", QUICKSTART, "--limit", "0"], 2, "--limit"),
        (
            ["run", QUICKSTART, "--set", "engine.replicas=50"],
            3,
            "it would wait for ever, so it is not started",
        ),
        (["run", QUICKSTART, "--dataset", "absent"], 2, "error: no dataset at"),
        (["report", "absent"], 2, "has no summary.json"),
        (["dataset", "validate", "absent"], 2, "error: no dataset at absent"),
        (["frobnicate"], 2, "No such command"),
    ],
)
def test_wrong_use_is_a_message_and_an_exit_code(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, err = cli(*words)
    assert ended == code
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "broken",
    ["duplicate", "conflict", "absent", "type", "json", "utf8", "empty", "folder", "list", "nan"],
)
def test_ten_kinds_of_broken_dataset_stop_a_run_with_nothing_written(  # type: ignore[no-untyped-def]
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raw_sample: dict, broken: str
) -> None:
    good = json.dumps(raw_sample).encode()
    files = {
        "duplicate": [good, good],
        "conflict": [json.dumps(raw_sample | {"forbidden_keys": ["known_condition"]}).encode()],
        "absent": [json.dumps(raw_sample | {"required_keys": ["weight"]}).encode()],
        "type": [json.dumps(raw_sample | {"query": 5}).encode()],
        "json": [good[:-5]],
        "utf8": [good.replace(b"Jason", b"Jos\xe9")],
        "empty": [b""],
        "folder": [],
        "list": [b"[]"],
        "nan": [good.replace(b'"5.5"', b"NaN")],
    }[broken]
    data = tmp_path / "data"
    for index, content in enumerate(files or [good]):
        (data / f"s{index}").mkdir(parents=True)
        (data / f"s{index}" / "sample.json").write_bytes(content)
    if broken == "folder":
        (data / "s9").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    code, out, err = cli("run", QUICKSTART, "--dataset", str(data))
    assert (code, out) == (2, "")
    assert "nothing was run:\n" in err
    assert str(data) in err
    assert "sample.json" in err
    assert "Traceback" not in err
    assert list(work.iterdir()) == []


def test_an_estimate_makes_no_call_and_says_what_binds(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    limits = "judging.limits={openai/gpt-4o: {requests_per_min: 60}}"
    base = "judging.base_urls={openai: http://127.0.0.1:9/v1}"
    options = ("--limit", "10", "--judge", "openai/gpt-4o", "--set", limits, "--set", base)
    code, out, _ = cli("estimate", str(QUICKSTART), *options)
    assert code == 0
    assert "bottleneck: judge: openai/gpt-4o, 60 requests/min" in out
    assert "assumed: " in out
    estimate = json.loads(cli("estimate", str(QUICKSTART), *options, "--json")[1])
    assert estimate["units"] == 10
    assert 90 < estimate["calls"] <= 110  # eleven judged metrics, some without what they need
    assert estimate["usd"] == pytest.approx(sum(judge["usd"] for judge in estimate["judges"]))
    assert cli("estimate", str(QUICKSTART), "--judge", "rules")[1].startswith(
        "10 units, 0 judge calls, about $0.00"
    )


def test_the_memory_of_paid_calls_is_shown_and_cleared(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "calls.sqlite"
    call = CachedCall(
        key="k",
        judge="openai/j",
        judgment="{}",
        input_tokens=1,
        output_tokens=1,
        cost_usd=0.5,
        created=1.0,
    )
    CallCache(path).put([call, call.model_copy(update={"key": "l", "created": time.time()})])
    code, out, _ = cli("cache", "stats", "--cache", str(path))
    assert (code, out.count("2 calls"), out.count("$1.00"), out.count("openai/j: 2")) == (
        0,
        1,
        1,
        1,
    )
    assert json.loads(cli("cache", "stats", "--cache", str(path), "--json")[1])["entries"] == 2
    assert cli("cache", "clear", "--cache", str(path), "--older-than-days", "1")[1].endswith(
        "1 calls forgotten\n"
    )
    assert cli("cache", "clear", "--cache", str(path))[1].endswith("1 calls forgotten\n")
    path.write_text("no database")
    code, _, err = cli("cache", "stats", "--cache", str(path))
    assert (code, "memray-eval cache clear" in err) == (2, True)
    assert "deleted" in cli("cache", "clear", "--cache", str(path))[1]
    assert cli("cache", "clear", "--cache", "s3://bucket/calls")[0] == 2


def test_what_cannot_be_resumed_is_said(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = cli("resume", str(tmp_path / "none"))
    assert (code, "has no manifest.json" in err) == (2, True)


ROW = {"suite": "longbench", "task": "qasper", "query": "q", "answers": ["a"], "response": "a"}


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        ([], None, "judge openai/gpt-4o needs a key"),
        (
            ["--config", "job.yaml"],
            None,
            "is of the suite longbench, and the job is of memory; nothing was judged and nothing "
            "paid",
        ),
        (
            ["--config", "job.yaml"],
            "n",
            "is of the suite longbench, and the job is of memory; nothing was judged",
        ),
        (["--config", "job.yaml"], "y", "judge openai/gpt-4o needs a key"),
        (["--config", "job.yaml", "--yes"], None, "judge openai/gpt-4o needs a key"),
        (["--config", "job.yaml", "--suite", "longbench"], None, "judge openai/gpt-4o needs a key"),
        (["--config", "job.yaml", "--metrics", "safety"], None, "judge openai/gpt-4o needs a key"),
        (
            ["--config", "job.yaml", "--set", "suite=memory"],
            None,
            "judge openai/gpt-4o needs a key",
        ),
        (["--suite", "longbnech"], None, "no suite 'longbnech'; did you mean 'longbench'? "),
        (
            ["--judge", "rules", "mixed"],
            None,
            "of 3 responses 1 name the suite memory, and all would be judged as those of",
        ),
        (["--judge", "rules", "mixed"], "n", "Judge them all the same?"),
    ],
)
def test_evaluate_asks_before_it_judges_responses_as_another_suite(  # type: ignore[no-untyped-def]
    cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    answer: str | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {**ROW, "id": "a"},
        {**ROW, "id": "b"},
        {**ROW, "id": "c", "suite": "memory" if "mixed" in words else "longbench"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "job.yaml").write_text(
        "suite: memory\ndataset: d\ncandidates: [{name: m, model: m}]\n"
    )
    typed = io.StringIO(f"{answer}\n" if answer else "")
    monkeypatch.setattr(typed, "isatty", lambda: answer is not None)
    monkeypatch.setattr(sys, "stdin", typed)
    judge = [] if "--judge" in words else ["--judge", "openai/gpt-4o"]
    code, out, err = cli(
        "evaluate", "rows.jsonl", *judge, *(word for word in words if word != "mixed")
    )
    assert (code, out.strip()) == (2, "")
    assert message in err
    assert ("same" in err and "?" in err) == (answer is not None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "rows.jsonl"]


def test_an_estimate_spreads_its_limit_as_a_run_does(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    companion = str(REPOSITORY / "jobs" / "companion.yaml")
    long = [{"id": f"a{n}", "scenario": "basic", "query": "q " * 5000} for n in range(9)]
    short = [{"id": f"b{n}", "scenario": "small_talk", "query": "q"} for n in range(9)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, long + short)))
    command = (
        "--judge",
        "openai/gpt-4o",
        "--set",
        "judging.base_urls={openai: http://127.0.0.1:9/v1}",
    )
    options = (
        "estimate",
        companion,
        "--dataset",
        str(tmp_path / "d.jsonl"),
        *command,
        "--limit",
        "2",
        "--json",
    )
    spread, first = (
        json.loads(cli(*options, "--set", f"limit_order={order}")[1])
        for order in ("spread", "first")
    )
    assert spread["units"] == first["units"]
    assert 0.4 < spread["judges"][0]["input_tokens"] / first["judges"][0]["input_tokens"] < 0.7


def given_answers(folder: Path) -> list[str]:
    path = folder / "answers.jsonl"
    path.write_text(json.dumps({"query": "How are you?", "response": "I am well, and you?"}) + "\n")
    server = "judging.base_urls={openai: http://127.0.0.1:9/v1}"
    return [
        "evaluate",
        str(path),
        "--judge",
        "openai/own",
        "--metrics",
        "empathy",
        "--out",
        str(folder / "out"),
        "--set",
        server,
    ]


def test_a_budget_in_dollars_is_refused_where_a_price_is_not_known(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = cli(*given_answers(tmp_path), "--budget-usd", "1", "--no-cache")
    assert (code, out) == (2, "")
    assert "--budget-usd (budget.usd) cannot be kept: the price of openai/own is not known" in err
    assert "--set 'judging.price={openai/own: {input_usd: NUMBER, output_usd: NUMBER}}'" in err
    assert not (tmp_path / "out").exists()


def test_a_cache_that_cannot_be_used_is_refused_before_the_start(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    cache = tmp_path / "calls.sqlite"
    command = [*given_answers(tmp_path), "--set", f"judging.cache={cache}"]
    cache.write_text("no database")
    code, out, err = cli(*command)
    assert (code, out) == (2, "")
    assert f"start it anew with `memray-eval cache clear` and --cache {cache}" in err
    cache.unlink()
    CallCache(cache).close()
    with closing(sqlite3.connect(cache)) as newer:
        newer.execute("PRAGMA user_version = 9")
    code, _, err = cli(*command)
    assert (
        code,
        "was written by a newer memray-eval (version 9; this one reads 1): update memray-eval"
        in err,
    ) == (2, True)
    assert not (tmp_path / "out").exists()
