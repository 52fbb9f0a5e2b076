"""The command line's messages and exit codes, for all that needs no Ray."""

import io
import json
import shlex
import sys
import time
from pathlib import Path

import pytest
import typer

from memray_eval import __version__
from memray_eval.benchmarks import all_suites
from memray_eval.cli import app
from memray_eval.cli.app import for_terminal
from memray_eval.cli.options import JobOptions
from memray_eval.errors import ConfigError
from memray_eval.judges.call_cache import CallCache
from tests.build import build_call, write_lines
from tests.conftest import REPOSITORY, SAMPLES, Call

QUICKSTART = str(REPOSITORY / "jobs" / "quickstart.yaml")
RUN = f"run {QUICKSTART}"
NO_SERVER = ("--set", "judging.base_urls={openai: http://127.0.0.1:9/v1}")


def test_version(cli: Call) -> None:
    assert cli("--version")[:2] == (0, f"{__version__}\n")


def test_each_command_has_an_example_that_it_takes() -> None:
    groups = [("", typer.main.get_group(app))]
    examples = 0
    for above, group in groups:
        for name, command in group.commands.items():
            if isinstance(command, typer.core.TyperGroup):
                groups.append((f"{above}{name} ", command))
                continue
            start = f"Example: memray-eval {above}{name}"
            assert (command.epilog or "").startswith(start)
            command.make_context(name, shlex.split(str(command.epilog).removeprefix(start)))
            examples += 1
    assert examples > 25


def test_an_option_that_is_not_given_leaves_what_the_job_says() -> None:
    assert not [key for key, value in JobOptions().overrides().items() if value is not None]
    options = JobOptions(metrics="empathy, tone,", model="org/m", mapped=["query=q"], no_cache=True)
    keys = {key: value for key, value in options.overrides().items() if value is not None}
    assert keys == {
        "metrics": ["empathy", "tone"],
        "candidates.0.model": "org/m",
        "candidates.0.name": "m",
        "columns.query": "q",
        "judging.cache": "off",
    }
    with pytest.raises(ConfigError, match="it is on or off"):
        JobOptions(affect="maybe").overrides()


def test_doctor_checks_the_machine_though_the_config_is_wrong(cli: Call, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        "suite: poetry\ndataset: absent.jsonl\n"
        "candidates: [{name: a, backend: openai, model: m, base_url: 'http://localhost:1/v1'}]\n"
    )
    code, out, err = cli("doctor", str(job))
    assert (code, err) == (3, "")
    failed = [line for line in out.splitlines() if line.startswith("[fail]")]
    seen = [("absent.jsonl" in line, "no suite 'poetry'" in line) for line in failed[-2:]]
    assert seen == [(True, False), (False, True)]
    assert not any("package vllm" in line for line in failed)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("candidates: [{name: a, model: org/m, lora: no/adapter}]", "no/adapter: no such folder"),
        ("judge: rules\nmetrics: [empathy]", "nothing would be scored"),
        ("judging: {cache: /dev/null/calls.sqlite}\njudge: embedded", "/dev/null/calls.sqlite"),
    ],
)
def test_doctor_fails_for_what_a_run_refuses_before_its_start(
    cli: Call, tmp_path: Path, key: str, fault: str
) -> None:
    job = tmp_path / "job.yaml"
    model = "" if "model" in key else "candidates: [{name: a, model: org/m}]\n"
    job.write_text(f"dataset: {SAMPLES}\n{model}{key}\n")
    assert cli("run", str(job))[0] != 0
    code, out, _ = cli("doctor", str(job))
    assert code == 3
    assert any(fault in line for line in out.splitlines() if line.startswith("[fail]"))


def test_lists(cli: Call) -> None:
    listed = cli("list", "metrics")[1]
    assert "judge, best anthropic/claude-opus-4-5" in listed
    assert "no offline estimate" in listed
    assert "estimate by rules: recall 0.31, specificity 0.98, kappa 0.29 on 104" in listed
    suites = cli("list", "suites")[1].splitlines()
    assert [line.split()[0] for line in suites if line[0] != " "] == [*all_suites()]
    judges = " ".join(cli("list", "judges")[1].split())
    price = "openai/gpt-4o 2.5 10 2026-05 no key requests 500, tokens 30,000"
    assert f"{price} off from 2027-01-14 on; successor: openai/gpt-6-luna" in judges
    assert "preferred for coherence, emotional_congruence, empathy, politeness" in judges
    assert "openai/gpt-4.1 unknown unknown no key off from 2027-01-14 on" in judges
    assert "openai/gpt-4o-mini-tts" not in judges, "it is no judge"


