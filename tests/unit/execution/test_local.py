"""The stages of a run in one process: how blocks flow, and when a run needs no Ray."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError, JudgeError
from memray_eval.execution.executors import LOCAL_UNITS, choose_executor
from memray_eval.execution.local import map_blocks
from memray_eval.execution.prepare.resolve import resolve

SERVED = {"name": "c", "model": "m", "backend": "openai", "base_url": "http://127.0.0.1:9/v1"}


def number_of(table: pa.Table) -> int:
    return int(table.column("number")[0].as_py())


class Source:
    """So many blocks, and how many of them were taken."""

    def __init__(self, n: int) -> None:
        self.n, self.taken, self.is_closed = n, 0, False

    async def blocks(self) -> AsyncIterator[pa.Table]:
        try:
            for number in range(self.n):
                self.taken += 1
                yield pa.table({"number": [number]})
        finally:
            self.is_closed = True


async def test_a_slow_block_holds_up_no_other() -> None:
    others = asyncio.Event()

    async def stage(table: pa.Table) -> AsyncIterator[pa.Table]:
        if number_of(table) == 0:
            await others.wait()
        yield table
        if number_of(table) == 5:
            others.set()

    order = [number_of(table) async for table in map_blocks(Source(6).blocks(), stage, 3)]
    assert sorted(order) == list(range(6))
    assert order[-1] == 0


def test_stages_run_at_most_so_many_blocks_ahead() -> None:
    source, most, running = Source(50), [0], [0]

    async def stage(table: pa.Table) -> AsyncIterator[pa.Table]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.001)
        running[0] -= 1
        yield table

    async def run() -> int:
        async for _ in map_blocks(map_blocks(source.blocks(), stage, 4), stage, 2):
            await asyncio.sleep(0.05)
            return source.taken
        return -1

    # Of the first stage four at work and four ready, of the second two and two, one handed on
    assert asyncio.run(run()) <= 15
    assert most[0] <= 6
    assert source.is_closed


@pytest.mark.parametrize("failing", [0, 1, 2])
async def test_the_first_error_of_any_stage_is_raised_as_it_is(failing: int) -> None:
    source = Source(20)

    def stage_of(number: int) -> Any:
        async def stage(table: pa.Table) -> AsyncIterator[pa.Table]:
            await asyncio.sleep(0)
            if number == failing and number_of(table) == 7:
                raise JudgeError("seven")
            yield table

        return stage

    blocks = source.blocks()
    for number in range(3):
        blocks = map_blocks(blocks, stage_of(number), 2)
    with pytest.raises(JudgeError, match="seven"):
        assert [table async for table in blocks]
    assert source.is_closed


def chosen(n_units: int | None = 10, is_on_ray: bool = False, **keys: Any) -> tuple[str, str]:
    config = RunConfig.model_validate(
        {"dataset": "d.jsonl", "candidates": [SERVED], "judge": "rules"} | keys
    )
    return choose_executor(resolve(config), n_units, is_on_ray)


def test_what_needs_no_ray_gets_none() -> None:
    assert chosen()[0] == "local"
    assert chosen(None)[0] == "local"
    assert chosen(LOCAL_UNITS)[0] == "local"
    assert chosen(LOCAL_UNITS + 1) == ("ray", "2001 answers are more than 2000")
    assert chosen(is_on_ray=True) == ("ray", "this process is on a Ray cluster")
    assert chosen(executor="ray")[0] == "ray"
    assert chosen(10**6, executor="local")[0] == "local"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"candidates": [{"name": "e", "model": "embedded"}]}, "candidate 'e' needs a vLLM engine"),
        ({"judge": "embedded"}, "the embedded judge needs a vLLM engine"),
        ({"cluster": {"address": "10.0.0.1:6379"}}, "cluster.address is 10.0.0.1:6379"),
        ({"cluster": {"phases": "apart"}}, "cluster.phases is apart"),
    ],
)
def test_what_needs_ray_says_why(keys: dict[str, Any], reason: str) -> None:
    assert chosen(**keys) == ("ray", reason)
    with pytest.raises(ConfigError, match=reason.replace(".", r"\.")):
        chosen(**keys, executor="local")


CLIENTS = "ray openai anthropic google.genai sentence_transformers torch vllm"
STAGES = "memray_eval.execution.stages.blocks, memray_eval.execution.stages.prompt"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("memray_eval", "ray torch openai pyarrow pydantic"),
        ("memray_eval.cli", "ray torch openai pandas matplotlib"),
        (STAGES, CLIENTS),
    ],
)
def test_what_is_heavy_is_imported_where_it_is_used(modules: str, heavy: str) -> None:
    code = f"import sys, {modules}; print(sys.modules.keys() & {heavy.split()})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
