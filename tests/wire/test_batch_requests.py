"""What goes into a batch is what a live call would send, to the letter."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import Budget
from memray_eval.execution.run_counter import RunCounter
from memray_eval.execution.services import start_services
from memray_eval.judges.batches.port import BatchClient
from memray_eval.judges.judge_factory import build_batch_queues
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.judges.router import JudgeAssignment
from memray_eval.provider_http import closing_clients
from tests.servers.judgments import judgment_reply
from tests.servers.provider import Provider, serving
from tests.wire.test_batch_outcomes import KEYS, METRIC, MODELS, Case, Rating, judging_of, question


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_call_of_a_batch_is_the_live_one(
    provider: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in KEYS:
        monkeypatch.setenv(key, "key-of-nobody")

    async def ask(server: Provider) -> tuple[dict[str, Any], BatchClient]:
        async with closing_clients():
            judging = judging_of(Case("", provider=provider), server.root, tmp_path)
            services = start_services(
                Budget(), judging.cache, str(tmp_path / "run"), NOTHING, 1, 8, print
            )
            connected = services.connect(RunCounter(), lambda: False)
            judge = MODELS[provider]
            choices = {METRIC: JudgeAssignment(metric=METRIC, judge=judge, why="asked")}
            (queue,) = build_batch_queues(choices, judging, connected)
            call = queue.judge.call(question(1), Rating, is_batch=True)
            body = await call.request()
            await queue.judge.judge(question(1), Rating)
            assert (await call.recall()) is not None  # one key for both
            await services.finish()
            await services.end()
            queue.spool.discard()
            return body, queue.client

    with serving(judgment_reply) as server:
        body, client = asyncio.run(ask(server))
        (live,) = server.requests
    assert body == live
    assert b"\n" not in client.line("k", body)[:-1]
