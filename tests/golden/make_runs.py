"""Makes the stored run folders of tests/golden/runs: `python -m tests.golden.make_runs [NAME ...]`.

They are runs as the product writes them, one a family of suites and one a way for a run to end,
made against a local server. Remake one only when the format of run folders changes: the goldens
are what the product makes of them."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from memray_eval.cli import app
from memray_eval.config.loading import load_config
from memray_eval.execution.runs import resume, run
from memray_eval.results.run_folder import RunFolder
from tests import build
from tests.build import GIVEN, write_lines
from tests.conftest import REPOSITORY, SAMPLES
from tests.servers.judgments import reply_to
from tests.servers.provider import Fault, Outcome, Provider, serving

PORT = 18080  # records hold the address
STORED = Path(__file__).parent / "runs"
MEMORY = ("H001", "H002", "H010", "H024", "H037", "H058", "H072", "H101")
TWELVE_AND_MORE = ["memory_utilization", "groundedness", "relevance", "coherence", "empathy"]
Make = Callable[[Path, Provider], str]


def reply(body: dict[str, Any]) -> str | Outcome:
    """Prose for a candidate, another for each model; a valid judgment for a judge. The model
    `broken` fails every third question, and the judge `moody` every fourth."""
    size = len(json.dumps(body["messages"]))
    if body["model"] == "broken" and size % 3 == 0:
        return Fault(400, code="invalid_request")
    if body["model"] == "moody" and size % 4 == 0:
        return Fault(400, code="invalid_request")
    return reply_to(body, words=30 if body["model"] == "wordy" else 12)


def served(server: Provider, *models: str, **keys: Any) -> dict[str, Any]:
    """A job that asks models of the local server, and its judge `local`."""
    candidates = [build.served(server, model, model=model) for model in models]
    judging = {"cache": "off", "base_urls": {"openai": server.base_url}, "tries": 1}
    return {
        "candidates": candidates,
        "embedding": {"model": "openai/hashed", "base_url": server.base_url},
        "judge": "openai/local",
        "executor": "local",
        "tolerance": 1.0,
        **keys,
        "judging": judging | keys.get("judging", {}),
    }


def existing(rows: list[dict[str, Any]], path: Path, **keys: Any) -> dict[str, Any]:
    """A job that scores responses which exist already."""
    dataset = str(write_lines(path, rows))
    own = {"dataset": dataset, "candidates": [GIVEN], "executor": "local", "tolerance": 1.0}
    return own | keys


def complete(work: Path, name: str, job: dict[str, Any]) -> str:
    """Runs a job to its end and returns its folder."""
    config = load_config(None, job | {"out": str(work / "results")})
    return run(config, lambda text: None, quiet=True, run_id=name).folder.path


def memory_dataset(work: Path) -> str:
    for name in MEMORY:
        shutil.copytree(SAMPLES / name, work / "samples" / name, dirs_exist_ok=True)
    return str(work / "samples")


def make_memory(work: Path, server: Provider) -> str:
    job = served(server, "terse", dataset=memory_dataset(work), suite="memory")
    return complete(work, "memory", job)


def make_memory_wordy(work: Path, server: Provider) -> str:
    job = served(server, "wordy", dataset=memory_dataset(work), suite="memory")
    return complete(work, "memory-wordy", job)


def make_companion(work: Path, server: Provider) -> str:
    job = served(server, dataset=str(REPOSITORY / "dataset/companion"), suite="companion", limit=12)
    job["candidates"] = [
        build.served(server, name, model="terse", prompt=name) for name in ("default", "plain")
    ]
    return complete(work, "companion-prompts", job)


def make_text(work: Path, server: Provider) -> str:
    job = served(
        server, "wordy", "terse", dataset=str(REPOSITORY / "dataset/text"), suite="text", limit=6
    )
    job["candidates"] = [
        {**job["candidates"][0], "name": f"wordy-t{t:g}", "sampling": {"temperature": t}}
        for t in (0.0, 0.5, 1.0)
    ]
    return complete(work, "text-sweep", job)


def make_instruction(work: Path, server: Provider) -> str:
    job = served(
        server, "wordy", "terse", dataset=str(REPOSITORY / "dataset/instruction"),
        suite="instruction", judge="rules", limit=18,
    )  # fmt: skip
    return complete(work, "instruction", job)


def make_longbench(work: Path, server: Provider) -> str:
    """Judged answers, of which string match scores those without a verdict."""
    lines = (REPOSITORY / "dataset/longbench/examples.jsonl").read_text("utf-8").splitlines()
    rows = [
        record | {"response": record["answers"][0] if number % 3 else "I do not know."}
        for number, record in enumerate(json.loads(line) for line in lines)
    ]
    job = served(server, judge="openai/moody", suite="longbench",
                 judging={"on_judge_failure": "string_match"})  # fmt: skip
    job |= existing(rows, work / "longbench.jsonl", metrics=[])
    return complete(work, "longbench", job)


def make_needles(work: Path, server: Provider) -> str:
    job = served(
        server, "wordy", dataset=str(REPOSITORY / "dataset/needles"), suite="needles",
        judge="rules", limit=20,
    )  # fmt: skip
    return complete(work, "needles", job)


def make_jury(work: Path, server: Provider) -> str:
    job = served(
        server, "terse", dataset=memory_dataset(work), suite="memory", metrics=TWELVE_AND_MORE,
        judge=["openai/local", "openai/second", "openai/third"], judging={"repeats": 2},
    )  # fmt: skip
    return complete(work, "jury", job)


def make_errors(work: Path, server: Provider) -> str:
    job = served(
        server, "broken", "terse", dataset=memory_dataset(work), suite="memory",
        metrics=TWELVE_AND_MORE, judge="openai/moody",
    )  # fmt: skip
    return complete(work, "errors", job)


def make_resumed(work: Path, server: Provider) -> str:
    """Interrupted by failing units and gone on with when the server answers again."""
    job = served(server, "broken", dataset=memory_dataset(work), suite="memory",
                 metrics=TWELVE_AND_MORE)  # fmt: skip
    folder = complete(work, "resumed", job)
    before, server.reply = server.reply, lambda body: reply({**body, "model": "terse"})
    try:
        resume(folder, lambda text: None, quiet=True)
    finally:
        server.reply = before
    return folder


def make_arms(work: Path, server: Provider) -> str:
    job = served(server, dataset=str(REPOSITORY / "dataset/locomo"), suite="locomo", metrics=[])
    arms = {"contexts": ["full", "none", "retrieved"], "retrieved": {"k": 2}}
    job["candidates"] = [build.served(server, "wordy", model="wordy", **arms)]
    return complete(work, "arms", job)


def make_pairs(work: Path, server: Provider) -> str:
    words = [str(STORED / "memory"), str(STORED / "memory-wordy"), "--judge", "openai/local"]
    keys = ["judging.cache=off", "executor=local", f"judging.base_urls.openai={server.base_url}"]
    flags = ["--metric", "preference", "--yes", "--out", str(work / "results"), "--run-id", "pairs"]
    sets = [part for key in keys for part in ("--set", key)]
    done = CliRunner().invoke(app, ["pairwise", *words, *flags, *sets])
    assert done.exit_code == 0, done.output
    return str(work / "results" / "pairs")


MAKERS: dict[str, Make] = {
    name.removeprefix("make_"): make
    for name, make in list(globals().items())
    if name.startswith("make_")
}


def store(folder: str, work: Path) -> None:
    """Keeps a run folder beside this file, without this machine's paths."""
    target = STORED / Path(folder).name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(".lock", "log*.jsonl"))
    for file in target.rglob("*"):
        if file.suffix in (".json", ".yaml", ".txt", ".jsonl"):
            text = file.read_text("utf-8").replace(str(work), "/data")
            text = text.replace(str(REPOSITORY), "/repository").replace(str(STORED), "/runs")
            file.write_text(text, "utf-8")
    RunFolder(str(target)).read_summary()


def main(names: list[str]) -> None:
    os.environ.setdefault("OPENAI_API_KEY", "none")
    with tempfile.TemporaryDirectory() as temporary, serving(reply, port=PORT) as server:
        work = Path(temporary)
        for name in names or list(MAKERS):
            folder = MAKERS[name](work, server)
            store(folder, work)
            print(f"{name}: {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
