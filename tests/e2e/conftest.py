"""One real run of the memory job on the embedded model, through the command line, that all e2e
tests look at."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from memray_eval.types import Sample
from tests.build import run_command, write_lines
from tests.conftest import REPOSITORY, shipped_samples

MAX_TOKENS = 40
TOO_LONG = "L001"


def memory_samples() -> list[Sample]:
    """A third of the shipped samples: a core without AVX-512 reads about 140 tokens a second."""
    return shipped_samples()[1::3]


@dataclass(frozen=True)
class CommandRun:
    """A finished command: its exit code, what it printed, and the folder of the run it made."""

    code: int
    out: str
    err: str
    folder: Path


@pytest.fixture(scope="session")
def memory_run(tmp_path_factory: pytest.TempPathFactory) -> CommandRun:
    """The MEMORY_SAMPLES and one whose prompt is longer than the model's window; a paid key is set,
    and not used."""
    work = tmp_path_factory.mktemp("work")
    samples = [sample.model_dump(mode="json", exclude={"suite"}) for sample in memory_samples()]
    samples.append({"id": TOO_LONG, "query": "again and " * 9000, "memory": {"name": "Ana"}})
    write_lines(work / "data.jsonl", samples)
    # A third of the prompts at once: the first are judged while the engine answers others.
    sets = (f"candidates.0.sampling.max_tokens={MAX_TOKENS}", "engine.max_num_seqs=16")
    words = [str(REPOSITORY / "jobs" / "memory.yaml"), *(f"--set={words}" for words in sets)]
    words += "--dataset data.jsonl --out out --disable-openai-tts".split()
    done = run_command("run", *words, cwd=work, OPENAI_API_KEY="sk-not-to-be-used")
    folders = list((work / "out").glob("*")) if (work / "out").exists() else []
    assert len(folders) == 1, done.stderr[-4000:]
    return CommandRun(done.returncode, done.stdout, done.stderr, folders[0])
