"""Checks what a provider sent and turns its errors into our types. A reply that is no completion is
Unreadable; one with an `error` is that error. No message holds a key or what was sent."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from memray_eval.errors import (
    SAID,
    Declined,
    JudgeError,
    QuotaExhausted,
    Throttled,
    TooLong,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Unreadable,
    WrongAddress,
)
from memray_eval.provider_http.parameters import TOO_LONG, messages_in
from memray_eval.provider_http.retry import parse_retry_after
from memray_eval.types import Usage

EXCERPT = 200  # characters of a reply that an error shows
MOST_TOKENS = 10**9  # of one call: more is no count
_KEYS = re.compile(
    r"\b(?:sk|pk|rk|key|gsk|xai)-[\w*.-]{6,}|\bAIza[\w-]{8,}|\bBearer\s+[^\s\"']{4,}", re.IGNORECASE
)
# What providers call an error, in the order in which to look, by the HTTP status that it stands for
_STATUS_OF = {
    429: "rate_limit resource_exhausted too_many_requests insufficient_quota throttl",
    401: "unauthenticated authentication invalid_api_key unauthorized",
    403: "permission",
    404: "not_found notfound",
    503: "overloaded unavailable",
    504: "deadline timeout",
    500: "server_error internal api_error",
    400: "invalid_request invalid_argument bad_request badrequest failed_precondition "
    "content_filter data_inspection datainspection sensitive",
}
# Of a used-up quota, which is no rate limit
PAYMENT_REQUIRED = 402
_PASSING = (408, 409, 424, 425, 498, 499)  # beside 5xx; 424: TGI failed, 498: Groq is full
_QUOTA_CODES = frozenset(
    "insufficient_quota billing_hard_limit_reached billing_not_active billing_error "
    "insufficient_credits insufficient_balance exceeded_current_quota_error budget_exceeded "
    "Arrearage AllocationQuota.FreeTierOnly insufficient_user_quota credits_exhausted "
    "AccountOverdueError SetLimitExceeded QuotaExceeded".split()
)
# What servers without such a code say of a used-up account, and of a day, a week or a month
_SPENT = re.compile(
    r"credit balance|spend(?:ing)? limit|current quota|billing details|in arrears|overdue balance|"
    r"insufficient (?:\w+ )?(?:balance|funds|credits?)|balance.{0,20}(?:insufficient|too low)|"
    r"(?:credits?|quota) (?:\w+ ){0,2}(?:depleted|exhausted|used up)|quota is not enough|"
    r"(?:out of|no|add|more|free|all available) credits(?! were)|over budget|key limit exceeded|"
    r"(?:session|specified API) usage limits?\b|account (?:is|has been) suspended|good standing|"
    r"suspended.{0,40}(?:spending|invoice)|free (?:tier|quota).{0,40}exhausted|"
    r"余额|欠费|额度(?:不足|已)",
    re.IGNORECASE,
)
_OF_A_DAY = re.compile(
    r"(?:per[- ]|/ ?|for the )(?:day|month)\b|\b(?:dai|week|month)ly\b|\b[RT]PD\b|"
    r"per (?:24 ?h|86,?400 ?s)|ByDay\b|usage limit.{0,20}(?:period|week)|call volume quota|"
    r"\btoday's\b.{0,20}(?:quota|limit)|[今当][日天].{0,8}(?:额度|次数|上限)|本月",
    re.IGNORECASE,
)
_OF_A_MINUTE = re.compile(
    r"(?:per|/)[- ]?(?:min|sec|s\b)|\bminutely\b|\b(?:[RT]PM|QPS)\b|concurren|每分钟", re.IGNORECASE
)
# No words of the limit: a link, an advertisement, the prompt
_BESIDE_IT = re.compile(
    r"https?://\S+|\b(?:see|visit|upgrade|need more|increase|unlock|(?:for|at|to) (?:a )?higher|"
    r"(?:prompt|input|content|messages)[\"']?\s*[:=]).*|[\"“`][^\"”`]{30,}[\"”`]",
    re.IGNORECASE | re.DOTALL,
)
_SOON = re.compile(
    r"(?:retryDelay\W+|(?:retry|again|wait)(?: in| after| for)? )"
    r"(?:\d+ ?ms|(\d+(?:\.\d+)?) ?s(?:ec\w*)?)\b",
    re.IGNORECASE,
)
# A model's own slip, which the server refuses
_NO_JSON = re.compile(
    r"json_validate_failed|failed_generation|incomplete_json|"
    r"model (?:output|produced|generated)[^.]{0,20} (?:not|invalid)[^.]{0,20}json|"
    r"failed to (?:generate|produce)[^.]{0,20}\bvalid json|ValidatorIterator|"
    r"parse (?:the )?model (?:response|output)",
    re.IGNORECASE,
)
SOON_S = 60.0  # a server that says to come again so soon is not used up
# What a filter says of a prompt: Azure, OpenAI, DashScope, DeepSeek, Moonshot, Zhipu, routers
_FILTERED = re.compile(
    r"content.?(?:filter|management|policy)|responsible.?ai|usage polic|\bflagged\b|invalid_prompt|"
    r"data.?inspection|inappropriate content|content exists risk|(?<!case.)sensitive|guardrail|"
    r"violat.{0,30}(?:guideline|polic|terms)|"
    r"prohibited.?content|high.risk|safety (?:system|filter|polic)|blocked by (?!cloudflare)|"
    r"cyber_policy|\bunsafe\b|moderation|jailbreak|prompt.?injection|ethical|illegal content|"
    r"censor|guard\b|use polic|\bharmful\b|\btoxic|risk.?control|"
    r"敏感|违规|违反.{0,10}(?:规|政策|法)|审核|内容.{0,6}(?:安全|风险)",
    re.IGNORECASE,
)
# What is said of an account, in words that a filter may have for a prompt: OpenAI, Anthropic, Groq
_CLOSED_CODES = re.compile(r"\b(?:access_terminated|account_deactivated)\b")
_SHUT = r"(?:terminated|suspended|disabled?|deactivated|blocked|banned|restricted|flagged|closed)"
_CLOSED = re.compile(
    r"^.{0,120}(?:\b(?:access|account|organi[sz]ation|project|key) (?:was|is|has been)\b"
    rf".{{0,20}}\b{_SHUT}\b|\b{_SHUT} (?:account|organi[sz]ation|key)\b|"
    r"[\u8d26\u5e10][\u53f7\u6237].{0,20}(?:\u5c01|\u7981|\u505c\u7528|\u51bb\u7ed3))",
    re.IGNORECASE | re.DOTALL,
)
# OpenAI, Groq; a request that passes later has a figure of what was used, too
_LARGER_THAN_LIMIT = re.compile(r"request too large\b.{0,300}\blimit:? \d", re.IGNORECASE)
_NO_ROUTE = re.compile(
    r"no endpoints (?:found|available) (?:that|matching)|requested parameters|"
    r"no (?:allowed|available) providers",
    re.IGNORECASE,
)
_NO_CHAT = re.compile(
    r"only \w+ (?:in|by|with|through) (?:the )?/?v1/\w+|not a chat model|"
    r"chat.?completions? operation",
    re.IGNORECASE,
)
_NO_SUCH_KEY = re.compile(
    r"api.?key\b.{0,20}(?:not valid|invalid)|(?:invalid|incorrect) api.?key", re.IGNORECASE
)
_NO_SUCH_MODEL = re.compile(
    r"\bmodel\b[^.,:]{0,40} (?:not exist|is not supported by any|has been decommissioned)|"
    r"(?:invalid|unknown|valid) model (?:id|name|identifier|passed)|invalid model:|模型不存在",
    re.IGNORECASE,
)
_THOUGHTS = (
    "reasoning_content reasoning thinking reasoning_text thoughts thought reasoning_details "
    "thinking_blocks"
).split()
T = TypeVar("T")
_KINDS = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", dict: "an object"}
LEAST_CUT = 500  # tokens: a window that a server cuts prompts to has more
# Characters that a token has at most, in a long text, and of a prompt that fills a window exactly
MOST_A_TOKEN, MOST_IN_WINDOW, WINDOW = 8.0, 5.5, 512
_RUNS = re.compile(r"(.)\1{3,}", re.DOTALL)  # spaces and lines, of which a token takes many


class InvalidReply(Exception):
    """Something in a reply is not what it has to be: what, in a few words."""


class HttpReply(NamedTuple):
    """A reply with a success status, as it came."""

    status: int
    body: bytes | str

    @classmethod
    def of_sdk(cls, raw: Any) -> HttpReply:
        """What an SDK's raw response holds, or the response itself."""
        response = getattr(raw, "http_response", raw)
        return cls(response.status_code, response.content)


