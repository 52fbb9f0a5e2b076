"""A store that does right by every script of memory_writes, and seven that are wrong in one way."""

from collections.abc import Sequence
from typing import Any

from memray_eval.benchmarks.memory_writes import Script, scripts


class Right:
    """Keeps what it should: the present value, what was repeated once, that there is a secret."""

    def __init__(self) -> None:
        self.held: dict[str, list[str]] = {}

    def open(self, partition: str) -> None:
        self.held.setdefault(partition, [])

    def ingest(self, partition: str, session: Any) -> None:
        self.held[partition] += self.facts(scripts()[partition.split("/")[1]])

    def facts(self, script: Script) -> list[str]:
        case = script.case
        return [case.required[case.deciding], script.repeated[1], f"keeps quiet: {script.case.id}"]

    def ready(self, partition: str) -> bool:
        return True

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        return self.held.get(partition, [])[:k]

    def entries(self, partition: str) -> Sequence[Any]:
        return self.held.get(partition, [])

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        self.held.pop(partition, None)


class Claimed(Right):
    """Says that it keeps what is told, and does not."""

    def facts(self, script: Script) -> list[str]:
        return super().facts(script)[1:]


class Unclaimed(Right):
    """Keeps what it said that it would not."""

    def facts(self, script: Script) -> list[str]:
        return [*super().facts(script), script.unclaimed[1]]


class Duplicates(Right):
    """Keeps each wording."""

    def facts(self, script: Script) -> list[str]:
        return [*super().facts(script), *[f"{n}: {script.repeated[1]}" for n in range(4)]]


class Superseded(Right):
    """Returns the value that was replaced."""

    def facts(self, script: Script) -> list[str]:
        return [*super().facts(script), script.case.earlier.value]


class Forgotten(Right):
    """Deletes nothing."""

    def facts(self, script: Script) -> list[str]:
        return [*super().facts(script), f"once said {script.forgotten[1]}"]


class Secret(Right):
    """Keeps a secret to the letter."""

    def facts(self, script: Script) -> list[str]:
        return [*super().facts(script), script.case.tempting[script.case.secret.key]]


class OtherUser(Right):
    """Tells everybody what it was told by anyone."""

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        return super().search(partition.removesuffix("/B"), query, k)
