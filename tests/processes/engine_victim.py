"""`python -m tests.processes.engine_victim CONFIG`: the run of victim.py, whose engine takes 0.3 s
for an answer, answers as many prompts at a time as vLLM would, and notes them beside CONFIG."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memray_eval.execution.ray import engine
from tests.clusters.fake_engine import fake_engine
from tests.processes.victim import main


def seated_engine(books: Path) -> type:
    class SeatedEngine(fake_engine(books, row_s=0.3)):  # type: ignore[misc]
        def __init__(self, context: Any, model: str, kwargs: Mapping[str, Any]) -> None:
            super().__init__(context, model, kwargs)
            self._seats = asyncio.Semaphore(kwargs["max_num_seqs"])

        async def _answer(self, prompt: bytes) -> None:
            async with self._seats:
                await super()._answer(prompt)

    return SeatedEngine


if __name__ == "__main__":
    folder = Path(sys.argv[1]).parent
    vars(engine)["VllmEngine"] = seated_engine(folder)
    main()