class JsonObject(dict[str, Any]):
    """An object in a reply. What its methods return has the kind that they promise, else they raise
    InvalidReply."""

    def object(self, name: str) -> JsonObject:
        """The object at a name."""
        return JsonObject(self._of_kind(name, dict))

    def entries(self, name: str) -> Sequence[Any]:
        """The list at a name, of anything."""
        return self._of_kind(name, list)

    def _of_kind(self, name: str, kind: type[T]) -> T:
        if not isinstance(value := self.get(name), kind):
            raise InvalidReply(f"{name} is {kind_of(value) if name in self else 'missing'}")
        return value

    def objects(self, name: str, most: int | None = None) -> Sequence[JsonObject]:
        """The first `most` entries of the list at a name, all objects."""
        for index, entry in enumerate(entries := self.entries(name)[:most]):
            if not isinstance(entry, dict):
                raise InvalidReply(f"{name}[{index}] is {kind_of(entry)}")
        return [JsonObject(entry) for entry in entries]

    def first(self, name: str) -> JsonObject:
        """The first entry of the list at a name, an object."""
        if not (entries := self.objects(name, 1)):
            raise InvalidReply(f"{name} is empty")
        return entries[0]

    def text(self, name: str) -> str:
        """The text at a name, made valid; "" if null or missing."""
        return valid_text(self.raw_text(name))

    def raw_text(self, name: str) -> str:
        """As `text`, of which half a character may stand in another reply."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidReply(f"{name} is {kind_of(value)}")
        return value or ""

    def name(self, name: str) -> str:
        """What a reply may be called by, such as its model: "" if that is missing, or no text."""
        value = self.get(name)
        return valid_text(value).strip()[:EXCERPT] if isinstance(value, str) else ""


_DECLINED = "the content filter declined the prompt"
_NO_MODEL = "the provider has no such model"
_NO_KEY = "the key is wrong or may not use this model"
_BLOCKED = "the provider has blocked the account or its key"
_ABOVE_LIMIT = (
    "prompt and longest answer are more than the account may send at a time: name another model, "
    "raise the account's tier, or allow a shorter answer"
)
# The first that fits a reply: its statuses and what it says (None: any), its error, and the text
_MEANINGS: tuple[
    tuple[Container[int] | None, re.Pattern[str] | None, type[JudgeError], str], ...
] = (
    ((446, 451), None, Declined, _DECLINED),
    (None, _CLOSED_CODES, Unauthorised, _BLOCKED),
    ((400, 401, 403, 422), _CLOSED, Unauthorised, _BLOCKED),
    ((400, 404), _NO_CHAT, UnknownModel, "the model takes no chat completions: name another one"),
    ((413, 429), _LARGER_THAN_LIMIT, JudgeError, _ABOVE_LIMIT),
    ((400, 403, 422), _FILTERED, Declined, _DECLINED),
    ((400, 413, 422), TOO_LONG, TooLong, "the prompt is past the model's window"),
    ((429,), None, Throttled, "too many requests"),
    (None, re.compile(r"^(?:\S* )?model_not_found "), UnknownModel, _NO_MODEL),  # its code or type
    ((400,), _NO_SUCH_MODEL, UnknownModel, _NO_MODEL),
    ((400,), _NO_SUCH_KEY, Unauthorised, _NO_KEY),
    ((401, 403), None, Unauthorised, _NO_KEY),
    ((404,), _NO_ROUTE, JudgeError, "nobody behind this router takes such a request"),
    ((404,), None, UnknownModel, _NO_MODEL),
)


def _meaning(
    status: int | None, content: Mapping[str, Any], named: str, wait_s: float | None
) -> tuple[type[JudgeError], str]:
    """The error and its text for an HTTP status, the error object that came with it, and what that
    object names and says. A gateway's page knows nothing of models."""
    if status is None:
        return Unreadable, ""
    if (spent := _spent_quota(status, content, wait_s)) is not None:
        return QuotaExhausted, (
            f"{status} {spent[:80]}: the account's quota or credit is used up, so waiting does not "
            "help; raise it at the provider, or name another model"
        )
    if status == 404 and not content.keys() & {"message", "code", "type", "status", "error"}:
        return WrongAddress, "404: the address answers, but not as a provider does"
    for statuses, words, kind, text in _MEANINGS:
        if (statuses is None or status in statuses) and (words is None or words.search(named)):
            return kind, f"{status}: {text}"
    is_passing = status in _PASSING or status >= 500
    return Unavailable if is_passing else JudgeError, f"the provider answered {status}"


