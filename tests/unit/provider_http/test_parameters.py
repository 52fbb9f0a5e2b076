"""What a refusal names, in the words of many servers, and how a run comes to know it once."""

import asyncio
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from memray_eval.errors import JudgeError
from memray_eval.provider_http.parameters import (
    HOLD_S,
    Attempt,
    ParameterBook,
    ParameterNegotiator,
    ParameterStep,
    changed_parameters,
    find_change,
    signature_of,
)
from memray_eval.provider_http.replies import Edge
from tests.servers.refusals import FORMS

SENT = {
    "temperature": 0,
    "top_p": 1.0,
    "max_tokens": 64,
    "seed": 0,
    "stop": ["\n"],
    "top_k": 5,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "reasoning_effort": "minimal",
    "presence_penalty": 0.5,
    "thinking_config": {"thinking_budget": 0},
    "response_format": {"type": "json_object"},
}


def refusal(body: Any, status: int = 400) -> JudgeError:
    return Edge("https://api.test/v1").refusal(status, None, json.dumps(body).encode())


def openai(message: str, param: str | None = None, code: str | None = None) -> JudgeError:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return refusal({"error": error})


def anthropic(message: str) -> JudgeError:
    return refusal(
        {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    )


def google(message: str) -> JudgeError:
    return refusal({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})


# What servers say, whose they are, and the parameter that is left out then ("-": none of ours)
TEXTS = """
azure through litellm | openai | temperature
    litellm.BadRequestError: AzureException BadRequestError - {"error": {"message": "Unsupported
    parameter: 'temperature' is not supported with this model.", "param": "temperature"}}
litellm, o-series | openai | temperature
    litellm.UnsupportedParamsError: gpt-5-nano doesn't support temperature=0.1 while reasoning
    is active. Only temperature=1 is supported unless reasoning.effort resolves to 'none'. To
    drop unsupported params set `litellm.drop_params = True`
anthropic, both | anthropic | top_p
    `temperature` and `top_p` cannot both be specified for this model. Please use only one.
bedrock, both, bare | anthropic | top_p
    The model returned the following errors: temperature and top_p cannot both be specified for
    this model. Please use only one.
anthropic, deprecated | anthropic | temperature
    temperature is deprecated for this model
anthropic, thinking | anthropic | thinking
    "thinking.type.enabled" is not supported for this model.
anthropic, thinking sets temperature | anthropic | temperature
    `temperature` may only be set to 1 when thinking is enabled.
bedrock, malformed | anthropic | seed
    Malformed input request: #: extraneous key [seed] is not permitted
google, budget | google | thinking_config
    Thinking budget is not supported for this model.
google, budget's value | google | thinking_config
    The thinking budget (52428) is invalid.
vertex, cannot be off | google | thinking_config
    Unable to submit request because Thinking can't be disabled for this model. Remove
    'thinking_config.thinking_budget' from your request and try again.
google, penalty | google | presence_penalty
    Penalty is not enabled for models/gemini-3.8-flash
deepseek | openai | top_k
    Failed to deserialize the JSON body into the target type: unknown field `top_k`, expected
    one of `temperature`, `top_p`
vllm, an echo | openai | seed
    [{'loc': ('body', 'seed'), 'msg': 'odd', 'input': {'a': 'My unsafe daily limit'}}]
too long | openai | -
    'max_tokens' or 'max_completion_tokens' is too large: 200. This model's maximum context
    length is 4096 tokens and your request has 4000 input tokens.
vllm, a message's field | openai | -
    [{'type': 'extra_forbidden', 'loc': ('body', 'messages', 0, 'typed-dict', 'id'), 'msg':
    'Extra inputs are not permitted', 'input': {'temperature': 0}}]
groq, another's | openai | -
    property 'store' is unsupported, did you mean 'stop'?
schema | openai | -
    Invalid parameter: 'response_format' of type 'json_object' is not supported
policy | openai | -
    The prompt was flagged: it tells to stop the seed bank.
"""
# And with fields of their own, or what is sent otherwise
SAID: dict[str, tuple[JudgeError, str | dict[str, str]]] = {
    "copilot, no param": (
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            code="invalid_request_body",
        ),
        {"max_tokens": "max_completion_tokens"},
    ),
    "openai, one value": (
        openai(
            "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. "
            "Supported values are: 'low', 'medium', and 'high'.",
            "reasoning_effort",
            "unsupported_value",
        ),
        {'reasoning_effort="minimal"': ""},
    ),
    "openai, responses' name": (
        openai("Unsupported value.", "reasoning_effort", "unsupported_parameter"),
        "reasoning_effort",
    ),
    "xai": (
        refusal(
            {"code": "invalid-argument", "error": "Model grok does not support presencePenalty"}
        ),
        "presence_penalty",
    ),
    "zhipu": (openai("temperature参数非法", code="1214"), "temperature"),
    "ollama": (refusal({"error": '"llama3.2" does not support thinking'}), "thinking"),
    "messages": (openai("Invalid 'messages[0].content'.", "messages[0].content"), {}),
    "stream": (
        openai(
            "Your organization must be verified to stream this model.",
            "stream",
            "unsupported_value",
        ),
        {},
    ),
    "upstream": (openai("Upstream error: 400", ""), {}),
    "html": (Edge("https://a").refusal(400, None, b"<html>temperature</html>"), {}),
    "bytes": (Edge("https://a").refusal(400, None, b"\xff\xfe{{{"), {}),
}
SERVERS: dict[str, Callable[[str], JudgeError]] = {
    "openai": openai,
    "anthropic": anthropic,
    "google": google,
}
for entry in re.split(r"\n(?=\S)", TEXTS.strip()):
    head, _, words = entry.partition("\n")
    name, server, left_out = head.split(" | ")
    refused = SERVERS[server](" ".join(words.split()))
    SAID[name] = refused, {} if left_out == "-" else left_out


