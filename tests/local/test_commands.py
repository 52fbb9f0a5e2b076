"""Commands from a fresh folder: `demo` is computed from what is shipped; what `init` makes runs,
as it is and on one's own file; `generate`, then `evaluate`; and a file more is a metric more."""

import json
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from memray_eval.benchmarks import get_suite
from memray_eval.results.run_folder import RunFolder
from tests.build import Job, run_command, run_module, write_lines
from tests.conftest import REPOSITORY, Call
from tests.servers.provider import serving

DEMO = REPOSITORY / "dataset" / "demo"


def read_lines(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (DEMO / name).read_text("utf-8").splitlines()]


def test_what_it_prints_is_computed_from_what_is_shipped(tmp_path: Path) -> None:
    done = ran("demo", cwd=tmp_path)
    uses = {verdict["response"]: set(verdict["uses"]) for verdict in read_lines("verdicts.jsonl")}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    leaks: Counter[str] = Counter()
    for row in read_lines("answers.jsonl"):
        used = uses[row["response"]]
        required, forbidden = (set(row.get(f"{of}_keys", ())) for of in ("required", "forbidden"))
        counts[row["model"]] += Counter(
            tp=len(used & required), fp=len(used & forbidden), fn=len(required - used)
        )
        leaks[row["model"]] += bool(used & forbidden)
    (path,) = (tmp_path / "results").iterdir()
    figures = {
        row.candidate: row.micro["f1"]
        for row in RunFolder(str(path)).read_summary().metrics
        if row.metric == "memory_utilization"
    }
    f1 = {name: 2 * n["tp"] / (2 * n["tp"] + n["fp"] + n["fn"]) for name, n in counts.items()}
    assert figures == pytest.approx(f1)
    assert all(of["eager"] > of["careful"] for of in (f1, leaks))
    for name, n in leaks.items():
        assert f"{name} reveals what it must not in {n} of 40 answers" in done.stdout
    assert f"open results/{path.name}/report.html" in done.stdout
    assert "caught it from him" in (path / "report.html").read_text("utf-8")


def test_each_recorded_quote_is_of_its_answer() -> None:
    for verdict in read_lines("verdicts.jsonl"):
        assert all(quote in verdict["response"] for quote in verdict["uses"].values())


def ran(*words: str, cwd: Path, **environment: str) -> CompletedProcess[str]:
    done = run_command(*words, cwd=cwd, **environment)
    assert done.returncode == 0, done.stderr
    return done


def means(folder: Path) -> dict[str, float | None]:
    (run,) = (folder / "results").glob("*/summary.json")
    return {row.metric: row.mean for row in RunFolder(str(run.parent)).read_summary().metrics}


def test_what_it_makes_runs_and_its_test_passes(tmp_path: Path) -> None:
    job = Path("demo", "job.yaml")
    assert f"  memray-eval run {job}\n" in ran("init", "demo", cwd=tmp_path).stderr
    ran("run", str(job), cwd=tmp_path)
    figures = means(tmp_path)
    assert figures.keys() == {"brief", "readability_score"}
    assert figures["brief"] == 1.0
    tested = run_module("pytest", "-q", "-p", "no:cacheprovider", "demo", cwd=tmp_path)
    assert tested.returncode == 0, tested.stdout
    again = run_command("init", "demo", cwd=tmp_path)
    assert again.returncode == 2
    assert again.stderr == "error: demo is there already; name another folder\n"


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("question,answer,ticket", []),
        ("query,response,ticket", []),
        ('"Frage, lang",Text,Zahl', ["--map", "query=Frage, lang,response=Text"]),
    ],
)
def test_a_file_of_ones_own_is_taken_where_it_lies(
    tmp_path: Path, head: str, more: list[str]
) -> None:
    (tmp_path / "my file.csv").write_text(f"{head}\nHi?,Hello you.,7\nWhy?,Because.,8\n")
    ran("init", "a/b", "--from", "my file.csv", *more, cwd=tmp_path)
    ran("run", "a/b/job.yaml", cwd=tmp_path)
    assert means(tmp_path)["brief"] == 1.0


def test_a_file_that_is_not_there_or_says_nothing_is_told(tmp_path: Path) -> None:
    missing = run_command("init", "a", "--from", "nope.csv", cwd=tmp_path)
    assert (missing.returncode, missing.stderr) == (2, "error: no file nope.csv\n")
    (tmp_path / "odd.csv").write_text("x,y\n1,2\n")
    odd = run_command("init", "a", "--from", "odd.csv", cwd=tmp_path)
    assert odd.returncode == 2
    assert "Its columns: x, y. Say which is which" in odd.stderr
    assert not (tmp_path / "a").exists()