@dataclass(frozen=True)
class Edge:
    """Where calls go: the address, and the key, which no message may hold."""

    url: str
    key: str = field(default="", repr=False)

    @property
    def host(self) -> str:
        """With its port if the URL names one."""
        return urlsplit(self.url).netloc.rpartition("@")[2] or self.url

    def lost(self, error: BaseException) -> JudgeError:
        """An exception of the way there and back, which is no HTTP error status."""
        # aiohttp takes a quarter of a second to import: only where something is sent
        from memray_eval.provider_http.transport import connection_error

        return connection_error(error, self.host, self.url) or JudgeError(
            f"the call to {self.host} could not be made: {type(error).__name__}"
        )

    def translate(self, error: BaseException, with_response: tuple[type[Any], ...]) -> JudgeError:
        """Whatever an SDK raised, as ours; ours as they are. Its errors `with_response` hold one
        whose status it does not take for success."""
        if isinstance(error, JudgeError):
            return error
        if isinstance(error, with_response):
            response = error.response
            retry_after = response.headers.get("retry-after")
            return self.refusal(response.status_code, retry_after, response.content)
        return self.lost(error)

    def refusal(self, status: int, retry_after: str | None, body: bytes | str) -> JudgeError:
        """The error of a reply whose status an SDK does not take for success."""
        reply = HttpReply(status, body)
        if status < 300:
            return self._odd("its status is not 200" if body else "the body is empty", reply)
        try:
            content = _error_in(_parse(body))
        except InvalidReply:
            content = {}
        return self._error(status, content, reply, parse_retry_after(retry_after))

    def object(self, reply: HttpReply) -> JsonObject:
        """A reply's JSON object. Raises Unreadable if it is none, and the error in it."""
        with self.reading(reply):
            content = _parse(reply.body)
            error = _error_in(content)
            if isinstance(content, dict):
                if not content.get("error") and content.get("type") != "error":
                    return JsonObject(content)
            elif not error:
                raise InvalidReply(f"the body is {kind_of(content)}")
        raise self._error(_status_of(error), error, reply)

    def _error(
        self,
        status: int | None,
        content: Mapping[str, Any],
        reply: HttpReply,
        wait_s: float | None = None,
    ) -> JudgeError:
        """The error for the error object of a reply, with the provider's own words; `status` is the
        HTTP status that the object means (None: it names none)."""
        names = ("code", "type", "status", "param")
        code, kind, state, param = (self._without_keys(_short(content.get(n))) for n in names)
        kind, code = kind or (state if code not in ("", state) else ""), code or state
        named = f"{code} {kind} {' '.join(messages_in(content))}"
        error_type, text = _meaning(status, content, named, wait_s)
        if error_type is not QuotaExhausted:
            if status != reply.status:
                text = f"{self.host} answered {reply.status}, but with an error"
            own = ", ".join([f"code {code}"] * bool(code) + [f"type {kind}"] * bool(kind))
            text += f" ({own})" * bool(own) + SAID + self._excerpt(reply.body)
        own_wait_s = wait_s if error_type is Throttled else None
        error = error_type(
            text, retry_after_s=own_wait_s, status=reply.status, code=code, kind=kind, param=param
        )
        if reply.status in (400, 422):
            error.words = _decoded(reply.body)
        return error

    @contextmanager
    def reading(self, reply: HttpReply, usage: Usage | None = None) -> Iterator[None]:
        """Turns an InvalidReply of the block into Unreadable, with what the call cost."""
        try:
            yield
        except InvalidReply as odd:
            error = self._odd(str(odd), reply)
            if usage is not None:
                error.set_tokens(usage)
            raise error from None

    def _odd(self, problem: str, reply: HttpReply) -> Unreadable:
        text = f"{self.host} answered {reply.status}, but with no completion: {problem}"
        return Unreadable(text + SAID + self._excerpt(reply.body), status=reply.status)

    def _excerpt(self, body: bytes | str) -> str:
        """The reply's first characters on one line, escaped and without keys."""
        text = _decoded(body[: 40 * EXCERPT])  # a key that is cut off would not be found
        content = " ".join(self._without_keys(valid_text(text)).split())
        shown = content[:EXCERPT] + ("..." if len(content) > EXCERPT else "")
        escaped = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode()
            for character in shown
        )
        return escaped or "(nothing)"

    def _without_keys(self, text: str) -> str:
        if len(self.key) >= 8:
            text = text.replace(self.key, "[key]")
        return _KEYS.sub("[key]", text)


