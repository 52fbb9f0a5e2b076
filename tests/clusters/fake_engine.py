"""In vLLM's place, which needs the GPUs that are not there: reserves its workers' GPUs in its
placement group as vLLM does, and answers."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

ANSWER = "I hear you, and that sounds hard. Rest more, and ask your doctor about it."


def fake_engine(
    deaths: Path | None = None, is_crash: bool = False, starts: Path | None = None
) -> type:
    """A stage of Ray Data LLM's that takes what TellingEngine does. As many engines as `deaths` has
    files die in their constructors, each taking one away: by an error, or by a crash. Each start is
    a line of `starts`, with the resources that it has."""
    from ray.llm._internal.batch.stages.base import StatefulStageUDF

    class FakeEngine(StatefulStageUDF):  # type: ignore[misc]
        def __init__(self, data_column: str, expected_input_keys: list[str], **kwargs: Any) -> None:
            import ray
            from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            super().__init__(data_column, ["sampling_params"])
            if starts is not None:
                with starts.open("a") as file:
                    file.write(f"{ray.get_runtime_context().get_assigned_resources()}\n")

            @ray.remote(num_cpus=0, num_gpus=1, max_restarts=0)
            class Worker:
                def node(self) -> str:
                    return str(ray.get_runtime_context().get_node_id())

            self._workers = []
            if (workers := kwargs["engine_kwargs"]["tensor_parallel_size"]) > 1:
                group = ray.util.get_current_placement_group()
                assert group is not None, "an engine of several workers has a placement group"
                for bundle in range(workers):
                    place = PlacementGroupSchedulingStrategy(group, bundle)
                    self._workers.append(Worker.options(scheduling_strategy=place).remote())
            self.nodes = ray.get([worker.node.remote() for worker in self._workers])
            for death in sorted(deaths.glob("*")) if deaths is not None else ():
                death.unlink()
                if is_crash:
                    os._exit(1)
                raise RuntimeError("CUDA error: no kernel image is available")

        async def udf(self, rows: list[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
            for row in rows:
                row.pop("prompt_tokens_int32", None)
                yield {
                    self.IDX_IN_BATCH_COLUMN: row[self.IDX_IN_BATCH_COLUMN],
                    "generated_text": ANSWER,
                    "generated_tokens": [1, 2, 3],
                    "finish_reason": "stop",
                    "num_input_tokens": 3,
                    "num_cached_tokens": 0,
                    "metrics": None,
                    "nodes": self.nodes,
                    "__inference_error__": "",
                }

    return FakeEngine