@pytest.mark.parametrize("name", SAID)
def test_a_refusal_is_read_in_any_servers_words(name: str) -> None:
    error, changes = SAID[name]
    sent = {key: value for key, value in SENT.items() if name[:6] != "google" or key != "thinking"}
    assert find_change(error, sent, {}) == ({changes: ""} if isinstance(changes, str) else changes)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["temperature", "top_p", "seed", "stop", "top_k"])
def test_every_form_names_every_parameter(form: str, name: str) -> None:
    assert find_change(refusal(FORMS[form](name)), SENT, {}) == {name: ""}


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_other_errors_say_nothing_of_parameters(status: int) -> None:
    assert find_change(refusal(FORMS["openai"]("temperature"), status), SENT, {}) == {}


def test_a_refusal_of_what_was_not_sent_changes_nothing() -> None:
    assert find_change(refusal(FORMS["openai"]("top_p")), {"temperature": 0}, {}) == {}


def test_a_limit_that_is_refused_under_both_names_is_left_out() -> None:
    first = find_change(refusal(FORMS["openai"]("max_tokens")), {"max_tokens": 9}, {})
    sent = changed_parameters({"max_tokens": 9}, first)
    assert sent == {"max_completion_tokens": 9}
    error = refusal(FORMS["openai"]("max_completion_tokens"))
    changes = {**first, **find_change(error, sent, first)}
    assert changed_parameters({"max_tokens": 9, "seed": 0}, changes) == {"seed": 0}
    # Two workers may have learnt opposite names: neither is sent
    circle = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
    assert changed_parameters({"max_tokens": 9}, circle) == {}


def test_a_value_that_is_refused_leaves_others_alone() -> None:
    changes = {'reasoning_effort="minimal"': ""}
    assert changed_parameters({"reasoning_effort": "minimal"}, changes) == {}
    assert changed_parameters({"reasoning_effort": "low"}, changes) == {"reasoning_effort": "low"}


class Server:
    """Refuses the parameters of `refused`, in an order of its own; with `flaky` also at random
    what it has taken before."""

    def __init__(self, refused: tuple[str, ...], form: str, seed: int, flaky: float = 0.0) -> None:
        self.refused, self.form, self.flaky = refused, form, flaky
        self.chance, self.refusals, self.n = random.Random(seed), Counter[str](), 0

    async def ask(self, parameters: dict[str, Any], attempt: Attempt) -> dict[str, Any]:
        sent = changed_parameters(parameters, attempt.latest())
        self.n += 1
        await asyncio.sleep(0)
        bad = [name for name in self.refused if name in sent]
        if not bad and self.chance.random() < self.flaky:
            bad = list(sent)
        if bad:
            name = self.chance.choice(bad)
            self.refusals[name] += 1
            raise refusal(FORMS[self.form](name))
        await attempt.end("taken")
        return sent


NAMES = ("temperature", "top_p", "seed", "max_tokens", "stop", "top_k")
ASKED = {name: SENT[name] for name in NAMES}