def cut_prompt(texts: Iterable[str], tokens: int | None) -> TooLong | None:
    """What a server's own count says of a prompt that it has silently cut to its window; None if
    it may have read all of it."""
    if tokens is None or tokens < LEAST_CUT:
        return None
    is_window = min(tokens % WINDOW, -tokens % WINDOW) <= 2
    most = tokens * (MOST_IN_WINDOW if is_window else MOST_A_TOKEN)
    text = "".join(texts)
    if len(text) <= most or len(_RUNS.sub(r"\1", text)) <= most:
        return None
    return TooLong(
        f"the server read only {tokens} tokens of the prompt and cut the rest off: raise its "
        "window (Ollama: num_ctx), or shorten the prompt"
    )


def failed_generation(error: JudgeError) -> str | None:
    """What the model wrote, where a server refuses that as no JSON (Groq); None for all others."""
    if not _NO_JSON.search(f"{error.code} {error.words}"):
        return None
    try:
        written = _error_in(_parse(error.words)).get("failed_generation")
    except InvalidReply:
        written = ""
    return written if isinstance(written, str) else ""


def joined_events(reply: HttpReply) -> HttpReply:
    """A completion that came as a stream of events, as if it had come whole."""
    body = _decoded(reply.body)
    if not body.lstrip().startswith(("data:", "event:", ":")):
        return reply
    whole: dict[str, Any] = {}
    try:
        for line in body.split("\n"):
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data not in ("", "[DONE]"):
                if (event := json.loads(data)).get("error"):
                    return HttpReply(reply.status, data)
                _join(whole, event)
        if not whole:  # comments, and a completion
            said = (line for line in body.split("\n") if not line.startswith(":"))
            return HttpReply(reply.status, "\n".join(said))
        if not whole.setdefault("choices", [{}])[0].get("finish_reason"):
            whole["choices"] = []
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return reply  # odd, and read as what it is
    return HttpReply(reply.status, json.dumps(whole))


