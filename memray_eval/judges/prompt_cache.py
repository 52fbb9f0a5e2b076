"""Providers' prompt caches: whether a prompt's start pays off in one, and whose call goes first."""

import asyncio
import string
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memray_eval.text_processing.judge_prompts import VERSIONS, JudgePrompt

SECRET_BYTES = 32
CHARACTERS_A_TOKEN = 4.0
_WORDS = (string.ascii_letters + string.whitespace).encode()
LASTS_S = 300.0  # the shortest time that a provider keeps a start, from its last use on
MANY_PREFIXES = 10_000  # before those that nobody keeps any more are forgotten


def tokens_of(text: str) -> float:
    """About how many tokens a text has, by its length."""
    return len(text) / CHARACTERS_A_TOKEN


def most_tokens(text: str) -> float:
    """About how many tokens a text has at most: digits, marks and what is not ASCII, as Chinese,
    may be one each."""
    ascii_only = text.encode("ascii", "ignore")
    n_words = len(ascii_only) - len(ascii_only.translate(None, _WORDS))
    return n_words / CHARACTERS_A_TOKEN + len(text) - n_words


@dataclass(frozen=True)
class PromptCache:
    """What is known of a model's prompt cache: its shortest start (None: nothing), and whether it
    keeps only what is marked, at a price. `secret`, a session's own, goes into the nonce of
    shared-first prompts."""

    floor_tokens: int | None = None
    is_marked: bool = False
    secret: bytes = field(default=b"", repr=False)

    def pays_off(self, prompt: JudgePrompt) -> bool:
        """True if a prompt's shared start is long enough to be kept, and is read again."""
        return (
            self.floor_tokens is not None
            and prompt.readers > 1
            and prompt.shared_chars / CHARACTERS_A_TOKEN >= self.floor_tokens
        )

    def describe(self) -> str:
        """The layout of prompts for the manifest; other words have another number."""
        if self.floor_tokens is None:
            return f"rubric_first {VERSIONS['rubric_first']}"
        return (
            f"rubric_first {VERSIONS['rubric_first']}; shared_first {VERSIONS['shared_first']} "
            f"from {self.floor_tokens} shared tokens on"
        )


class SharedStart(NamedTuple):
    """The start of a call's first user turn that other calls share, for the provider's cache: the
    turn's `blocks`, the first `shared` of them common, and their `key`. `is_marked`: the request is
    to mark it, for an hour instead of five minutes with `lasts_1h`."""

    blocks: tuple[str, ...]
    shared: int
    key: str
    is_marked: bool
    lasts_1h: bool = False

    def marked(self, mark: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The blocks as parts of a message, each common one with the fields of `mark`."""
        return [
            {"type": "text", "text": block, **(mark if position < self.shared else {})}
            for position, block in enumerate(self.blocks)
        ]

    @property
    def tokens(self) -> float:
        """About how long it is."""
        return sum(map(len, self.blocks[: self.shared])) / CHARACTERS_A_TOKEN


class StartQueue:
    """Lets the first call with a start go ahead and others follow when it ends: at once each would
    pay for all of it. For one event loop."""

    def __init__(
        self, lasts_s: float = LASTS_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lasts_s, self._clock = lasts_s, clock
        self._kept_until = dict[str, float]()
        self._ahead = dict[str, asyncio.Future[None]]()

    @asynccontextmanager
    async def follow(self, key: str) -> AsyncIterator[bool]:
        """Waits until nobody goes ahead with the start, or it is cached, which it yields."""
        while not self._is_kept(key) and (ahead := self._ahead.get(key)) is not None:
            await asyncio.wait([ahead])
        is_kept = self._is_kept(key)
        leads: asyncio.Future[None] | None = None
        if not is_kept:
            leads = self._ahead[key] = asyncio.get_running_loop().create_future()
        try:
            yield is_kept
        finally:
            if leads is not None:
                del self._ahead[key]
                leads.set_result(None)

    def _is_kept(self, key: str) -> bool:
        return self._kept_until.get(key, 0.0) > self._clock()

    def keep(self, key: str) -> None:
        """The call was answered: its start is cached from now on."""
        now = self._clock()
        if len(self._kept_until) >= MANY_PREFIXES:
            self._kept_until = {key: end for key, end in self._kept_until.items() if end > now}
        self._kept_until[key] = now + self._lasts_s