@pytest.mark.heavy
@pytest.mark.parametrize("form", FORMS)
async def test_any_subset_is_refused_once_over_all_workers(form: str) -> None:
    """All 64 subsets, each in an order of its own, asked by three workers of 8 calls each."""

    async def run(refused: tuple[str, ...], seed: int) -> None:
        server, book = Server(refused, form, seed), ParameterBook()
        workers = [ParameterNegotiator("m at host", book) for _ in range(3)]

        async def call(worker: ParameterNegotiator) -> dict[str, Any]:
            return await worker.ask(
                ASKED, signature_of(ASKED), lambda attempt: server.ask(ASKED, attempt)
            )

        answers = await asyncio.gather(*(call(worker) for worker in workers for _ in range(8)))
        kept = {name: ASKED[name] for name in NAMES if name not in refused}
        if "max_tokens" in refused:
            kept["max_completion_tokens"] = ASKED["max_tokens"]
        assert all(answer == kept for answer in answers)
        assert server.refusals == dict.fromkeys(refused, 1)
        assert server.n == 24 + len(refused)

    subsets = [s for n in range(7) for s in itertools.combinations(NAMES, n)]
    await asyncio.gather(*(run(subset, n) for n, subset in enumerate(subsets)))


@pytest.mark.parametrize("seed", range(40))
async def test_negotiation_ends_whatever_the_server_says(seed: int) -> None:
    """A server that refuses anything at any time: every call ends, after at most two requests a
    parameter and a few."""
    server = Server(NAMES[: seed % 7], random.Random(seed).choice(list(FORMS)), seed, flaky=0.7)
    worker = ParameterNegotiator("m at host", ParameterBook())
    async with asyncio.timeout(20):
        for _ in range(5):
            before = server.n
            with suppress(JudgeError):
                await worker.ask(
                    ASKED, signature_of(ASKED), lambda attempt: server.ask(ASKED, attempt)
                )
            assert server.n - before <= 2 * len(ASKED) + 3


def test_a_run_says_once_what_it_leaves_out_and_keeps_it_for_the_next_session() -> None:
    messages: list[str] = []
    book = ParameterBook(messages.append)
    usual = signature_of(ASKED)
    assert book.take(ParameterStep("m at host", usual, "a", "asks")).finds_out
    assert not book.take(ParameterStep("m at host", usual, "b", "asks")).may_go
    book.take(ParameterStep("m at host", usual, "a", "refused", {"temperature": ""}))
    assert not book.take(
        ParameterStep("m at host", usual, "b", "asks")
    ).may_go  # the finder goes on by itself
    book.take(ParameterStep("m at host", usual, "a", "refused", {"temperature": ""}))
    book.take(ParameterStep("m at host", usual, "a", "taken"))
    step = book.take(ParameterStep("m at host", usual, "b", "asks"))
    assert (step.changes, step.may_go, step.finds_out) == ({"temperature": ""}, True, False)
    assert len(messages) == 1
    assert "temperature" in messages[0]
    again = ParameterBook(messages.append)
    again.restore(book.known())
    assert again.take(ParameterStep("m at host", usual, "c", "asks")).changes == {"temperature": ""}
    assert len(messages) == 1


def test_nobody_waits_for_a_first_answer_that_does_not_come() -> None:
    now = [0.0]
    book = ParameterBook(lambda line: None, lambda: now[0])
    usual = signature_of(ASKED)
    assert book.take(ParameterStep("m", usual, "a", "asks")).finds_out
    now[0] = HOLD_S - 1
    assert not book.take(ParameterStep("m", usual, "b", "asks")).may_go
    now[0] = HOLD_S + 1
    assert book.take(ParameterStep("m", usual, "b", "asks")).may_go
    book.take(
        ParameterStep("m", usual, "a", "failed")
    )  # it failed in another way: the next one finds out
    assert book.take(ParameterStep("m", usual, "c", "asks")).finds_out


def test_calls_with_fewer_parameters_need_no_proof_of_their_own() -> None:
    book = ParameterBook(lambda line: None)
    book.take(ParameterStep("m", signature_of(ASKED), "", "taken"))
    fewer = {name: value for name, value in ASKED.items() if name != "stop"}
    longer = {**ASKED, "max_tokens": 4096}
    warmer = {**ASKED, "temperature": 1.0}
    needed = [
        book.take(ParameterStep("m", signature_of(parameters), "a", "asks")).finds_out
        for parameters in (fewer, longer, warmer)
    ]
    assert needed == [False, False, True]
