"""Servers that refuse parameters, over the wire: candidates and the judges of all providers."""

import asyncio
import json
from typing import Any

import pytest

from memray_eval.config.sections import JudgingConfig, NamedServer, ServerConfig
from memray_eval.errors import Declined, JudgeError, NotWhole, Truncated
from memray_eval.models.openai_generator import OpenAIGenerator
from memray_eval.provider_http import closing_clients
from memray_eval.provider_http.parameters import ParameterBook
from memray_eval.types import Candidate, Message, Prompt, Response
from tests.fake_judges import build_judge
from tests.servers.provider import Provider, Raw, serving
from tests.servers.refusals import RefusingServer
from tests.wire.test_environment import Rating

PROMPT = Prompt(
    messages=(Message(role="user", content="Where does it rain?"),), max_tokens=7, stop=("\n",)
)
SIX = ("temperature", "top_p", "seed", "max_tokens", "stop", "top_k")
# Google's and Anthropic's six, as the body has them
GOOGLE = ("temperature", "topP", "seed", "maxOutputTokens", "stopSequences", "thinkingConfig")
ANTHROPIC = ("temperature", "top_p", "seed", "stop_sequences", "top_k", "thinking")
VERDICT = json.dumps({"score": 4})


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """None, each one alone, three, and all from the last: all 64 of every form, in any order, are
    in tests/unit/provider_http/test_parameters.py."""
    return [(), *((name,) for name in names), names[1::2], names[::-1]]


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "sk-test-secret")


async def answers(
    server: Provider, workers: int = 2, calls: int = 3, **fields: Any
) -> list[Response]:
    """What a candidate answers to calls of several workers at once."""
    extra = {"extra": {"top_k": 5}} | fields
    candidate = Candidate(name="c", model="m", backend="openai", base_url=server.base_url, **extra)
    book = ParameterBook()
    async with closing_clients():
        generators = [OpenAIGenerator(candidate, ServerConfig(), book) for _ in range(workers)]
        return await asyncio.gather(
            *(model.generate(PROMPT, candidate) for model in generators for _ in range(calls))
        )


@pytest.mark.parametrize("form", ["openai", "azure", "vllm", "litellm", "fastapi", "xai"])
async def test_a_candidate_is_asked_without_what_its_server_refuses(form: str) -> None:
    """At most one 400 a parameter, over two workers of three calls each."""
    for refused in subsets(SIX):
        script = RefusingServer(form, refused, lambda body: "In Bergen")
        with serving(script) as server:
            assert [response.text for response in await answers(server)] == ["In Bergen"] * 6
        assert script.refusals == dict.fromkeys(refused, 1)
        kept = {*SIX} - {*refused}
        if "max_tokens" in refused:
            kept.add("max_completion_tokens")
        sent = server.requests[-1].keys() - {"model", "messages", "stream", "stream_options"}
        assert sent == kept


async def test_a_refusal_that_names_none_is_an_error_of_its_row_and_no_loop() -> None:
    script = RefusingServer("openai", ("temperature",), says_more=True)
    with serving(script) as server:
        responses = await answers(server)
    assert all("400" in (response.error or "") and response.text == "" for response in responses)
    assert script.refusals == {"temperature": 1, "": 6}


@pytest.mark.parametrize("name", ["temperature", "top_p", "seed", "max_tokens", "stop"])
async def test_what_is_null_is_not_sent(name: str) -> None:
    with serving(lambda body: "In Bergen") as server:
        await answers(server, 1, 1, sampling={name: None}, extra={"reasoning_effort": "low"})
    sent = server.requests[0]
    assert sent.keys() >= {*SIX, "reasoning_effort"} - {name, "top_k"}
    assert name not in sent
    assert sent["reasoning_effort"] == "low"


JUDGES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "openai": (
        "openai/m",
        ("temperature", "top_p", "seed", "max_completion_tokens", "stop", "reasoning_effort"),
        ("openai", "azure", "litellm"),
    ),
    "server": ("local/m", SIX, ("vllm", "fastapi", "groq")),
    "anthropic": ("anthropic/m", ANTHROPIC, ("anthropic", "gateway")),
    "google": ("google/m", GOOGLE, ("google",)),
}
GIVEN: dict[str, dict[str, Any]] = {
    "openai": {"top_p": 0.9, "stop": ["END"], "reasoning_effort": "low"},
    "server": {"top_p": 0.9, "stop": ["END"], "top_k": 5},
    "anthropic": {
        "top_p": 0.9,
        "seed": 1,
        "stop_sequences": ["END"],
        "top_k": 5,
        "thinking": {"type": "adaptive"},
    },
    "google": {"top_p": 0.9, "seed": 1, "stop": ["END"], "thinking_config": {"thinking_budget": 0}},
}


