"""Stand-ins for what surrounds a stage: a counter that keeps its reports, what Ray's metrics get, a
judge, an embedder, the tasks that ask, and a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from memray_eval.benchmarks.own import SuiteSource
from memray_eval.datasets.reading import SampleReader
from memray_eval.execution.plan import Capacity, Node
from memray_eval.execution.resume_state import ResumeState
from memray_eval.execution.stages.context import StageContext
from memray_eval.execution.stages.prompt import PromptSpec
from memray_eval.metric import ComputedMetric, MetricValue
from memray_eval.ports import FloatArray
from memray_eval.types import Candidate, Usage
from tests import fake_judges


@dataclass
class KeptReports:
    """A RunCounter that has every method, and keeps its calls as (name, *values)."""

    reports: list[tuple[Any, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.reports.append((name, *values))

    def stopping(self) -> None: ...

    async def is_stopping(self) -> bool:
        return False

    async def report_calls(self, *values: Any) -> None: ...

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The values of the calls of one method."""
        return [values for method, *values in self.reports if method == name]


class Exported(NamedTuple):
    """What one of Ray's recorders was called with; `tags` are without those of every call."""

    name: str
    amount: float
    tags: Mapping[str, str]
    of_all: Mapping[str, str]


WORDS = ComputedMetric(
    name="words",
    title="WORDS",
    value_label="Words",
    scale=(0, 100),
    measure=lambda sample, response: MetricValue(value=len(response.text.split())),
)


class FakeJudge(fake_judges.FakeJudge):
    """One whose verdicts took tokens and money."""

    def __init__(self, outcome: Any, name: str = "fake/judge") -> None:
        super().__init__(outcome, name, usage=Usage(input_tokens=7), cost_usd=0.5)


class FakeEmbedder:
    """Returns the same vector for each text, or raises an error if there is `odd` in one."""

    name = "fake-embedder"

    def __init__(self, error: Exception | None = None, odd: str = "") -> None:
        self.error, self.odd = error, odd
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> FloatArray:
        self.calls.append(list(texts))
        if self.error is not None and any(self.odd in text for text in texts):
            raise self.error
        return np.tile(np.array([[0.6, 0.8]]), (len(texts), 1))


def asking(context: StageContext, *candidates: Candidate, **settings: Any) -> PromptSpec:
    """The settings of the tasks that ask these candidates."""
    usual = {
        "reading": SampleReader(suite="memory"),
        "suite": SuiteSource("memory"),
        "resume_state": ResumeState(),
    }
    return PromptSpec(**usual | settings, candidates=candidates, context=context)


def cluster(*nodes: Node) -> Capacity:
    return Capacity(
        where="the cluster",
        cpus=sum(node.cpus for node in nodes),
        gpus=sum(node.gpus for node in nodes),
        memory_gib=1000,
        nodes=nodes,
    )
