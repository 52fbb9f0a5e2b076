"""What one actor learns of a model's parameters all others know."""

from typing import Any

import pytest

from tests.build import Job, finish
from tests.servers.judgments import judgment_reply
from tests.servers.provider import serving
from tests.servers.refusals import RefusingServer

pytestmark = pytest.mark.night

REFUSED = ("max_tokens", "temperature", "top_p", "seed", "stop", "top_k")


def test_a_parameter_is_refused_once_over_all_actors(job: Job) -> None:
    """Two actors ask the candidate and two the judge, in blocks of one row."""

    def reply(body: dict[str, Any]) -> str:
        return "Rest more." if body.get("stream") else str(judgment_reply(body))

    script, judge = RefusingServer("openai", REFUSED, reply), RefusingServer("vllm", REFUSED)
    with serving(script, 0.05) as server, serving(judge, 0.05) as judging:
        served = {"url": server.base_url}
        config = job(
            server,
            executor="ray",
            servers={"lab": served, "other": {"url": judging.base_url}},
            candidates=[
                {
                    "name": "c",
                    "model": "lab/o9",
                    "extra": {"top_k": 5},
                    "sampling": {"stop": ["END"]},
                }
            ],
            server={"actors": 2},
            metrics=["empathy", "politeness"],
            judge="other/o9",
            judging={"actors": 2, "parameters": {"top_k": 5, "top_p": 0.9, "stop": ["END"]}},
            limit=16,
        )
        done = finish(config)
    assert (done.exit_code, done.summary.n_failed_units) == (0, 0)
    assert script.refusals == dict.fromkeys(REFUSED, 1)
    assert judge.refusals == dict.fromkeys(REFUSED, 1)
    assert len(done.folder.read_manifest()["parameters_left_out"]) == 2
