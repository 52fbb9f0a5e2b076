"""A node dies with responses that were generated and not yet judged: they are taken from the run
folder. Asked again, the candidate would say something else, and the judge be paid again."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from memray_eval.results.run_folder import RunFolder
from tests.build import run_module, served_job
from tests.servers.judgments import judgment_reply, message_texts
from tests.servers.provider import serving

pytestmark = pytest.mark.night

UNITS, ROWS = 40, 4  # of ten blocks, four are at the judge when the node dies
WORDS = 4000  # an answer so long that a block of them lies in a node's memory, not in the driver's


def test_stored_responses_outlive_the_node_that_they_were_generated_on(tmp_path: Path) -> None:
    numbers = itertools.count()

    def answer(body: dict[str, Any]) -> str:
        return f"answer {next(numbers)}: " + "rest more. " * WORDS

    with serving(answer) as candidates, serving(judgment_reply, latency_s=1.0) as judge:
        config = served_job(
            tmp_path,
            candidates,
            metrics=["empathy"],
            judge="openai/j",
            judging={"base_urls": {"openai": judge.base_url}, "actors": 1, "max_in_flight": 1},
            limit=UNITS,
            rows_per_block=ROWS,
        )
        (tmp_path / "job.yaml").write_text(config.model_dump_json())
        done = run_module("tests.clusters.lost_blocks", str(tmp_path / "job.yaml"))
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        generated = Counter(message_texts(body)[-1] for body in candidates.requests)
        judged = Counter(message_texts(body)[-1] for body in judge.requests)
    print(done.stdout)
    assert "limiter on the head: True" in done.stdout
    assert "node lost, " in done.stdout
    (path,) = (path.parent for path in (tmp_path / "results").glob("*/run.yaml"))
    records = list(RunFolder(str(path)).each())
    assert len({record.unit_id for record in records}) == len(records) == UNITS
    again = sum(generated.values()) - UNITS
    print(f"asked again: {again} of {UNITS}; judged again: {sum(judged.values()) - UNITS}")
    assert again == 0
    assert sum(judged.values()) - len(judged) <= 1, "what was in flight"
    assert len(judged) == UNITS, "no other texts"
    log = (path / "log.jsonl").read_text()
    assert "a block is made again: " in log
