"""The write side of memories: a right store, and each of seven wrong ones, in a whole run."""

from collections.abc import Callable

import pytest

from memray_eval.benchmarks.memory_writes import TASKS
from memray_eval.report.console import render
from memray_eval.types import Summary
from tests.build import Job, finish, served
from tests.conftest import REPOSITORY
from tests.servers.provider import serving

Shares = Callable[..., tuple[Summary, dict[str, dict[str, float]]]]
OWN = REPOSITORY / "tests/servers/writing_stores.py"
WRONG = {"".join(part.title() for part in task.split("_")): task for task in TASKS}


@pytest.fixture
def shares(job: Job) -> Shares:
    """The share of scripts that each store did right by, by task."""

    def run(*stores: str) -> tuple[Summary, dict[str, dict[str, float]]]:
        with serving(lambda body: "I remember.") as server:
            candidates = [
                served(server, store.rpartition(":")[2], memory=store) for store in stores
            ]
            dataset = str(REPOSITORY / "dataset/memory_writes")
            fields = {"suite": "memory_writes", "dataset": dataset, "metrics": ["rule_score"]}
            summary = finish(job(server, candidates=candidates, **fields)).summary
        means = {
            arm.candidate: {
                str(row.category): row.mean for row in arm.categories if row.category is not None
            }
            for arm in summary.arms
        }
        return summary, means

    return run


@pytest.mark.night
def test_each_wrong_store_is_found_and_the_right_one_is_not(shares: Shares) -> None:
    summary, means = shares(*(f"{OWN}:{name}" for name in ("Right", *WRONG)))
    assert summary.n_units == 8 * 41 * len(TASKS)
    assert means["Right"] == dict.fromkeys(TASKS, 1.0)
    for name, wrong in WRONG.items():
        others = dict.fromkeys(set(TASKS) - {wrong}, 1.0)
        assert {task: means[name][task] for task in others} == others, name
        assert means[name][wrong] <= 0.05, name
    text = render(summary)
    assert "MEMORY STORES" in text


def test_a_verbatim_store_forgets_nothing(shares: Shares) -> None:
    _, means = shares("bm25")
    right = {task for task, share in means["bm25"].items() if share == 1.0}
    assert {"claimed", "other_user"} <= right
    wrong = ("unclaimed", "duplicates", "superseded", "forgotten", "secret")
    assert all(means["bm25"][task] < 0.1 for task in wrong), means