def test_a_good_dataset_validates_and_every_problem_of_a_bad_one_is_printed(
    cli: Call, tmp_path: Path
) -> None:
    assert cli("dataset", "validate", str(SAMPLES))[:2] == (0, f"{SAMPLES}: 120 valid samples\n")
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
        ("run absent.yaml", 2, "error: no file absent.yaml"),
        ("run nolima", 2, "error: no file nolima; nolima was withdrawn: "),
        (f"{RUN} --metrics sparkle", 2, "error: no metric 'sparkle'"),
        (f"{RUN} --judge gpt", 2, "no judge 'gpt'; write auto, rules, embedded, MODEL@URL"),
        (f"{RUN} --judge openai/gpt-4o", 2, "a key in the environment variable OPENAI_API_KEY"),
        (f"{RUN} --set suite=poetry", 2, "error: no suite 'poetry'"),
        ("estimate memory --cluster c.yaml", 2, "--cluster was withdrawn: `estimate` tells calls"),
        (f"{RUN} --limit 0", 2, "--limit"),
        (f"{RUN} --set engine.replicas=50", 3, "it would wait for ever, so it is not started"),
        (f"{RUN} --dataset absent", 2, "error: no dataset at"),
        ("report absent", 2, "has no summary.json"),
        ("resume absent", 2, "has no manifest.json"),
        ("dataset validate absent", 2, "error: no dataset at absent"),
        ("view latest --label", 2, "--label was withdrawn: `calibrate RUN --sheet` writes"),
        ("view latest --queue=ana,bo", 2, "--queue was withdrawn: `calibrate RUN --sheet`"),
        ("frobnicate", 2, "No such command"),
        ("pairwise a b --all-pairs", 2, "--all-pairs was withdrawn: leave it out"),
    ],
)
def test_wrong_use_is_a_message_and_an_exit_code(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, err = cli(*words.split())
    assert ended == code
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b'{"id": "a", "query": 5}', b"{", b"", b"[]", None])
def test_a_broken_dataset_stops_a_run_with_nothing_written(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    """The kinds of broken samples are those of tests/unit/datasets/test_scan.py."""
    data, work = tmp_path / "data", tmp_path / "work"
    (data / "s0").mkdir(parents=True)
    work.mkdir()
    if content is not None:
        (data / "s0" / "sample.json").write_bytes(content)
    monkeypatch.chdir(work)
    code, out, err = cli("run", QUICKSTART, "--dataset", str(data))
    assert (code, out) == (2, "")
    assert "nothing was run:\n" in err
    assert f"{data}/s0/sample.json" in err
    assert "Traceback" not in err
    assert list(work.iterdir()) == []


def test_an_estimate_makes_no_call_and_says_what_binds(cli: Call, tmp_path: Path) -> None:
    limits = "judging.limits={openai/gpt-4o: {requests_per_min: 60}}"
    options = ("--limit", "10", "--judge", "openai/gpt-4o", "--set", limits, *NO_SERVER)
    code, out, _ = cli("estimate", QUICKSTART, *options)
    assert code == 0
    assert "bottleneck: judge: openai/gpt-4o, 60 requests/min" in out
    assert "assumed: " in out
    estimate = json.loads(cli("estimate", QUICKSTART, *options, "--json")[1])
    assert estimate["units"] == 20
    assert 180 < estimate["calls"] <= 220  # eleven judged metrics, some without what they need
    assert estimate["usd"] == pytest.approx(sum(judge["usd"] for judge in estimate["judges"]))
    offline = cli("estimate", QUICKSTART, "--judge", "rules")[1]
    assert offline.startswith("20 units, 0 judge calls, about $0.00")


def test_the_memory_of_paid_calls_is_shown_and_cleared(cli: Call, tmp_path: Path) -> None:
    path = tmp_path / "calls.sqlite"
    cache = ("--cache", str(path))
    call = build_call("k", judge="openai/j", cost_usd=0.5, created=1.0)
    CallCache(path).put([call, call.model_copy(update={"key": "l", "created": time.time()})])
    code, out, _ = cli("cache", "stats", *cache)
    assert code == 0
    assert [out.count(text) for text in ("2 calls", "$1.00", "openai/j: 2")] == [1, 1, 1]
    assert json.loads(cli("cache", "stats", *cache, "--json")[1])["entries"] == 2
    for older in (("--older-than-days", "1"), ()):
        assert cli("cache", "clear", *cache, *older)[1].endswith("1 calls forgotten\n")
    path.write_text("no database")
    code, _, err = cli("cache", "stats", *cache)
    assert (code, "memray-eval cache clear" in err) == (2, True)
    assert "deleted" in cli("cache", "clear", *cache)[1]
    assert cli("cache", "clear", "--cache", "s3://bucket/calls")[0] == 2


ROW = {"suite": "longbench", "task": "qasper", "query": "q", "answers": ["a"], "response": "a"}
JOB, NEEDS_KEY = "--config job.yaml", "judge openai/gpt-4o needs a key"
OTHER_SUITE = "is of the suite longbench, and the job is of memory"


@pytest.mark.parametrize(
    ("words", "answer", "message"),
    [
        ("", None, NEEDS_KEY),
        (JOB, None, f"{OTHER_SUITE}; nothing was judged and nothing paid"),
        (JOB, "n", f"{OTHER_SUITE}; nothing was judged"),
        (JOB, "y", NEEDS_KEY),
        (f"{JOB} --yes", None, NEEDS_KEY),
        (f"{JOB} --suite longbench", None, NEEDS_KEY),
        (f"{JOB} --metrics safety", None, NEEDS_KEY),
        (f"{JOB} --set suite=memory", None, NEEDS_KEY),
        ("--suite longbnech", None, "no suite 'longbnech'; did you mean 'longbench'? "),
        ("--judge rules mixed", None, "of 3 responses 1 name the suite memory, and all would be"),
        ("--judge rules mixed", "n", "Judge them all the same?"),
    ],
)
def test_evaluate_asks_before_it_judges_responses_as_another_suite(
    cli: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    answer: str | None,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    last = {"suite": "memory"} if "mixed" in words else {}
    rows = [{**ROW, "id": "a"}, {**ROW, "id": "b"}, {**ROW, "id": "c", **last}]
    write_lines(tmp_path / "rows.jsonl", rows)
    (tmp_path / "job.yaml").write_text(
        "suite: memory\ndataset: d\ncandidates: [{name: m, model: m}]\n"
    )
    typed = io.StringIO(f"{answer}\n" if answer else "")
    monkeypatch.setattr(typed, "isatty", lambda: answer is not None)
    monkeypatch.setattr(sys, "stdin", typed)
    judge = "" if "--judge" in words else "--judge openai/gpt-4o "
    options = f"{judge}{words}".replace("mixed", "").split()
    code, out, err = cli("evaluate", "rows.jsonl", *options)
    assert (code, out.strip()) == (2, "")
    assert message in err
    assert ("same" in err and "?" in err) == (answer is not None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.yaml", "rows.jsonl"]


def test_an_estimate_spreads_its_limit_as_a_run_does(cli: Call, tmp_path: Path) -> None:
    companion = str(REPOSITORY / "jobs" / "companion.yaml")
    long = [{"id": f"a{n}", "scenario": "basic", "query": "q " * 5000} for n in range(9)]
    short = [{"id": f"b{n}", "scenario": "small_talk", "query": "q"} for n in range(9)]
    write_lines(tmp_path / "all.jsonl", long + short)
    write_lines(tmp_path / "first.jsonl", long[:2])
    options = ("estimate", companion, *NO_SERVER, "--judge", "openai/gpt-4o", "--limit", "2")
    spread, first = (
        json.loads(cli(*options, "--dataset", str(tmp_path / f"{name}.jsonl"), "--json")[1])
        for name in ("all", "first")
    )
    assert spread["units"] == first["units"]
    assert 0.4 < spread["judges"][0]["input_tokens"] / first["judges"][0]["input_tokens"] < 0.7


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (
            "--budget-usd 1 --no-cache",
            [
                "--budget-usd (budget.usd) cannot be kept: the price of openai/own is not known",
                "--set 'judging.price={openai/own: {input_usd: NUMBER, output_usd: NUMBER}}'",
            ],
        ),
        (
            "--set judging.cache=answers.jsonl",  # no database
            ["start it anew with `memray-eval cache clear` and --cache answers.jsonl"],
        ),
    ],
    ids=["budget_of_an_unknown_price", "cache"],
)
def test_what_cannot_be_kept_is_refused_before_the_start(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, messages: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"query": "How are you?", "response": "I am well, and you?"}]
    write_lines(tmp_path / "answers.jsonl", rows)
    evaluate = "evaluate answers.jsonl --judge openai/own --metrics empathy --out out"
    code, out, err = cli(*evaluate.split(), *NO_SERVER, *words.split())
    assert (code, out) == (2, "")
    assert all(message in err for message in messages)
    assert not (tmp_path / "out").exists()


def test_an_option_that_only_another_command_lost_is_not_said_to_be_withdrawn(cli: Call) -> None:
    code, _, err = cli("compare", "a", "b", "--cluster", "user", "--no-such-option")
    assert code == 2
    assert "withdrawn" not in err


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_colours_and_whole_words_and_a_pipe_the_text(
    monkeypatch: pytest.MonkeyPatch, colour: bool
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "" if colour else "1")
    text = "error: no metric 'exact_mach'; did you mean 'exact_match'?\n"
    text += "  memray-eval list metrics of a long line"
    red, cyan, end = ("\x1b[31m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "")
    assert for_terminal(text, terminal, wraps=True).split("\n") == [
        f"{red}error: no metric 'exact_mach';{end}",
        "  did you mean 'exact_match'?",
        f"{cyan}  memray-eval list metrics of a long line{end}",
    ]
    assert for_terminal(text, io.StringIO(), wraps=True) == text
