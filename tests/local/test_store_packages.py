"""The real packages of memory stores, where they are installed (the extras mem0 and graphiti), with
the local embedding model; a server of the test extracts graphiti's facts."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.errors import ConfigError
from memray_eval.stores.port import build_store, find_sources
from memray_eval.types import Candidate, Memory
from tests.build import Job, finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import serving

PACKAGES = {"mem0": "mem0", "graphiti": "graphiti_core"}
TOLD = (SpokenTurn("1", "Ann", "I went to a pottery class in Lisbon."),
        SpokenTurn("2", "Bob", "My dog Rex is ill."))  # fmt: skip
NAMES = re.compile(r"\b(Ann|Bob|Lisbon|Rex)\b")


def need(name: str) -> None:
    """Skips where the package is not installed. It is imported by its store, which has it say
    nothing to its makers."""
    if importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"the extra {name} is not installed")


def extract(body: dict[str, Any]) -> str:
    """What a model makes of graphiti's prompts: who said what."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("name")
    text = body["messages"][-1]["content"]
    if schema == "ExtractedEntities":
        names = dict.fromkeys(NAMES.findall(text))
        return json.dumps(
            {"extracted_entities": [{"name": name, "entity_type_id": 0} for name in names]}
        )
    if schema == "ExtractedEdges":
        about = {"Ann": "Lisbon", "Bob": "Rex"}
        edges = [
            {"source_entity_name": who, "target_entity_name": about[who], "relation_type": "SAID",
             "fact": f"{who}: {phrase}"}
            for who, phrase in dict.fromkeys(re.findall(r"(Ann|Bob): ([^\n]+)", text))
        ]  # fmt: skip
        return json.dumps({"edges": edges})
    empty = ("entity_resolutions", "duplicate_facts", "contradicted_facts", "summaries")
    return json.dumps({**{key: [] for key in empty}, "summary": ""})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_keeps_what_it_is_told(tmp_path: Path, name: str) -> None:
    need(name)
    with serving(extract) as server:
        options = {"model": "m", "base_url": server.base_url} if name == "graphiti" else {}
        store = build_store(Memory(store=name, options=options), str(tmp_path), None)
        store.open("run/a/1")
        assert list(store.entries("run/a/1")) == []
        store.ingest("run/a/1", Session("S1", "7 May", TOLD))
        assert store.ready("run/a/1")
        held = list(store.entries("run/a/1"))
        assert {entry.session for entry in held} == {"S1"}
        assert len(held) == 2
        (best,) = store.search("run/a/1", "Which dog is ill?", 1)
        assert "Rex" in best.text
        assert list(store.search("run/b/1", "dog", 5)) == []
        store.delete("run/a/1", [best.id])
        assert [entry.id for entry in store.entries("run/a/1")] == [
            entry.id for entry in held if entry.id != best.id
        ]
        store.delete("run/a/1")
        assert list(store.entries("run/a/1")) == []


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_the_package_of_mem0(job: Job) -> None:
    need("mem0")
    with serving(lambda body: "Not mentioned") as server:
        fields = {"suite": "locomo", "dataset": str(REPOSITORY / "dataset/locomo")}
        fields |= {"metrics": ["rule_score", "evidence_recall"]}
        done = finish(job(server, candidates=[served(server, memory="mem0")], **fields))
    assert done.summary.n_failed_units == 0
    (arm,) = done.summary.arms
    assert arm.recall == 1.0


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_missing_is_said_before_the_run(name: str) -> None:
    if importlib.util.find_spec(PACKAGES[name]) is not None:
        pytest.skip("it is installed")
    candidate = Candidate(name="c", model="m", memory=Memory(store=name))
    with pytest.raises(ConfigError, match=rf"pip install memray-eval\[{name}\]"):
        find_sources([candidate])
