"""Stand-ins for what surrounds a stage: a counter that keeps its reports, and a context that never
ends."""

from dataclasses import dataclass, field
from typing import Any

from memray_eval.execution.stages.context import StageContext


@dataclass
class KeptReports:
    """A RunCounter that has every method, and keeps its calls as (name, *values)."""

    reports: list[tuple[Any, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return lambda *values: self.reports.append((name, *values))

    async def is_stopping(self) -> bool:
        return False

    async def report_calls(self, *values: Any) -> None: ...

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """The values of the calls of one method."""
        return [values for method, *values in self.reports if method == name]


class NearContext(StageContext):
    def is_stopping(self) -> bool:
        return False