def test_responses_are_written_and_then_judged(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(lambda body: "Rest more, and ask your doctor.") as server:
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(job(server, limit=4).model_dump(mode="json")))
        code, out, _ = cli("generate", str(path), "--json")
        assert code == 0
        folder, responses = map(Path, out.splitlines())
        written = json.loads(responses.read_text())
        assert (written["model"], len(written["results"])) == ("served", 4)
        assert not list(folder.glob("scores*"))
        n_requests = len(server.requests)
        keys = {"model": "openai/hashed", "base_url": server.base_url}
        settings = [f"--set=embedding.{key}={value}" for key, value in keys.items()]
        for source in (folder, responses):
            metrics = ("--metrics", "relevance,memory_utilization", "--judge", "rules")
            code, out, err = cli("evaluate", str(source), *metrics, "--json", *settings)
            assert code == 0
            assert out.splitlines()[0].startswith("memory: 4 answers of served (m)")
            assert "\nrelevance " in out
            assert "generate" not in err
            evaluation = json.loads(Path(err.splitlines()[-1]).read_text())
            assert set(evaluation["results"][0]["scores"]) == {"relevance", "memory_utilization"}
            assert evaluation["summary"]["n_units"] == 4
            (candidate,) = evaluation["summary"]["candidates"]
            assert candidate["candidate"] == "served"
        assert len(server.requests) == n_requests  # nothing was generated again


def test_a_companion_run_is_evaluated_as_one_and_a_metric_that_applies_to_nothing_ends_with_1(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    companion = get_suite("companion")
    with serving(lambda body: "That sounds hard. What happened?") as server:
        path = tmp_path / "job.yaml"
        dataset = str(REPOSITORY / "dataset" / "companion")
        keys = {"suite": "companion", "dataset": dataset, "metrics": [], "limit": 6}
        path.write_text(yaml.safe_dump(job(server, **keys).model_dump(mode="json")))
        code, out, _ = cli("generate", str(path), "--json")
        assert code == 0
        folder, responses = map(Path, out.splitlines())
    for source in (folder, responses):
        code, _, err = cli("evaluate", str(source), "--judge", "rules")
        assert (code, "nothing would be scored: overall_quality, " in err) == (2, True)
        code, _, err = cli("evaluate", str(source), "--metrics", "readability_score", "--json")
        assert (code, "Suite companion, that of " in err) == (0, True)
        evaluation = json.loads(Path(err.splitlines()[-1]).read_text())
        assert all(set(row["scores"]) == {"readability_score"} for row in evaluation["results"])
        assert evaluation["summary"]["suite"] == "companion"
        # Six samples, one of each
        assert {row["task"] for row in evaluation["summary"]["tasks"]} == set(companion.tasks)
    named = ("--metrics", "readability_score,exact_match")
    code, _, err = cli("evaluate", str(folder), *named)
    assert code == 1
    why = "(the sample has no answers; --map answers=COLUMN names a column of them)"
    assert f"warning: exact_match applied to none of 6 responses {why}" in err
    assert "more than the tolerance allows" not in err


BREVITY = '''
"""Brevity: is the response short? 1 for up to ten words, 0 for more. An empty response is short."""

from memray_eval.metric import ComputedMetric, MetricValue


def measure(sample, response):
    return MetricValue(value=float(len(response.text.split()) <= 10))


METRIC = ComputedMetric(title="BREVITY", value_label="Brevity", scale=(0, 1), measure=measure)
'''


def test_one_file_is_a_metric(tmp_path: Path) -> None:
    package = tmp_path / "copy" / "memray_eval"
    shutil.copytree(REPOSITORY / "memray_eval", package)
    (package / "metrics" / "assistant" / "brevity.py").write_text(BREVITY)
    texts = {"a": "Rest.", "b": "word " * 20}
    rows = [{"id": name, "query": "q", "response": text} for name, text in texts.items()]
    write_lines(tmp_path / "rows.jsonl", rows)

    def cli(*words: str) -> str:
        return ran(*words, cwd=tmp_path, PYTHONPATH=str(package.parent)).stdout

    assert "  brevity  (0 to 1; computed)" in cli("list", "metrics")
    summary = cli(*"evaluate rows.jsonl --metrics brevity --judge rules --out out".split())
    assert "\nbrevity   0.500 " in summary
    (folder,) = (tmp_path / "out").iterdir()
    assert cli("report", f"out/{folder.name}") == summary
    assert "[1] BREVITY" in cli("report", str(folder), "--full")
