"""The providers' prompt caches, by their published rules, for the local server.

- Anthropic keeps a prompt up to each block with `cache_control` (four at most), where that is at
  least `floor` tokens, for 5 minutes from its last use, or an hour with `ttl: 1h`. A request reads
  the longest kept start that ends at one of its marks, and writes up to its last mark. Its
  `input_tokens` are the rest. Another `output_config` is another start.
- OpenAI before GPT-5.6 keeps prompts of 1,024 tokens and more by itself, and reads in steps of 128
  from there on. The schema of a response format stands before the messages. Prompts go to a machine
  by their first 256 tokens and `prompt_cache_key`; above 15 requests a minute, to another one. With
  `marks` (GPT-5.6 and later) it keeps what ends at a `prompt_cache_breakpoint`, and in the mode
  `implicit` also the whole prompt; what it writes is billed.
- Google keeps prompts of at least `floor` tokens by itself.

What a request writes is there for others once it is answered. A token is four characters."""

import hashlib
import json
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CHARACTERS_A_TOKEN = 4
FIVE_MINUTES_S, HOUR_S = 300.0, 3600.0
STEP, ROUTED = 128, 256  # tokens
REQUESTS_A_MACHINE = 15  # a minute, of one start
MOST_MARKS = 4


class Cached(NamedTuple):
    """Tokens of a request: all, those read from the cache, and those written at a price."""

    input: int
    read: int = 0
    written: int = 0


class _Block(NamedTuple):
    text: str
    is_marked: bool = False
    lasts_s: float = FIVE_MINUTES_S


class _Start(NamedTuple):
    """A start of a prompt that is kept, or to be."""

    key: str
    tokens: int
    lasts_s: float


@dataclass
class PromptCache:
    """What one provider keeps of the prompts that it was asked. `marks`: OpenAI's models that bill
    writes."""

    floor: int = 1024
    marks: bool = False
    clock: Callable[[], float] = time.monotonic
    kept_until: dict[str, float] = field(default_factory=dict)
    asked_at: defaultdict[str, deque[float]] = field(
        default_factory=lambda: defaultdict(deque[float])
    )

    def look_up(self, body: dict[str, Any]) -> tuple[Cached, list[_Start]]:
        """What a request takes, and the starts to `keep` once it is answered."""
        identity, blocks = _rendered(body)
        beside = identity if _is_openai(body) else ""  # Anthropic does not say what it makes of it
        total = _tokens(beside + "".join(block.text for block in blocks))
        starts = list(self._starts(body, identity, blocks))
        now = self.clock()
        read = max(
            (start.tokens for start in starts if self.kept_until.get(start.key, 0.0) > now),
            default=0,
        )
        written = max((start.tokens for start in starts), default=0) - read
        is_billed = "messages" in body and (self.marks or not _is_openai(body))
        return Cached(total, read, written if is_billed else 0), starts

    def reset(self) -> None:
        self.kept_until.clear()
        self.asked_at.clear()

    def keep(self, starts: list[_Start]) -> None:
        for start in starts:
            until = self.clock() + start.lasts_s
            self.kept_until[start.key] = max(until, self.kept_until.get(start.key, 0.0))

    def _starts(
        self, body: dict[str, Any], identity: str, blocks: list[_Block]
    ) -> Iterator[_Start]:
        if _is_openai(body) or "contents" in body:
            if self.marks:
                is_implicit = body.get("prompt_cache_options", {}).get("mode") != "explicit"
                marked = [*blocks[:-1], blocks[-1]._replace(is_marked=True)]
                yield from self._marked_starts(identity, marked if is_implicit else blocks)
            else:
                yield from self._stepped_starts(body, identity, blocks)
        else:
            yield from self._marked_starts(identity, blocks)

    def _marked_starts(self, identity: str, blocks: list[_Block]) -> Iterator[_Start]:
        if sum(block.is_marked for block in blocks) > MOST_MARKS:
            raise ValueError(f"more than {MOST_MARKS} marks")
        text = ""
        for block in blocks:
            text += block.text
            if block.is_marked and _tokens(text) >= self.floor:
                yield _Start(_digest(identity + text), _tokens(text), block.lasts_s)

    def _stepped_starts(
        self, body: dict[str, Any], identity: str, blocks: list[_Block]
    ) -> Iterator[_Start]:
        text = identity + "".join(block.text for block in blocks)
        machine = self._machine(
            text[: ROUTED * CHARACTERS_A_TOKEN], body.get("prompt_cache_key", "")
        )
        digest = hashlib.blake2b(machine.encode(), digest_size=8)
        done = 0
        for tokens in range(self.floor, _tokens(text) + 1, STEP):
            end = tokens * CHARACTERS_A_TOKEN
            digest.update(text[done:end].encode("utf-8", "surrogatepass"))
            done = end
            yield _Start(digest.copy().hexdigest(), tokens, FIVE_MINUTES_S)

    def _machine(self, beginning: str, key: str) -> str:
        """Where a prompt goes; Google says nothing of machines, and has one."""
        name = _digest(beginning + key)
        times, now = self.asked_at[name], self.clock()
        while times and times[0] <= now - 60.0:
            times.popleft()
        times.append(now)
        return f"{name} {(len(times) - 1) // REQUESTS_A_MACHINE}"


def _rendered(body: dict[str, Any]) -> tuple[str, list[_Block]]:
    """What stands before a prompt without being counted as its text, and the prompt's blocks."""
    if "contents" in body:
        holders = [body.get("systemInstruction"), *body["contents"]]
        return "", [block for holder in holders for block in _blocks(holder)]
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    before = schema or body.get("output_config")
    holders = [{"content": body.get("system")}, *body["messages"]]
    identity = json.dumps(before) if before is not None else ""
    return identity, [block for holder in holders for block in _blocks(holder)]


def _blocks(holder: Any) -> Iterator[_Block]:
    content = (holder or {}).get("content", (holder or {}).get("parts"))
    for part in [content] if isinstance(content, str) else content or ():
        if isinstance(part, str):
            yield _Block(part)
            continue
        mark = part.get("cache_control") or part.get("prompt_cache_breakpoint")
        lasts_s = HOUR_S if (mark or {}).get("ttl") == "1h" else FIVE_MINUTES_S
        yield _Block(part.get("text", ""), mark is not None, lasts_s)


def _is_openai(body: dict[str, Any]) -> bool:
    """By what only Anthropic's requests have: the system apart, or nothing but user turns."""
    return "messages" in body and "system" not in body and "output_config" not in body


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
