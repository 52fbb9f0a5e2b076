"""Parameters that a model takes: what a server refuses by name is left out from then on, or goes by
the other name that it asks for. A run finds that out once: see ParameterBook."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from uuid import uuid4

from memray_eval.errors import (
    SAID,
    JudgeError,
    QuotaExhausted,
    Refused,
    Throttled,
    Unauthorised,
    Unreadable,
)

T = TypeVar("T")
# By parameter, or "parameter=JSON" of one value: the name that it goes by; "": it is left out
Changes = Mapping[str, str]
LEFT_OUT = ""
LIMITS = ("max_tokens", "max_completion_tokens")  # OpenAI's two names of one parameter
HOLD_S = 10.0  # after which nobody waits for the first answer any more: a refusal takes no time
POLL_S, LEARN_S = 0.05, 5.0
MOST_CHARACTERS = 4000  # of a message that is searched
# Without these a request would ask something else
_KEPT = ("model", "messages", "response_format", "tools", "tool_choice", "structured_outputs")
# Values of these differ from call to call, and no server takes some and refuses others by name
_ANY_VALUE = {*LIMITS, "seed", "stop"}
_ALIASES = {
    "max_tokens": ("max_output_tokens", "max_new_tokens"),
    "stop": ("stop_sequences",),
    "stop_sequences": ("stop",),
    "think": ("thinking",),
    "thinking": ("thinking_budget", "budget_tokens"),
    "thinking_config": ("thinking_budget", "thinking_level", "thinking", "budget"),
    "reasoning_effort": ("reasoning.effort", "effort", "thinking"),
    "reasoning": ("effort",),
    "presence_penalty": ("penalty",),
    "frequency_penalty": ("penalty",),
    "chat_template_kwargs": ("enable_thinking",),
}
# One row's prompt is too long: that says nothing of the next one's
TOO_LONG = re.compile(
    r"context.?(?:length|window|limit|size)|(?:input|prompt)s?`? tokens|tokens in the messages|"
    r"prompt is too l(?:ong|arge)|reduce the length|input (?:is too long|length)|"
    r"max_(?:model|seq)_len|token count|tokens allowed|\btokens?\b.{0,20}limit|sequence length|"
    r"prompt length|exceeds max length|tokens in this prompt|`?inputs`? must have less|, got -\d|"
    r"超长",
    re.IGNORECASE,
)
_AT_MOST = re.compile(r"less than or equal|at most|<=|[Rr]ange|maximum|exceed|limit|范围")
_LENGTH = re.compile(  # of an answer, as servers call it
    r"max(?:imum)?.?(?:output|new|completion)?.?tokens|(?:output|completion) tokens", re.IGNORECASE
)
LEAST_ROOM = 16  # tokens; an answer in less is none
_NUMBER = re.compile(r"(?<![\w.\-])\d[\d,]*\b(?!\.\d)")
_WINDOW = re.compile(r"(?:(?:length|window|limit) (?:is|of)|size \(|[<>]=?) ?(\d[\d,]*)")
# How a judge is asked for JSON, in the order in which it is tried, and what says that a server, or
# those behind a router, does not take one
FORMS = ("json_schema", "json_object", "tool", "words")
FORM, STREAM, ROOM = "response_format", "stream", "length"
_NO_FORM = re.compile(
    r"(?:response|output).?(?:format|config)|json.?(?:object|mode|output)|schema|guided|grammar|"
    r"structured.?output|outlines|tool.?choice|tool.?(?:use|call)|function.?call|"
    r"requested parameters|developer instruction|\btools?\b.*support|support\w* tools",
    re.IGNORECASE,
)
_SAID_OF = {
    FORM: "{target} does not take the verdict's schema as it was sent: it is asked by {other}.",
    STREAM: "{target} answers in streams only: its verdicts are streamed.",
    ROOM: "{target}: prompt and length together pass its window: answers get {other}.",
    "renamed": "{target} takes no {name}: it is sent as {other}.",
    "left out": "{target} takes no {name}: it is left out, and the model's own default holds.",
}
_NO_WHOLE = re.compile(
    r"\u6d41\u5f0f|non.?stream|only (?:supports? )?stream|"
    r"stream(?:ing)?.?(?:mode|only|is required)|\bstream\b.{0,24}(?:must|true|required)|"
    r"stream\b.{0,24}\bnot support false|stream ?= ?false.{0,24}\bnot\b|"
    r"(?:must|should|requires?|enable|set|use)\b.{0,24}\bstream",
    re.IGNORECASE,
)
# What follows is what the server sent back to us, or would take instead
_ECHO = re.compile(
    r"""(?:['"]input['"]\s*:|input_value\s*=).*?(?=['"]?(?:type|loc|msg|url|ctx)['"]?\s*[:=]|\Z)""",
    re.DOTALL,
)
_NO_MESSAGES = (
    "input ctx url type code status loc param body request failed_generation flagged_input".split()
)
_ADVICE = re.compile(
    r"did you mean|expected one of|(?<![a-z])(?:supported|allowed|valid|permitted)"
    r" (?:parameters|params|arguments|fields|keys|values)",
    re.IGNORECASE,
)
# Where pydantic's and FastAPI's errors point, such as body, temperature
_LOC = re.compile(r"""['"]loc['"]\s*:\s*[\[(](.*?)[\])]\s*(?:,\s*['"]\w+['"]\s*:|\})""")
_EITHER = re.compile(r"\bboth\b|only (?:use )?one|together|mutually exclusive", re.IGNORECASE)
_BEFORE = (
    r"(?:support|supports|parameter|parameters|argument|arguments|field|property|key|name|"
    r"unsupported|unknown|unrecognized|supplied|invalid|model|setting)\W{1,4}"
)
_AFTER = (
    r"\s*(?:[:=\]]|(?:\S+\s+){0,2}?(?:is|are|may|must|can|cannot|can't|should|does|not|has|and|or|"
    r"value|values|range|parameter)\b|[\u4e00-\u9fff])"
)


Event = Literal["asks", "refused", "taken", "failed"]


class ParameterStep(NamedTuple):
    """What a worker asks or tells of `target`, a model at its address: a `call` with this
    `signature` is to go; it was refused, and goes on with `changes`; it was taken; or it failed."""

    target: str
    signature: frozenset[str] = frozenset()
    call: str = ""
    event: Event = "failed"
    changes: Mapping[str, str] = {}  # it travels between processes


class ParameterStanding(NamedTuple):
    """What a run knows of a model: other parameters, if a call may go, and if it finds out."""

    changes: dict[str, str]
    may_go: bool = True
    finds_out: bool = False


class ParameterPort(Protocol):
    """Where the workers of a run share what they learn: see ParameterBook."""

    async def negotiate(self, step: ParameterStep) -> ParameterStanding: ...


@dataclass
class _Target:
    changes: dict[str, str] = field(default_factory=dict)
    taken: list[frozenset[str]] = field(default_factory=list)
    finder: str = ""
    held_until: float = 0.0


class ParameterBook:
    """What one run knows of each model at its address. Of calls whose parameters no answer has
    proved yet one goes at a time, so that a refusal is paid once; `say` hears of each once."""

    def __init__(
        self,
        say: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._clock = say, clock
        self._targets: defaultdict[str, _Target] = defaultdict(_Target)

    def take(self, step: ParameterStep) -> ParameterStanding:
        """Takes a step. Of calls that ask, one goes as long as it is refused, and then the next."""
        target = self._targets[step.target]
        if step.event == "asks":
            is_taken = any(step.signature <= taken for taken in target.taken)
            if is_taken or target.finder:
                may_go = is_taken or self._clock() > target.held_until
                return ParameterStanding(dict(target.changes), may_go)
            target.finder, target.held_until = step.call, self._clock() + HOLD_S
            return ParameterStanding(dict(target.changes), True, True)
        for name, other in step.changes.items():
            before = target.changes.get(name)
            # Two workers may have learnt opposite names of a limit
            target.changes[name] = other if before in (None, other) else LEFT_OUT
            if name == FORM:
                target.changes[name] = max(before or other, other, key=FORMS.index)
            if target.changes[name] != before:
                other = target.changes[name]
                text = _SAID_OF.get(name) or _SAID_OF["renamed" if other else "left out"]
                self._say(text.format(target=step.target, name=name, other=other))
        if step.event == "taken":
            target.taken.append(step.signature)
        if target.finder == step.call:
            target.finder = step.call if step.event == "refused" else ""
            target.held_until = self._clock() + HOLD_S
        return ParameterStanding(dict(target.changes))

    async def negotiate(self, step: ParameterStep) -> ParameterStanding:
        """As `take`: the port of calls in this process."""
        return self.take(step)

    def known(self) -> dict[str, dict[str, str]]:
        """What is left out or goes by another name, for the manifest."""
        return {name: target.changes for name, target in self._targets.items() if target.changes}

    def restore(self, changes_by_target: Mapping[str, Changes]) -> None:
        """Takes what an earlier session found out."""
        for name, changes in changes_by_target.items():
            self._targets[name].changes.update(changes)


class ParameterNegotiator:
    """Asks one model at an address in one worker. Once it has answered with some parameters, calls
    with these cost a look into a set. Without a port all are sent as they are."""

    def __init__(self, target: str = "", port: ParameterPort | None = None) -> None:
        self._target, self.port = target, port
        self.changes: Changes = {}
        self._taken, self._learnt_at = set[frozenset[str]](), -math.inf
        self._asking = asyncio.Lock()

    async def ask(
        self,
        parameters: Mapping[str, Any],
        signature: frozenset[str],
        call: Callable[[Attempt], Awaitable[T]],
    ) -> T:
        """What `call` returns, which says of its attempt when the server has answered. It is called
        again without each parameter that the server refuses, once for each name."""
        attempt = Attempt(self, parameters, signature)
        try:
            while True:
                await attempt.start()
                try:
                    return await call(attempt)
                except JudgeError as error:
                    if not await attempt.adapts_to(error):
                        raise
        finally:
            await attempt.end("failed")

    async def learn(self) -> Changes:
        """What the run has known within LEARN_S, for requests that are no call, as a batch's."""
        if time.monotonic() - self._learnt_at > LEARN_S:
            self._learnt_at = time.monotonic()
            await self.tell("failed")
        return self.changes

    async def tell(
        self,
        event: Event,
        signature: frozenset[str] = frozenset(),
        call: str = "",
        changes: Changes = MappingProxyType({}),
    ) -> ParameterStanding:
        if event == "taken":
            self._taken.add(signature)
        standing = ParameterStanding({})
        if self.port is not None:
            step = ParameterStep(self._target, signature, call, event, dict(changes))
            standing = await self.port.negotiate(step)
        self.changes = {**self.changes, **changes, **standing.changes}
        return standing

    async def wait_to_go(self, signature: frozenset[str], call: str) -> bool:
        """Waits until a call may go. True if it tries parameters for others."""
        if signature in self._taken:
            return False
        async with self._asking:  # one call of this worker asks at a time
            while signature not in self._taken:
                standing = await self.tell("asks", signature, call)
                if standing.finds_out:
                    return True
                if standing.may_go:
                    self._taken.add(signature)
                    break
                await asyncio.sleep(POLL_S)
        return False


class Attempt:
    """A call whose parameters are negotiated, and the length of its answer: `signature` tells calls
    with others apart; a judge's go in one of `forms`."""

    def __init__(
        self,
        negotiator: ParameterNegotiator,
        parameters: Mapping[str, Any],
        signature: frozenset[str],
        forms: Sequence[str] = (),
    ) -> None:
        self._negotiator, self._parameters, self._signature = negotiator, parameters, signature
        self._forms, self._name, self._finds_out = forms, uuid4().hex, False
        self.changes = negotiator.changes
        self._most: int | None = None  # tokens of the last request's answer
        self._room: int | None = None  # for an answer, where that is less
        # Refusals, after which it ends
        n_most = 2 * len(parameters) + len(LIMITS) + len(forms) + 1
        self._n_left = 0 if negotiator.port is None else n_most

    async def start(self) -> None:
        """Waits until the request may go."""
        if self._n_left and not self._finds_out:
            self._finds_out = await self._negotiator.wait_to_go(self._signature, self._name)

    def latest(self) -> Changes:
        """What is to be sent otherwise, as it is known when the request goes out."""
        self.changes = self._negotiator.changes
        return self.changes

    def fit(self, request: dict[str, Any]) -> dict[str, Any]:
        """The request with no longer an answer than there is room for."""
        if limit := next((name for name in LIMITS if name in request), ""):
            self._most = self._room or request[limit]
            return request | {limit: self._most}
        return request

    async def adapts_to(self, error: JudgeError) -> bool:
        """Leaves out what a refusal names, or leaves its answer the room that there is; False if
        neither is said."""
        changes: Changes = {}
        if self._n_left:
            sent = changed_parameters(self._parameters, self.changes)
            sent = sent if self._room is None else self.fit(sent)
            if not (self._forms and wants_stream(error, self.changes)):
                changes = find_change(error, sent, self.changes)
            if not changes and self._forms:
                changes = find_form(error, self._forms, self.changes)
            self._n_left -= bool(changes)
        if not changes and (room := room_left(error, self._most)) is not None:
            self._room, changes = room, {ROOM: "the room that is left"}
        if changes:
            await self._negotiator.tell("refused", self._signature, self._name, changes)
        return bool(changes)

    async def end(self, event: Literal["taken", "failed"]) -> None:
        """Nobody need wait for this call any more: the server has taken its request, or it failed
        for another reason and is tried again later."""
        if self._finds_out:
            self._finds_out = False
            await self._negotiator.tell(event, self._signature, self._name)


def signature_of(parameters: Mapping[str, Any]) -> frozenset[str]:
    """What tells calls with other parameters apart, where a server may take one and not another."""
    return frozenset(
        name if name in _ANY_VALUE else _with_value(name, value)
        for name, value in parameters.items()
    )


def changed_parameters(parameters: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """The parameters without those that are left out, by the names that the server takes."""
    out: dict[str, Any] = {}
    for name, value in parameters.items():
        names, valued = [name], _with_value(name, value) if changes else ""
        while names[-1] and (other := changes.get(names[-1], changes.get(valued))) is not None:
            names.append(LEFT_OUT if other in names else other)
        if names[-1]:
            out[names[-1]] = value
    return out


def find_change(error: JudgeError, sent: Mapping[str, Any], changes: Changes) -> Changes:
    """What to send otherwise, by a refusal that names one of the parameters that were sent; {} for
    one that names none, and for any other error."""
    if not error.words or not sent:
        return {}
    name = _refused(error, sent)
    is_room = name in LIMITS and room_left(error, sent[name]) is not None
    if name is None or name in _KEPT or is_room:
        return {}
    if name in LIMITS:
        other = LIMITS[1 - LIMITS.index(name)]
        is_open = other not in sent and other not in changes
        return {name: other if is_open else LEFT_OUT}
    has_others = re.search(r"supported values? (?:are|is)|should be one of", error.words, re.I)
    is_value = error.code == "unsupported_value" or "does not support" in error.words
    if has_others and is_value and "default" not in error.words:
        return {_with_value(name, sent[name]): LEFT_OUT}
    return {name: LEFT_OUT}


def find_form(error: JudgeError, forms: Sequence[str], changes: Changes) -> Changes:
    """How a judge is to be asked instead, if a refusal objects to how it was: for whole replies, or
    in the form of its schema."""
    if wants_stream(error, changes):
        return {STREAM: "a stream"}
    rest = forms[forms.index(changes.get(FORM, forms[0])) + 1 :]
    return {FORM: rest[0]} if rest and _NO_FORM.search(_said_by(error)) else {}


def wants_stream(error: JudgeError, changes: Changes) -> bool:
    """True if a refusal of a whole reply asks for a stream."""
    return STREAM not in changes and _NO_WHOLE.search(_said_by(error)) is not None


def _said_by(error: JudgeError) -> str:
    """What a refusal objects to, "" for an error that is none of the request's form."""
    if isinstance(error, Throttled | Unauthorised | QuotaExhausted | Refused | Unreadable):
        return ""
    said = error.words or str(error).partition(SAID)[2]
    return "\n".join([*_LOC.findall(said), *messages_in(_parse(said))])[:MOST_CHARACTERS]


def room_left(error: JudgeError, most: int | None) -> int | None:
    """The output tokens that there is room for beside a prompt that fits, by a refusal of one with
    `most`; None if the prompt itself does not fit, or nothing says so."""
    if not error.words or not isinstance(most, int):
        return None
    for text in messages_in(_parse(error.words)):
        text = re.sub(r"^<\d+>|[\[(]1,|from 1\b", " ", text)  # DashScope's code, a range's 1
        is_most = _AT_MOST.search(text) is not None and _LENGTH.search(text) is not None
        if not (TOO_LONG.search(text) or is_most):
            continue
        numbers = {int(number.replace(",", "")) for number in _NUMBER.findall(text)}
        asked = re.search(r"(?:requested\D{0,20}|(?<![<>])= )(\d[\d,]*)", text)
        total = int(asked[1].replace(",", "")) if asked else 0
        sums = {n + most for n in numbers}
        prompts = {total - most} if total > most else numbers - sums
        windows = {int(number.replace(",", "")) for number in _WINDOW.findall(text)} - sums
        is_sum = total > 0 or most in numbers
        rooms = {
            window - prompt
            for prompt in prompts
            for window in (windows or (numbers - sums if is_sum else set[int]())) - {most, total}
            if 0 < prompt < window < prompt + most and prompt != most
        }
        if "at least" in text and "got -" not in text:  # not vLLM's "must be at least 1, got -5"
            rooms = {most // 2}  # it has counted no further
        elif "max_model_len" in text and not rooms and len(numbers - {most}) == 1:
            rooms = {min(numbers) // 2}  # the window alone is named: half of it
        elif not rooms and is_most and not (windows and TOO_LONG.search(text)):
            rooms = {n - ("exclusive" in text) for n in numbers if LEAST_ROOM <= n < most}
        if len(rooms) == 1 and (room := rooms.pop()) >= LEAST_ROOM:
            return room
    return None


def _refused(error: JudgeError, sent: Mapping[str, Any]) -> str | None:
    texts = list(messages_in(_parse(error.words)))
    if any(TOO_LONG.search(text) for text in texts):
        return None
    paths = [error.param] if error.param.lower() not in ("", "none", "null") else []
    paths += [path for text in (error.words, *texts) for path in _LOC.findall(text)]
    if paths:  # it may name what is none of ours
        parts = [part for path in paths for part in re.split(r"[.\[\]'\"\s,]+", path)]
        return next((name for part in parts for name in sent if _names(part, name)), None)
    return next((name for text in texts if (name := _named_in(text, sent)) is not None), None)


def _named_in(text: str, sent: Mapping[str, Any]) -> str | None:
    """The parameter that a message objects to: the first that it names, quoted before others; of
    two that exclude each other the last one."""
    text = _ADVICE.split(text[:MOST_CHARACTERS])[0]
    hits = [
        (spelt != name, rank, match.start(), -len(spelt), name)
        for name in sent
        for spelt, patterns in _patterns(name)
        for rank, pattern in enumerate(patterns)
        if (match := pattern.search(text))
    ]
    if not hits:
        return None
    is_either = _EITHER.search(text) and len({name for *_, name in hits}) > 1
    return (max(hits, key=lambda hit: hit[2]) if is_either else min(hits))[-1]


@cache
def _patterns(name: str) -> list[tuple[str, tuple[re.Pattern[str], ...]]]:
    """How a message may name a parameter or call it: quoted, or bare; one that is a word of English
    only where a name is expected."""
    patterns = []
    for spelt in (name, *_ALIASES.get(name, ())):
        word = r"[ _.-]?".join(map(re.escape, re.split(r"[_.]", spelt)))
        alone = rf"(?<![A-Za-z0-9_.]){word}(?![A-Za-z0-9_])"
        quoted = rf"[`'\"\[]{word}(?=[`'\"\].:=, ])"
        bare = alone if re.search(r"[_.]", spelt) else rf"{_BEFORE}{alone}|{alone}{_AFTER}"
        ranked = tuple(re.compile(pattern, re.IGNORECASE) for pattern in (quoted, bare))
        patterns.append((spelt, ranked))
    return patterns


def _names(part: str, name: str) -> bool:
    bare, *names = (
        re.sub(r"[^a-z0-9]", "", text.lower()) for text in (part, name, *_ALIASES.get(name, ()))
    )
    return bool(bare) and bare in names


def _parse(words: str) -> Any:
    try:
        return json.loads(words)
    except (ValueError, RecursionError):
        return words


def messages_in(content: Any, depth: int = 0) -> Iterator[str]:
    """The messages of an error object, also within others, without what they repeat of the request
    or the answer."""
    if isinstance(content, str):
        inner = _parse(content[content.find("{") :]) if "{" in content and depth < 4 else content
        if isinstance(inner, dict):
            yield from messages_in(inner, depth + 1)
        yield _ECHO.sub("", content)
    elif isinstance(content, Mapping) and depth < 8:
        for key, value in content.items():
            if key not in _NO_MESSAGES:
                yield from messages_in(value, depth + 1)
    elif isinstance(content, list) and depth < 8:
        for item in content:
            yield from messages_in(item, depth + 1)


def _with_value(name: str, value: Any) -> str:
    return f"{name}={json.dumps(value, sort_keys=True, default=str)}"
