"""The providers' prompt caches, by their published rules, for the local server.

- Anthropic keeps a prompt up to each block with `cache_control` (four at most), where that is at
  least `floor` tokens. A request reads the longest kept start that ends at one of its marks, and
  writes up to its last mark. Its `input_tokens` are the rest. Another `output_config` is another
  start.
- OpenAI before GPT-5.6 keeps prompts of 1,024 tokens and more by itself, and reads in steps of 128
  from there on. The schema of a response format stands before the messages. Prompts go to a machine
  by `prompt_cache_key`. With `marks` (GPT-5.6 and later) it keeps what ends at a
  `prompt_cache_breakpoint`, and in the mode `implicit` also the whole prompt; what it writes is
  billed.
- Google keeps prompts of at least `floor` tokens by itself.

What a request writes is there for others once it is answered, and stays: no test takes the five
minutes for which it is kept. A token is four characters."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

CHARACTERS_A_TOKEN = 4
STEP = 128  # tokens
MOST_MARKS = 4


class Cached(NamedTuple):
    """Tokens of a request: all, those read from the cache, and those written at a price."""

    input: int
    read: int = 0
    written: int = 0


class _Block(NamedTuple):
    text: str
    is_marked: bool = False


@dataclass
class PromptCache:
    """What one provider keeps of the prompts that it was asked. `marks`: OpenAI's models that bill
    writes."""

    floor: int = 1024
    marks: bool = False
    kept: set[str] = field(default_factory=set)

    def look_up(self, body: dict[str, Any]) -> tuple[Cached, Mapping[str, int]]:
        """What a request takes, and the starts to keep once it is answered, with their tokens."""
        identity, blocks = _rendered(body)
        beside = identity if _is_openai(body) else ""  # Anthropic does not say what it makes of it
        total = _tokens(beside + "".join(block.text for block in blocks))
        starts = dict(self._starts(body, identity, blocks))
        read = max((starts[start] for start in self.kept & starts.keys()), default=0)
        written = max(starts.values(), default=0) - read
        is_billed = "messages" in body and (self.marks or not _is_openai(body))
        return Cached(total, read, written if is_billed else 0), starts

    def _starts(
        self, body: dict[str, Any], identity: str, blocks: list[_Block]
    ) -> Iterator[tuple[str, int]]:
        if (_is_openai(body) or "contents" in body) and not self.marks:
            text = identity + "".join(block.text for block in blocks)
            machine = body.get("prompt_cache_key", "")
            for tokens in range(self.floor, _tokens(text) + 1, STEP):
                yield machine + text[: tokens * CHARACTERS_A_TOKEN], tokens
            return
        if self.marks and body.get("prompt_cache_options", {}).get("mode") != "explicit":
            blocks = [*blocks[:-1], blocks[-1]._replace(is_marked=True)]
        if sum(block.is_marked for block in blocks) > MOST_MARKS:
            raise ValueError(f"more than {MOST_MARKS} marks")
        text = ""
        for block in blocks:
            text += block.text
            if block.is_marked and _tokens(text) >= self.floor:
                yield identity + text, _tokens(text)


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
        is_marked = bool(part.get("cache_control") or part.get("prompt_cache_breakpoint"))
        yield _Block(part.get("text", ""), is_marked)


def _is_openai(body: dict[str, Any]) -> bool:
    """By what only Anthropic's requests have: the system apart, or nothing but user turns."""
    return "messages" in body and "system" not in body and "output_config" not in body


def _tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_A_TOKEN)