def judge_config(kind: str, server: Provider, **judging: Any) -> JudgingConfig:
    """A judge of that kind; OpenAI's is asked as a provider's account would be."""
    provider = None if kind == "server" else kind
    url = server.root if kind in ("anthropic", "google") else server.base_url
    named = NamedServer(url=url, provider=provider, api_key_env="OPENAI_API_KEY")
    return JudgingConfig(servers={"at": named}, tries=1, cache="off", **judging)


async def verdicts(config: JudgingConfig, workers: int = 2, calls: int = 3) -> list[Any]:
    message = (Message(role="user", content="How good is it?"),)
    book = ParameterBook()
    async with closing_clients():
        judges = [build_judge("at/m", config, parameters=book) for _ in range(workers)]
        return await asyncio.gather(
            *(judge.judge(message, Rating) for judge in judges for _ in range(calls)),
            return_exceptions=True,
        )


def sent_names(body: dict[str, Any], names: tuple[str, ...]) -> set[str]:
    return (body.get("generationConfig", {}) | body).keys() & {*names, "max_completion_tokens"}


@pytest.mark.parametrize(
    ("kind", "refused", "words"),
    [
        ("anthropic", "output_config", "output_config.format: Extra inputs are not permitted"),
        ("google", "systemInstruction", "Developer instruction is not enabled for models/gemma-3"),
        ("google", "responseSchema", "JSON mode is not enabled for models/gemma-3"),
    ],
)
async def test_a_provider_without_schemas_is_asked_by_words(
    kind: str, refused: str, words: str
) -> None:
    no = Raw(json.dumps({"error": {"message": words, "code": 400}}).encode(), 400)

    def reply(body: dict[str, Any]) -> str | Raw:
        return no if refused in body.get("generationConfig", {}) | body else VERDICT

    with serving(reply) as server:
        ends = await verdicts(judge_config(kind, server), workers=1)
        assert [end.judgment.score for end in ends] == [4] * 3
        assert len(server.requests) == 4
        assert '\\"score\\"' in json.dumps(server.requests[-1])


@pytest.mark.parametrize(
    ("kind", "finish", "error"),
    [
        ("anthropic", "pause_turn", NotWhole),
        ("anthropic", "model_context_window_exceeded", Truncated),
        ("anthropic", "refusal", Declined),
        ("google", "MALFORMED_FUNCTION_CALL", NotWhole),
        ("google", "OTHER", NotWhole),
        ("google", "MAX_TOKENS", Truncated),
        ("google", "LANGUAGE", Declined),
        ("google", "SPII", Declined),
    ],
)
async def test_what_a_provider_did_not_end_is_no_verdict(
    kind: str, finish: str, error: type[JudgeError]
) -> None:
    half = [{"type": "text", "text": '{"sc'}]
    body: dict[str, Any] = {"content": half, "stop_reason": finish}
    if kind == "google":
        body = {"candidates": [{"content": {"parts": half}, "finishReason": finish}]}
    with serving(lambda _: Raw(json.dumps(body).encode())) as server:
        [end] = await verdicts(judge_config(kind, server), workers=1, calls=1)
        assert (type(end), len(server.requests)) == (error, 1)


@pytest.mark.parametrize(
    ("kind", "form"), [(kind, form) for kind, (*_, forms) in JUDGES.items() for form in forms]
)
async def test_a_judge_is_asked_without_what_its_server_refuses(kind: str, form: str) -> None:
    _, names, _ = JUDGES[kind]
    for refused in subsets(names):
        script = RefusingServer(form, refused, lambda body: VERDICT)
        with serving(script) as server:
            config = judge_config(kind, server, parameters=GIVEN[kind])
            assert [verdict.judgment.score for verdict in await verdicts(config)] == [4] * 6
        assert script.refusals == dict.fromkeys(refused, 1)
        assert sent_names(server.requests[-1], names) >= {*names} - {*refused}
        assert not sent_names(server.requests[-1], names) & {*refused}


@pytest.mark.parametrize("kind", JUDGES)
async def test_a_judges_refusal_that_names_none_is_an_error_and_no_loop(kind: str) -> None:
    form = JUDGES[kind][2][0]
    script = RefusingServer(form, ("temperature",), says_more=True)
    with serving(script) as server:
        errors = await verdicts(judge_config(kind, server))
    assert all(isinstance(error, JudgeError) and error.status == 400 for error in errors)
    assert script.refusals == {"temperature": 1, "": 6}


@pytest.mark.parametrize("kind", JUDGES)
async def test_a_judge_is_asked_at_temperature_0_unless_the_job_says_otherwise(kind: str) -> None:
    cases: list[tuple[dict[str, Any], float | None]] = [
        ({}, 0),
        ({"temperature": 0.5}, 0.5),
        ({"temperature": 0.5, "at/m": {"temperature": 1}}, 1),
        ({"temperature": None}, None),
    ]
    for parameters, temperature in cases:
        with serving(lambda body: VERDICT) as server:
            await verdicts(judge_config(kind, server, parameters=parameters), 1, 1)
        body = server.requests[0].get("generationConfig", {}) | server.requests[0]
        assert body.get("temperature") == temperature, parameters
