"""The HTTP clients of the providers' packages: which are open, and what is logged. In one process
someone must close them."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

# With OPENAI_LOG=debug and its kin they write whole requests to stderr, and a worker's stderr is a
# file under Ray's temporary folder that others may read.
_LOGGERS = "openai anthropic google_genai instructor httpx httpx2 httpcore httpcore2".split()
# Of the call whose request is sent next: a provider that takes it bills an equal one once
IDEMPOTENCY_KEY: ContextVar[str] = ContextVar("idempotency_key", default="")


class Client(Protocol):
    async def aclose(self) -> None: ...


C = TypeVar("C", bound=Client)
_open: ContextVar[AsyncExitStack | None] = ContextVar("open_clients", default=None)


def keep_open(client: C) -> C:
    """Returns the client, which `closing_clients` around the caller closes."""
    if (stack := _open.get()) is not None:
        stack.push_async_callback(client.aclose)
    return client


@asynccontextmanager
async def closing_clients() -> AsyncIterator[None]:
    """Closes, at the end of the block, the clients that it and its tasks have made."""
    async with AsyncExitStack() as stack:
        before = _open.set(stack)
        try:
            yield
        finally:
            _open.reset(before)


def silence_payload_logs() -> None:
    """Lets the providers' packages log warnings and errors only, which hold no prompt, reply or
    key. Call it after their import, which reads the environment."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