def _join(whole: dict[str, Any], piece: Mapping[str, Any], adds: bool = False) -> None:
    """Adds a piece of an object: of a list the first entry; texts of a message to texts."""
    for name, value in piece.items():
        if name in ("delta", "message"):
            _join(whole.setdefault("message", {}), value or {}, adds=True)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            _join(whole.setdefault(name, [{}])[0], value[0], adds)
        elif adds and isinstance(value, dict):
            _join(whole.setdefault(name, {}), value, adds)
        elif adds and isinstance(value, str) and name not in ("role", "id", "type"):
            whole[name] = (whole.get(name) or "") + value
        elif value not in (None, []):
            whole[name] = value


def thoughts_in(message: Mapping[str, Any]) -> str:
    """The thinking that stands in a field of its own, by any server's name for it: one that has
    several says the same in them."""
    return next(filter(None, (_text_in(message.get(name)) for name in _THOUGHTS)), "")


def _text_in(value: Any) -> str:
    if isinstance(value, list):
        return "".join(map(_text_in, value))
    if isinstance(value, Mapping):
        names = ("text", "thinking", "content", "summary")
        return next(filter(None, (_text_in(value.get(name)) for name in names)), "")
    return value if isinstance(value, str) else ""


def valid_text(text: str) -> str:
    """The text as valid Unicode: halves of a character are joined, a lone one is U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


class TokenFields(NamedTuple):
    """Where a provider's usage object counts a call's tokens: each kind is the sum of these fields,
    of which all but the first of input and output may be missing; the first of output too, if the
    others have some. A dot leads into an object. Of the input, `cached` were read from the prompt
    cache and `written` into it. Some count `thinking` beside the output, as `total` says."""

    input: tuple[str, ...]
    output: tuple[str, ...]
    cached: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    thinking: str = ""
    total: str = ""


OPENAI_TOKENS = TokenFields(
    input=("prompt_tokens",),
    output=("completion_tokens",),
    cached=("prompt_tokens_details.cached_tokens",),
    written=("prompt_tokens_details.cache_write_tokens",),
    thinking="completion_tokens_details.reasoning_tokens",
    total="total_tokens",
)


def read_usage(usage: Any, fields: TokenFields) -> tuple[Usage, bool]:
    """The tokens of a usage object, and if it gives all of them: what is no whole number from 0 to
    MOST_TOKENS is 0. What a server counts apart is added: thinking, and cached and written tokens
    that are more than the input. It does not give all if its total says so."""
    content = usage if isinstance(usage, Mapping) else {}
    sums, is_whole = [], True
    for names, needed in zip(fields[:4], ("always", "alone", "", ""), strict=True):
        values = [_value_at(content, name) for name in names]
        is_first_needed = needed == "always" or (needed == "alone" and not any(values[1:]))
        counts = [
            0 if value is None and not (is_first_needed and index == 0) else token_count(value)
            for index, value in enumerate(values)
        ]
        is_whole = is_whole and None not in counts
        sums.append(sum(count or 0 for count in counts) if None not in counts else 0)
    inputs, outputs, cached, written = sums
    thinking, total = (
        token_count(_value_at(content, name)) or 0 for name in (fields.thinking, fields.total)
    )
    kept, apart = cached + written, total - inputs - outputs
    if kept and (kept > inputs or apart == kept):
        is_whole, inputs = is_whole and apart == kept, inputs + kept
    elif thinking and (apart == thinking or (not total and thinking > outputs)):  # as xAI
        outputs += thinking
    elif apart > 0:  # as what passes Gemini's on without its thinking
        is_whole = False
    tokens = Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        cached_input_tokens=cached,
        cache_write_tokens=written,
    )
    return tokens, is_whole


def _value_at(content: Mapping[str, Any], name: str) -> Any:
    """The value at a name, or behind dots in objects within; None if nothing does."""
    outer, dot, inner = name.partition(".")
    if not dot:
        return content.get(name)
    held = content.get(outer)
    return _value_at(held, inner) if isinstance(held, Mapping) else held


def token_count(value: Any) -> int | None:
    """A count of tokens; None for what is no whole number from 0 to MOST_TOKENS."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MOST_TOKENS else None


