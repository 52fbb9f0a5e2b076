"""Candidates behind a server that speaks OpenAI's protocol: OpenAI, vLLM, Ollama."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, cast

from memray_eval.config.environment import server_address, server_key
from memray_eval.config.sections import ServerConfig
from memray_eval.errors import GenerationError, JudgeError, NotWhole, Refused, TooLong, Unavailable
from memray_eval.log_once import log_once
from memray_eval.provider_http.openai_sdk import edge_for, open_client, to_judge_error, warm_up
from memray_eval.provider_http.parameters import (
    Attempt,
    ParameterBook,
    ParameterNegotiator,
    ParameterPort,
    changed_parameters,
    find_change,
    room_left,
    signature_of,
    wants_stream,
)
from memray_eval.provider_http.replies import (
    OPENAI_TOKENS,
    Edge,
    HttpReply,
    InvalidReply,
    JsonObject,
    cut_prompt,
    kind_of,
    read_usage,
    thoughts_in,
    token_count,
    valid_text,
)
from memray_eval.provider_http.retry import whole_reply
from memray_eval.provider_http.transport import MOST_BYTES
from memray_eval.text_processing.thinking import split_thinking
from memray_eval.types import Candidate, Prompt, Response, ToolCall, broken_off

logger = logging.getLogger(__name__)

# A stream that broke or was odd is asked for once more, after about this long.
STREAM_TRIES, PAUSE_S = 2, 1.0
NO_STREAM = (400, 404, 405, 415, 422, 501)  # the status of a server that refuses to stream
LONGEST_ANSWER = 10  # times the time-out, which bounds the wait for the next piece
FILTERED = "content_filter"
# The kind of a part, by its type, if a content is a list of parts
PARTS = {
    **dict.fromkeys(("text", "output_text"), "text"),
    **dict.fromkeys(("thinking", "reasoning", "reasoning_text", "summary_text"), "thinking"),
    **{"redacted_thinking": "thinking", "refusal": "refusal"},
}


class OpenAIGenerator:
    """Asks one candidate's server, at most `max_in_flight` calls at a time, on one event loop.
    Replies stream, for the time to the first token, unless the candidate or the server refuses. A
    refused parameter is left out from then on, in all workers that share `port`. A stream that
    breaks or is odd is asked for again. Whatever becomes of a call is a Response."""

    def __init__(
        self, candidate: Candidate, config: ServerConfig, port: ParameterPort | None = None
    ) -> None:
        key = server_key(candidate.base_url, candidate.api_key_env, f"candidate {candidate.name!r}")
        self._client = open_client(
            key, candidate.base_url, config.timeout_s, max_retries=3, streams=True
        )
        warm_up(self._client)
        self._streams = candidate.stream is not False
        self._is_fixed = candidate.stream != "auto"
        self._slots = asyncio.Semaphore(config.max_in_flight)
        self._longest_s = LONGEST_ANSWER * config.timeout_s
        address = server_address("openai", str(self._client.base_url))
        target = f"{candidate.model} at {address}"
        self._parameters = ParameterNegotiator(target, port or ParameterBook())

    async def generate(self, prompt: Prompt, candidate: Candidate) -> Response:
        """Chat prompts go to the chat completions; plain ones to a server's completions, or to
        OpenAI itself as a chat of one message."""
        is_chat = prompt.is_chat or candidate.base_url is None
        parameters = {**prompt.sampling(candidate), **candidate.extra}
        # Not OpenAI's own, but vLLM's and others': sent only if it is asked for
        if parameters.get("repetition_penalty") == 1.0:
            del parameters["repetition_penalty"]
        answer = partial(self._answer, prompt, candidate, is_chat, parameters)
        async with self._slots:
            try:
                response = await self._parameters.ask(parameters, signature_of(parameters), answer)
            except JudgeError as error:  # a refusal that names no parameter of ours
                response = Response(error=_described(error))
            form = "chat" if is_chat else "plain"
            return response.model_copy(update={"prompt_form": form, "ended_s": time.time()})

    async def _answer(
        self,
        prompt: Prompt,
        candidate: Candidate,
        is_chat: bool,
        parameters: Mapping[str, Any],
        attempt: Attempt,
    ) -> Response:
        """One answer, or what became of it. Raises JudgeError if the server refuses the request
        itself, which it may take with other parameters."""
        for left in reversed(range(STREAM_TRIES)):
            sent = attempt.fit(changed_parameters(parameters, attempt.latest()))
            limit = sent.get("max_tokens", sent.get("max_completion_tokens"))
            answer = _StreamedAnswer(time.perf_counter(), edge_for(self._client), is_chat, limit)
            is_open, streams = False, self._streams  # which another call may change meanwhile
            try:
                async with (
                    whole_reply(self._longest_s, f"{LONGEST_ANSWER} times server.timeout_s"),
                    self._open(prompt, candidate.model, is_chat, sent) as stream,
                ):
                    is_open = True
                    await attempt.end("taken")
                    await answer.listen(stream)
                answer.check_whole(prompt)
                return answer.response()
            except Exception as raised:  # whatever it is, it is this answer's own
                error = to_judge_error(self._client, raised)
                is_adapted_to = find_change(error, sent, attempt.changes)
                if not answer.n_characters and (is_adapted_to or room_left(error, limit)):
                    raise error from None
                if isinstance(error, Refused) and not isinstance(error, TooLong):
                    return answer.response(finish_reason=FILTERED)
                if not streams and self._is_fixed and wants_stream(error, {}):
                    text = "%s answers in streams only: its answers are streamed"
                    log_once(
                        logger, logging.WARNING, f"stream {candidate.name}", text, candidate.name
                    )
                    self._streams = True
                    return await self._answer(prompt, candidate, is_chat, parameters, attempt)
                refused = error.status in NO_STREAM and "stream" in str(error).lower()
                if refused and streams and not self._is_fixed:
                    logger.info("%s does not stream: it is asked for whole answers", candidate.name)
                    self._streams = False
                    return await self._answer(prompt, candidate, is_chat, parameters, attempt)
                if not (left and is_open and isinstance(error, Unavailable)):
                    return answer.response(error)
            await asyncio.sleep(random.uniform(0.5, 1.5) * PAUSE_S)
        raise AssertionError("the last try returns")

    def _open(
        self, prompt: Prompt, model: str, is_chat: bool, parameters: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[Any]:
        """The raw reply to a prompt, as it streams: the SDK does not check what it takes apart."""
        settings: dict[str, Any] = {"model": model, "extra_body": parameters}
        if (request := prompt.request) is not None:
            identity = {"user": request.user, "session_id": request.session}
            sent = {name: valid_text(value) for name, value in identity.items() if value}
            settings["extra_body"] = {**parameters, **sent}
            settings["extra_headers"] = request.headers
        if self._streams:
            settings |= {"stream": True, "stream_options": {"include_usage": True}}
        completions: Any = self._client.completions
        if is_chat:
            completions = self._client.chat.completions
            settings["messages"] = [
                {"role": message.role, "content": valid_text(message.content)}
                for message in prompt.messages
            ] + [*prompt.tool_messages]
        else:
            settings["prompt"] = valid_text("".join(message.content for message in prompt.messages))
        raw = completions.with_streaming_response.create(**settings)
        return cast(AbstractAsyncContextManager[Any], raw)


class _StreamedAnswer:
    """A streamed answer, as it comes."""

    def __init__(self, started: float, edge: Edge, is_chat: bool, max_tokens: int | None) -> None:
        self._started, self._edge, self._is_chat = started, edge, is_chat
        self._max_tokens = max_tokens
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._served_model = ""
        self._refusal: list[str] = []
        self._is_null, self._calls_tool = True, False  # as long as nothing else is heard
        self._tool_calls: dict[int, list[str]] = {}  # by place: id, name, arguments
        self._finish_reason: str | None = None
        self._usage: Any = None
        self._ttft_s: float | None = None
        self._unheard = bytearray()  # what came before the first event
        self.n_characters = 0

    async def listen(self, stream: Any) -> None:
        """Takes in a stream. Raises JudgeError if it is odd, or ends too early."""
        last: HttpReply | None = None
        async for data in self._events(stream.iter_bytes()):
            if data.startswith(b"[DONE]"):
                break
            last = HttpReply(stream.status_code, data)
            event = self._edge.object(last)
            with self._edge.reading(last):
                self._hear(event)
        if last is None:
            self._hear_whole(HttpReply(stream.status_code, bytes(self._unheard)))
        elif self._finish_reason is None:
            with self._edge.reading(last):
                raise InvalidReply("the stream ended before the answer was finished")

    def _hear_whole(self, reply: HttpReply) -> None:
        """Reads a reply that is not a stream. Raises JudgeError if it is not an answer either."""
        answer = self._edge.object(reply)
        with self._edge.reading(reply):
            if "choices" not in answer:
                raise InvalidReply("the reply is no event stream")
            self._hear(answer)
        self._ttft_s = None  # nobody saw the first token
        self._finish_reason = self._finish_reason or "stop"

    async def _events(self, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The data of each event of a stream, without names and comments. What comes before the
        first is kept: it may be a reply in one piece."""
        data, is_stream = list[bytes](), False
        async for line in _lines(parts):
            if not is_stream:
                self._unheard += line + b"\n"
                _check_length("the reply", len(self._unheard))
                is_stream = line.startswith(b"data:")
            text = line.rstrip(b"\r")
            if text.startswith(b"data:"):
                data.append(text[5:].removeprefix(b" "))
            elif not text and data:
                yield b"\n".join(data)
                data = []
        if data:
            yield b"\n".join(data)

    def _hear(self, event: JsonObject) -> None:
        self._usage = event.get("usage") or self._usage
        self._served_model = event.name("model") or self._served_model
        for choice in event.entries("choices"):
            if not isinstance(choice, dict):
                raise InvalidReply("an entry of choices is no object")
            if choice.get("index") in (0, None):  # of several answers the first
                self._hear_choice(JsonObject(choice))

    def _hear_choice(self, choice: JsonObject) -> None:
        named = next((name for name in ("delta", "message") if name in choice), None)
        part = choice
        if self._is_chat:
            part = choice.object(named) if named is not None else JsonObject()
        # Two deltas may hold a half of a character each, so it is joined before it is made valid.
        name = "content" if self._is_chat else "text"
        content, refused = part.get(name), part.get("refusal")
        if isinstance(content, list) and self._is_chat:
            heard = _read_parts(content)
        else:
            heard = {"text": part.raw_text(name)}
        thought = heard.get("thinking", "") + (thoughts_in(part) if self._is_chat else "")
        text = heard["text"]
        self._refusal.append(refused if isinstance(refused, str) else heard.get("refusal", ""))
        self._is_null = self._is_null and content is None
        self._calls_tool |= bool(part.get("tool_calls") or part.get("function_call"))
        self._hear_calls(part.get("tool_calls"))
        if self._ttft_s is None and (text or thought):
            self._ttft_s = time.perf_counter() - self._started
        self.n_characters += len(text) + len(thought) + len(self._refusal[-1])
        _check_length("the answer", self.n_characters)
        self._text.append(text)
        self._thinking.append(thought)
        self._finish_reason = choice.text("finish_reason") or self._finish_reason
        if choice.get("error"):
            self._finish_reason = "error"

    def _hear_calls(self, calls: Any) -> None:
        """Reads calls of tools, whose arguments a stream sends in pieces."""
        for number, call in enumerate(calls if isinstance(calls, list) else ()):
            called = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(called, Mapping):
                continue
            index = call.get("index")
            parts = self._tool_calls.setdefault(
                index if isinstance(index, int) else number, ["", "", ""]
            )
            id_, name, more = call.get("id"), called.get("name"), called.get("arguments")
            parts[0] = id_ if isinstance(id_, str) and id_ else parts[0]
            parts[1] = name if isinstance(name, str) and name else parts[1]
            parts[2] += more if isinstance(more, str) else ""
            _check_length("a call of a tool", len(parts[2]))

    def check_whole(self, prompt: Prompt) -> None:
        """Raises NotWhole if the answer broke off, TooLong if the server says it cut the prompt."""
        if broken := broken_off(self._finish_reason or ""):
            raise NotWhole(broken)
        texts = (message.content for message in prompt.messages)
        counted, _ = read_usage(self._usage, OPENAI_TOKENS)
        if (cut := cut_prompt(texts, counted.input_tokens)) is not None:
            raise cut

    def response(
        self, error: JudgeError | None = None, finish_reason: str | None = None
    ) -> Response:
        """The response; the received part of an answer that ended in an error."""
        parsed = split_thinking(valid_text("".join(self._text)))
        apart = valid_text("".join(self._thinking)).strip()
        usage = self._usage if isinstance(self._usage, Mapping) else {}
        counted, _ = read_usage(usage, OPENAI_TOKENS)
        is_given = {name: token_count(usage.get(name)) is not None for name in usage}
        details, spent = (usage.get(f"{kind}_tokens_details") for kind in ("prompt", "completion"))
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        reasoning = spent.get("reasoning_tokens") if isinstance(spent, Mapping) else None
        return Response(
            text=parsed.text,
            thinking="\n".join(part for part in (apart, parsed.thinking) if part),
            thinking_blocks=parsed.thinking_blocks + bool(apart),
            raw=parsed.raw,
            unknown_mark=parsed.unknown_mark,
            served_model=self._served_model or None,
            error=_described(error) if error is not None else None,
            refusal=valid_text("".join(self._refusal)),
            finish_reason=finish_reason or self._finish_reason,
            prompt_tokens=counted.input_tokens if is_given.get("prompt_tokens") else None,
            cached_tokens=token_count(cached),
            output_tokens=counted.output_tokens if is_given.get("completion_tokens") else None,
            ttft_s=self._ttft_s,
            duration_s=time.perf_counter() - self._started,
            tool_calls=tuple(ToolCall(*parts) for _, parts in sorted(self._tool_calls.items())),
        ).with_cause(
            is_null=self._is_null,
            calls_tool=self._calls_tool,
            reasoning_tokens=token_count(reasoning),
            max_tokens=self._max_tokens,
        )


