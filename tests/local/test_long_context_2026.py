"""The job of all long-context benchmarks: the shipped examples asked of a server, each scored by
its own rule, on one page by length."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.long_context import SUITES
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.report.console import render
from memray_eval.types import Record
from tests.build import finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import Provider, serving

EDGE = re.compile(r"^(\w{10}) -> (\w{10})$", re.MULTILINE)


def reply(body: dict[str, Any]) -> str:
    """Two of the benchmarks answered rightly, by what the prompt says: MRCR after a thought, and
    GraphWalks' parents."""
    messages = [message["content"] for message in body["messages"]]
    prompt = messages[-1]
    if match := re.search(r"Repeat the (\w+) of these .* with (\w{10}) put", prompt):
        kind = re.search(r"request for (an? .*?) \d times", prompt)
        assert kind
        places = [n for n, message in enumerate(messages[:-1]) if message == f"Write {kind[1]}."]
        ordinals = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
        answer = messages[places[ordinals.index(match[1])] + 1]
        return f"<think>Which one?</think>{match[2]}{answer}"
    if match := re.search(r"the parents of the node (\w{10})", prompt):
        into = [source for source, target in EDGE.findall(prompt) if target == match[1]]
        return f"Final Answer: [{', '.join(into)}]"
    return "I cannot tell."


def job(server: Provider, out: Path, **changes: Any) -> RunConfig:
    shipped = load_config(REPOSITORY / "jobs" / "long-context-2026.yaml")
    fields = {"candidates": [served(server)], "out": str(out / "results"), **changes}
    return RunConfig.model_validate(shipped.model_dump(exclude_unset=True) | fields)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Record]]:
    with serving(reply) as server:
        config = job(server, tmp_path_factory.mktemp("whole"))
        done = finish(config)
    return done, list(done.folder.each())


def scores_of(records: list[Record], task: str) -> list[float | None]:
    return [record.scores[0].value for record in records if record.sample.task == task]


def test_every_benchmark_is_run_and_scored_by_its_own_rule(whole: tuple[Any, list[Record]]) -> None:
    done, records = whole
    assert done.exit_code == 0
    by_benchmark: dict[str, set[str]] = {}
    for record in records:
        (score,) = record.scores
        assert score.status == "scored", (record.sample.id, score.error)
        by_benchmark.setdefault(record.sample.task.partition(":")[0], set()).add(score.judge)
    assert set(by_benchmark) == set(SUITES)
    assert by_benchmark["mrcr"] == {"mrcr_ratio, openai/mrcr 204b0d4"}
    for n in (2, 4, 8):
        assert set(scores_of(records, f"mrcr:{n}needle")) == {1.0}
    assert set(scores_of(records, "graphwalks:parents")) == {1.0}
    assert set(scores_of(records, "graphwalks:bfs")) == {0.0}


def test_the_page_has_each_task_by_length(whole: tuple[Any, list[Record]]) -> None:
    summary = whole[0].summary
    lengths: Mapping[str, list[str]] = {
        task: [row.bucket for row in summary.tasks if row.task == task and row.bucket]
        for task in ("mrcr:2needle", "graphwalks:parents", "needles:passkey", "babilong:qa1")
    }
    assert lengths == {
        "mrcr:2needle": ["3k", "4k"],
        "graphwalks:parents": ["2k", "4k"],
        "needles:passkey": ["1k", "2k", "4k"],
        "babilong:qa1": ["2k", "4k"],
    }
    text = render(summary)
    assert "TASKS - served" in text
    assert text.index("needles:passkey") < text.index("mrcr:2needle") < text.index("graphwalks:bfs")
    assert "LENGTH BY DEPTH: rule_score" in text