def kind_of(value: Any) -> str:
    """What a JSON value is, as an error says it."""
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), "a number")


def _decoded(body: bytes | str) -> str:
    return body.decode("utf-8", "replace") if isinstance(body, bytes) else body


def _parse(body: bytes | str) -> Any:
    """A body's JSON. Raises InvalidReply."""
    text = _decoded(body).removeprefix("\ufeff")
    if not text.strip():
        raise InvalidReply("the body is empty")
    try:
        return json.loads(text)
    except ValueError:
        raise InvalidReply(
            "the body is no JSON"
            if text.lstrip()[:1] != "<"
            else "the body is a page of HTML or XML"
        ) from None
    except RecursionError:
        raise InvalidReply("the body is nested too deeply") from None


def _error_in(content: Any) -> Mapping[str, Any]:
    """The error object of a reply, wherever providers put it: under `error`, in a list of one, or
    as the whole; {} if there is none."""
    is_list = isinstance(content, list)
    if is_list:
        content = content[0] if content else None
    if not isinstance(content, Mapping):
        return {}
    error = content.get("error")
    if isinstance(error, Mapping):
        return error
    return {} if is_list and not error else content


def _status_of(error: Mapping[str, Any]) -> int | None:
    """The HTTP status that an error object in a reply with a success status stands for."""
    code = error.get("code")
    if isinstance(code, int | str) and re.fullmatch(r"[45]\d\d", str(code)):
        return int(code)
    named = " ".join(_short(error.get(name)) for name in ("code", "status", "type")).lower()
    for status, names in _STATUS_OF.items():
        if any(name in named for name in names.split()):
            return status
    return None


