"""The package of a job whose suite, reader, judge and candidate are a user's."""

import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from memray_eval.config.loading import load_config
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
"""
TEMPLATE = {"name": "shop", "prompt": "prompt.md", "metrics": ["my.py:brief"]}


@pytest.mark.parametrize("suite", ["my.py:desk", TEMPLATE])
def test_it_runs_elsewhere_and_is_the_same_run(tmp_path: Path, suite: Any) -> None:
    source_folder = tmp_path / "here"
    source_folder.mkdir()
    (source_folder / "my.py").write_text(MINE)
    (source_folder / "prompt.md").write_text("{{ query }}!")
    (source_folder / "asked.jsonl").write_text('{"query": "Why?"}\n')
    job = {
        "suite": suite,
        "dataset": "asked.jsonl",
        "candidates": [{"name": "mine", "model": "my.py:answer"}],
        "judge": "my.py:ask",
        "out": "s3://bucket/results",
    }
    (source_folder / "job.yaml").write_text(yaml.safe_dump(job))
    config = load_config(source_folder / "job.yaml")
    code, prompts = own_code_of(resolve(config)), prompts_of(resolve(config))
    package = make_package(config, "r", {})
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(tmp_path / "there")
    shutil.rmtree(source_folder)
    load_own_file.cache_clear()
    sent = load_config(tmp_path / "there" / "job.yaml")
    check_same_run(config, sent)
    dataset = str(tmp_path / "there" / sent.dataset.removeprefix("job://"))
    spec = resolve(sent.model_copy(update={"dataset": dataset}))
    assert (own_code_of(spec), prompts_of(spec)) == (code, prompts)
    assert set(code) == {"my.py"}
    assert str(tmp_path) not in (tmp_path / "there" / "job.yaml").read_text()


def test_a_memory_store_travels_and_units_keep_their_ids(tmp_path: Path) -> None:
    home, node = tmp_path / "here", tmp_path / "there"
    home.mkdir()
    (home / "my.py").write_text("class Mine:\n    pass\n")
    (home / "asked.jsonl").write_text('{"query": "Why?"}\n')
    memory = {"store": "my.py:Mine", "k": 3}
    job = {
        "suite": "locomo",
        "dataset": "asked.jsonl",
        "candidates": [{"name": "c", "model": "m", "backend": "openai", "memory": memory}],
        "out": "s3://bucket/results",
    }
    (home / "job.yaml").write_text(yaml.safe_dump(job))
    config = load_config(home / "job.yaml")
    package = make_package(config, "r", {})
    zipfile.ZipFile(io.BytesIO(package.data)).extractall(node)
    shutil.rmtree(home)
    sent = load_config(node / "job.yaml")
    check_same_run(config, sent)
    assert sent.candidates[0].memory is not None
    assert sent.candidates[0].memory.store == str(node / "files/own/0/my.py:Mine")
    assert list(find_sources(sent.candidates)) == ["my.py:Mine"]
    assert set(own_code_of(resolve(sent))) == {"my.py"}
    assert unit_id("a", config.candidates[0], "s") == unit_id("a", sent.candidates[0], "s")


def test_the_reader_travels(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(MINE)
    (tmp_path / "asked.txt").write_text("Why?\n")
    job = {
        "suite": "chat",
        "reader": "my.py:read",
        "dataset": "asked.txt",
        "candidates": [{"name": "a", "model": "m"}],
        "out": "s3://bucket/results",
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    package = make_package(load_config(tmp_path / "job.yaml"), "r", {})
    archive = zipfile.ZipFile(io.BytesIO(package.data))
    sent = yaml.safe_load(archive.read("job.yaml"))
    path, _, function = sent["reader"].partition(":")
    assert function == "read"
    assert archive.read(path).decode() == MINE
