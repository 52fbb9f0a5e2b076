"""The package of a job whose suite, reader, judge, candidate and memory store are a user's."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.execution.prepare.origins import check_same_run
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.run_manifest import own_code_of, prompts_of
from memray_eval.extensions import load_own_file
from memray_eval.stores.port import find_sources
from memray_eval.submission.package import make_package
from memray_eval.types import unit_id

MINE = """
import memray_eval as me

def brief(sample, response):
    return len(response.text) < 40

desk = me.suite("{{ query }}", metrics=[brief, "politeness"])

def read(path):
    return [{"query": line} for line in open(path)]

def ask(messages, judgment):
    return {"reason": "", "score": 1}

def answer(messages):
    return "hm"

class Mine:
    pass
"""
TEMPLATE = {"name": "shop", "prompt": "prompt.md", "metrics": ["my.py:brief"]}
SERVED = {"name": "c", "model": "m", "backend": "openai"}


def write_job(folder: Path, **keys: Any) -> RunConfig:
    folder.mkdir()
    (folder / "my.py").write_text(MINE)
    (folder / "prompt.md").write_text("{{ query }}!")
    (folder / "asked.jsonl").write_text('{"query": "Why?"}\n')
    job = {"dataset": "asked.jsonl", "candidates": [SERVED], "out": "s3://bucket/results", **keys}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return load_config(folder / "job.yaml")


def send(config: RunConfig, home: Path, node: Path) -> RunConfig:
    """The job on a node, which has nothing of the machine that sent it."""
    package = make_package(config, "r", {})
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(node)
    shutil.rmtree(home)
    load_own_file.cache_clear()
    sent = load_config(node / "job.yaml")
    check_same_run(config, sent)
    return sent


@pytest.mark.parametrize("suite", ["my.py:desk", TEMPLATE])
def test_it_runs_elsewhere_and_is_the_same_run(tmp_path: Path, suite: Any) -> None:
    home, node = tmp_path / "here", tmp_path / "there"
    candidate = {"name": "mine", "model": "my.py:answer"}
    config = write_job(home, suite=suite, candidates=[candidate], judge="my.py:ask")
    code, prompts = own_code_of(resolve(config)), prompts_of(resolve(config))
    sent = send(config, home, node)
    dataset = str(node / sent.dataset.removeprefix("job://"))
    spec = resolve(sent.model_copy(update={"dataset": dataset}))
    assert (own_code_of(spec), prompts_of(spec)) == (code, prompts)
    assert set(code) == {"my.py"}
    assert str(tmp_path) not in (node / "job.yaml").read_text()


def test_a_memory_store_travels_and_units_keep_their_ids(tmp_path: Path) -> None:
    home, node = tmp_path / "here", tmp_path / "there"
    candidate = SERVED | {"memory": {"store": "my.py:Mine", "k": 3}}
    config = write_job(home, suite="locomo", candidates=[candidate])
    sent = send(config, home, node)
    assert sent.candidates[0].memory.store == str(node / "files/own/0/my.py:Mine")
    assert list(find_sources(sent.candidates)) == ["my.py:Mine"]
    assert set(own_code_of(resolve(sent))) == {"my.py"}
    assert unit_id("a", config.candidates[0], "s") == unit_id("a", sent.candidates[0], "s")


def test_the_reader_travels(tmp_path: Path) -> None:
    config = write_job(tmp_path / "here", suite="chat", reader="my.py:read")
    archive = zipfile.ZipFile(io.BytesIO(make_package(config, "r", {}).data))
    path, _, function = yaml.safe_load(archive.read("job.yaml"))["reader"].partition(":")
    assert function == "read"
    assert archive.read(path).decode() == MINE
