"""Memory stores of tests, each a class of a user's file: a right one, and ones that go wrong."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Plain:
    """Keeps turns in a file of the run's folder, and counts its calls in another."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def count(self, what: str, **about: Any) -> None:
        with (self.folder / "calls.log").open("a") as file:
            file.write(json.dumps({"what": what, **about}) + "\n")

    def file(self, partition: str) -> Path:
        return self.folder / (partition.replace("/", "_") + ".held")

    def open(self, partition: str) -> None:
        self.count("open", partition=partition)
        self.file(partition).touch()

    def ingest(self, partition: str, session: Any) -> None:
        self.count("ingest", partition=partition, session=session.id)
        held = [
            {"id": turn.id, "text": f"{turn.speaker}: {turn.text}", "session": session.id}
            for turn in session.turns
        ]
        with self.file(partition).open("a") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in held)

    def ready(self, partition: str) -> bool:
        return True

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        self.count("search", partition=partition, query=query)
        words = set(query.lower().split())
        ranked = sorted(
            self.entries(partition),
            key=lambda entry: -len(words & set(entry["text"].lower().split())),
        )
        return ranked[:k]

    def entries(self, partition: str) -> Sequence[Any]:
        file = self.file(partition)
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def delete(self, partition: str, ids: Sequence[str] | None = None) -> None:
        self.count("delete", partition=partition, ids=ids)
        left = [entry for entry in self.entries(partition) if ids and entry["id"] not in ids]
        self.file(partition).write_text("".join(json.dumps(entry) + "\n" for entry in left))


class Bare:
    """Has the calls without a default alone."""

    def __init__(self, folder: str) -> None:
        plain = Plain(folder)
        self.ingest, self.search = plain.ingest, plain.search
        self.entries, self.delete = plain.entries, plain.delete


class Down(Plain):
    """Nobody answers."""

    def ingest(self, partition: str, session: Any) -> None:
        raise ConnectionRefusedError("nobody is there")


class Slow(Plain):
    """Never has indexed what was written."""

    def ready(self, partition: str) -> bool:
        return False


class Odd(Plain):
    """Answers with another shape."""

    def search(self, partition: str, query: str, k: int) -> Any:
        return {"memories": ["a"]}


class Hung(Plain):
    """Does not come back from a search."""

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        threading.Event().wait(20)
        return []


class Occupied(Plain):
    """Holds what real users wrote."""

    def open(self, partition: str) -> None:
        super().open(partition)
        self.file(partition).write_text('{"id": "u1", "text": "of a real user"}\n')


class Later(Plain):
    """Is down until a file says that it is up."""

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        if not (self.folder.parents[1] / "up").exists():
            raise ConnectionResetError("gone")
        return super().search(partition, query, k)


class Half(Plain):
    """Fails in the middle of a session until a file says that it is up."""

    def ingest(self, partition: str, session: Any) -> None:
        if not (self.folder.parents[1] / "up").exists():
            super().ingest(partition, session._replace(turns=session.turns[:1]))
            raise ConnectionResetError("gone")
        super().ingest(partition, session)

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        return self.entries(partition)


class Forgetful(Plain):
    """Loses its last session, once a file says so."""

    def entries(self, partition: str) -> Sequence[Any]:
        held = super().entries(partition)
        if held and (self.folder.parents[1] / "lose").exists():
            return [entry for entry in held if entry["session"] != held[-1]["session"]]
        return held


class Alone(Plain):
    """Breaks where two threads call it at a time, whatever their partitions."""

    def search(self, partition: str, query: str, k: int) -> Sequence[Any]:
        busy = self.folder / "busy"
        busy.touch(exist_ok=False)
        try:
            threading.Event().wait(0.02)
            return super().search(partition, query, k)
        finally:
            busy.unlink()


class Answering(Plain):
    """Answers the question itself, and says what that took."""

    tokens, usd = 0, 0.0

    def answer(self, partition: str, question: str) -> str:
        self.tokens += 7
        self.usd += 0.5
        return f"I remember {len(self.entries(partition))} turns."
