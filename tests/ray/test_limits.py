"""Limits of runs that share a cluster and its limiter: one after the other with other limits, and
at the same time on two accounts."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import ray

from memray_eval.config.environment import key_digest
from memray_eval.config.schema import RunConfig
from memray_eval.execution.ray.services import LIMITER, NAMESPACE
from tests.build import Job, finish
from tests.conftest import HANG_S
from tests.servers.judgments import reply_to
from tests.servers.provider import Limits, Provider, serving

pytestmark = pytest.mark.night

UNITS = 8
FIRST_S = 2.5  # the first call connects, and may come so late; the others are not held up by it


def judged(job: Job, server: Provider, per_min: float, **judging: Any) -> RunConfig:
    fixed = {"actors": 1, "cache": "off"}
    return job(
        server,
        limit=UNITS,
        metrics=["empathy"],
        judge="openai/m",
        judging={"limits": {"openai/m": {"requests_per_min": per_min}}, **fixed, **judging},
    )


def finish_well(config: RunConfig) -> None:
    done = finish(config)
    assert (done.exit_code, done.summary.n_failed_units) == (0, 0)


def judge_gaps(server: Provider) -> list[float]:
    """Seconds between the judge calls of a run that asked its candidate UNITS times before or in
    between."""
    asked_at = [
        at for at, body in zip(server.times, server.requests, strict=True) if not body.get("stream")
    ]
    assert len(asked_at) == UNITS
    return [after - before for before, after in pairwise(asked_at)]


def test_a_second_run_with_other_limits_gets_its_own_once_the_first_is_over(job: Job) -> None:
    """Both ways: a higher limit is used at once, a lower one holds from the first call."""
    with serving(reply_to) as server:
        gaps = list[list[float]]()
        for per_min in (40, 2400, 60):
            server.reset()
            finish_well(judged(job, server, per_min))
            gaps.append(judge_gaps(server))
    print(f"\nseconds for {UNITS - 1} gaps at 40, 2400 and 60 a minute: {[sum(g) for g in gaps]}")
    slow, fast, middle = (sum(run_gaps) for run_gaps in gaps)
    assert slow >= (UNITS - 1) * 1.5 - FIRST_S
    assert fast < slow
    assert middle >= (UNITS - 1) * 1.0 - FIRST_S


@pytest.mark.parametrize("variables", [("MY_TEST_KEY", "SECOND_TEST_KEY"), ("MY_TEST_KEY",) * 2])
def test_two_runs_at_once_have_a_pace_each_where_they_have_an_account_each(
    job: Job, variables: Sequence[str]
) -> None:
    """The provider holds each key to its limit; on one account the two share it."""
    limits = Limits(requests_per_min=60, window_s=20.0)
    with serving(reply_to) as candidates, serving(reply_to, limits=limits, by_key=True) as server:
        urls = {"openai": server.base_url}
        configs = [
            judged(job, candidates, 40, base_urls=urls, api_key_envs={"openai": variable})
            for variable in variables
        ]
        with ThreadPoolExecutor() as pool:
            list(pool.map(finish_well, configs, timeout=HANG_S))
        assert (server.n_429, len(server.times)) == (0, 2 * UNITS)
        by_key: dict[str, list[float]] = {}
        for at, headers in zip(server.times, server.headers, strict=True):
            by_key.setdefault(headers["Authorization"], []).append(at)
        limiter = ray.get_actor(LIMITER, namespace=NAMESPACE)
        models = ray.get(limiter.limits_by_judge.remote())
    spans = {key: times[-1] - times[0] for key, times in by_key.items()}
    print(f"\nseconds by key: {spans}")
    assert len(spans) == len(set(variables))
    for variable in variables:
        assert f"openai/m@127.0.0.1:{server.port}/v1#{key_digest(os.environ[variable])}" in models
    assert not any(os.environ[variable] in "".join(models) for variable in variables)
    n_calls = 2 * UNITS // len(spans)
    assert all(span >= (n_calls - 1) * 1.5 - FIRST_S for span in spans.values())