def _check_length(what: str, length: int) -> None:
    if length > MOST_BYTES:
        raise JudgeError(f"{what} is longer than {MOST_BYTES / 1e6:g} MB, which is refused")


def _described(error: JudgeError) -> str:
    """The error of a candidate's server: it judges nothing."""
    kind = GenerationError if type(error) is JudgeError else type(error)
    return f"{kind.__name__}: {error}"


def _read_parts(parts: list[Any]) -> dict[str, str]:
    """The text, the thinking and the refusal of a content that is a list of parts. A part of
    another type is left out, and the log names the first."""
    heard = dict.fromkeys(PARTS.values(), "")
    for part in ({"text": part} if isinstance(part, str) else part for part in parts):
        if not isinstance(part, Mapping):
            raise InvalidReply(f"a part of content is {kind_of(part)}")
        kind = str(part.get("type") or "text")
        names = (name for name in (kind, "text", "content", "summary") if name in part)
        inner = part.get(next(names, kind))
        if isinstance(inner, list):  # as Mistral's thinking is
            inner = "".join(_read_parts(inner).values())
        if kind not in PARTS:
            log_once(logger, logging.WARNING, "part", "parts of type %.40s are left out", kind)
        elif inner is not None and not isinstance(inner, str):
            raise InvalidReply(f"the {kind} of a part of content is {kind_of(inner)}")
        else:
            heard[PARTS[kind]] += inner or ""
    return heard


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    pending = b""
    async for part in parts:
        *lines, pending = (pending + part).split(b"\n")
        _check_length("one line of the stream", len(pending))
        for line in lines:
            yield line
    yield pending