def _short(value: Any) -> str:
    return valid_text(str(value))[:60] if type(value) in (str, int) else ""


def _spent_quota(status: int, error: Mapping[str, Any], wait_s: float | None) -> str | None:
    """What of a reply's error object says that the account's quota or credit is used up: its status
    or the provider's codes, Google's of a day, or words that no limit a minute has; None if nothing
    does. `wait_s`: when it says to come again."""
    of_a_day = re.findall(r'"quotaId": "([^"]*PerDay[^"]*)"', json.dumps(error.get("details")))
    for code in (error.get("code"), error.get("type"), *of_a_day):
        if isinstance(code, str) and (code in _QUOTA_CODES or code in of_a_day):
            return code
    message = error.get("message", error.get("error"))
    if status in (400, 401, 403, 412, 429) and isinstance(message, str):
        details = json.dumps(error.get("details"))
        waits = [float(wait or 0) for wait in _SOON.findall(f"{details} {message}")]
        is_soon = min([*waits, SOON_S + 1 if wait_s is None else wait_s]) <= SOON_S
        message = _BESIDE_IT.sub(" ", next(messages_in(message)))
        said = _SPENT.search(message) or (status in (403, 429) and _OF_A_DAY.search(message))
        minute = _OF_A_MINUTE.search(f"{message} {details}", 0, said.start()) if said else None
        if said and not minute and not is_soon and "PerMinute" not in details:
            return said[0]
    return "payment required" if status == PAYMENT_REQUIRED else None
