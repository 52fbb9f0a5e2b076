"""Which HTTP clients are open: on Ray they end with their process, in one process someone must
close them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar


class Client(Protocol):
    async def aclose(self) -> None: ...


C = TypeVar("C", bound=Client)
_open: ContextVar[list[Client] | None] = ContextVar("open_clients", default=None)


def keep_open(client: C) -> C:
    """Returns the client, which `closing_clients` around the caller closes."""
    if (clients := _open.get()) is not None:
        clients.append(client)
    return client


@asynccontextmanager
async def closing_clients() -> AsyncIterator[None]:
    """Closes, at the end of the block, the clients that it and its tasks have made."""
    clients: list[Client] = []
    before = _open.set(clients)
    try:
        yield
    finally:
        _open.reset(before)
        for client in clients:
            await client.aclose()
