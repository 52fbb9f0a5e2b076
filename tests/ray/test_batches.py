"""Judging in batches on Ray: the driver sends and fetches, the actors find the verdicts."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.sections import Budget
from memray_eval.execution.runs import run
from tests.build import JUDGE, Job, judging_job, write_responses
from tests.servers.batches import serving_batches
from tests.servers.judgments import judgment_reply, prose_reply, schema_of

pytestmark = pytest.mark.night

UNITS = 5
PRICE = {JUDGE: {"input_usd": 2.0, "output_usd": 8.0, "batch_factor": 0.5}}


def reply(body: dict[str, Any]) -> str:
    return judgment_reply(body) if schema_of(body) else prose_reply(body)


OPTIONS = {"mode": "batch", "batch": {"poll_s": 0.1}, "price": PRICE}


def test_responses_that_exist(tmp_path: Path) -> None:
    with serving_batches(reply) as apis:
        data = write_responses(tmp_path, UNITS)
        metrics = ("helpfulness", "safety")
        config = judging_job(data, tmp_path, apis.provider.base_url, metrics, **OPTIONS)
        config = config.model_copy(update={"budget": Budget(usd=5.0)})
        finished = run(config, print, quiet=True)
        stats = apis.stats()
    assert (finished.exit_code, finished.summary.n_units) == (0, UNITS)
    assert (stats["n_calls"], stats["n_live"], stats["paid_again"]) == (2 * UNITS, 0, 0)
    assert finished.summary.cost_usd == pytest.approx(stats["usd"])
    scores = [score for record in finished.folder.each() for score in record.scores]
    assert sum(score.calls or 0 for score in scores) == 2 * UNITS


def test_responses_are_generated_first(job: Job) -> None:
    with serving_batches(reply) as apis:
        judging = OPTIONS | {"base_urls": {"openai": apis.provider.base_url}}
        asked = {"metrics": ["helpfulness"], "judge": JUDGE, "judging": judging}
        finished = run(job(apis.provider, **asked, executor="ray"), print, quiet=True)
        stats = apis.stats()
    assert finished.exit_code == 0
    assert finished.folder.read_manifest()["phases"]["order"] == "apart"
    assert stats["n_calls"] == finished.summary.n_units > 0
