"""Which judge scores which metric: never silently."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.clients.building import FallbackJudge
from memray_eval.clients.routing import choose, load_table
from memray_eval.config import RunConfig
from memray_eval.errors import ConfigError, JudgeError, Refused, Unavailable
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics, pick
from memray_eval.ports import Verdict
from memray_eval.types import Message, Usage

OPUS, GPT4O = "anthropic/claude-opus-4-5", "openai/gpt-4o"
METRICS = pick(["memory_utilization", "empathy", "relevance"])


def chosen(judge: Any, **judging: Any) -> dict[str, tuple[str, str]]:
    config = RunConfig.model_validate(
        {"dataset": "d", "candidates": [{"name": "a", "model": "m"}], "judge": judge, "judging": judging}
    )
    return {name: (choice.judge, choice.why) for name, choice in choose(METRICS, config, load_table(None)).items()}


def test_seed_000s_table_is_the_preference() -> None:
    preferred = {m.name: m.preferred_judge for m in all_metrics().values() if isinstance(m, JudgedMetric)}
    assert preferred == {
        "persona_consistency": OPUS,
        "emotional_congruence": GPT4O,
        "memory_utilization": OPUS,
        "coherence": GPT4O,
        "helpfulness": OPUS,
        "empathy": GPT4O,
        "politeness": GPT4O,
        "safety": OPUS,
        "logical_consistency": "openai/gpt-5.2",
        "conversational_continuity": "google/gemini-2.0-flash",
        "groundedness": OPUS,
    }
    assert set(preferred.values()) <= set(load_table(None).models)


def test_auto_without_a_key_estimates_and_says_why() -> None:
    judges = chosen("auto")
    assert judges["empathy"] == ("rules", f"offline estimate: no key for {GPT4O} or any fallback")
    assert "relevance" not in judges


def test_auto_takes_the_preferred_judge_else_a_fallback_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    judges = chosen("auto")
    assert judges["empathy"] == (GPT4O, "preferred")
    assert judges["memory_utilization"] == (GPT4O, f"fallback: no key for {OPUS}")


def test_rules_ask_nobody_whatever_keys_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert {judge for judge, _ in chosen("rules").values()} == {"rules"}


def test_a_wrong_fallback_is_told_beforehand() -> None:
    with pytest.raises(ConfigError, match="no judge 'gpt'"):
        chosen("rules", fallbacks=["gpt"])


def test_a_mapping_forces_some_and_leaves_the_others_to_auto() -> None:
    judges = chosen({"empathy": "openai/mine"}, base_urls={"openai": "http://x/v1"})
    assert judges["empathy"] == ("openai/mine", "as configured")
    assert judges["memory_utilization"] == (GPT4O, f"fallback: no key for {OPUS}")


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        ("gpt-4o", "no judge 'gpt-4o'; write auto, rules, embedded or PROVIDER/MODEL"),
        ("mistral/large", "no judge 'mistral/large'"),
        (OPUS, f"judge {OPUS} needs a key in the environment variable ANTHROPIC_API_KEY"),
        ({"relevance": GPT4O}, "no judged metric 'relevance' in this run; there are: empathy, memory_utilization"),
    ],
)
def test_a_wrong_judge_is_named(judge: Any, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        chosen(judge)
    assert told in str(raised.value)


def test_a_jury_is_named_whole_and_may_leave_out_the_candidates_family() -> None:
    everywhere = {"openai": "http://x/v1", "anthropic": "http://x", "google": "http://x"}
    jury = [GPT4O, OPUS, "google/gemini-2.0-flash"]
    assert chosen({"empathy": jury}, base_urls=everywhere)["empathy"] == (GPT4O, "jury, median")
    config = {"dataset": "d", "candidates": [{"name": "a", "model": "gpt-4o-mini"}], "judge": {"empathy": jury}}
    judging = {"base_urls": everywhere, "exclude_own_family": True, "vote": "majority"}
    choice = choose(METRICS, RunConfig.model_validate(config | {"judging": judging}), load_table(None))["empathy"]
    assert choice.judges == (OPUS, "google/gemini-2.0-flash")
    assert str(choice) == (f"{OPUS} + google/gemini-2.0-flash (jury, majority; without {GPT4O}, of a candidate's family)")
    with pytest.raises(ConfigError, match="no juror is left for empathy"):
        choose(
            METRICS, RunConfig.model_validate(config | {"judge": {"empathy": [GPT4O]}, "judging": judging}), load_table(None)
        )
    with pytest.raises(ConfigError, match="'rules' cannot sit on a jury"):
        chosen({"empathy": ["rules", GPT4O]}, base_urls=everywhere)


def test_a_table_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "judges.yaml"
    path.write_text(
        "models: {openai/mine: {input_usd: 1, output_usd: 2, price_date: '2026-11-01', limits: {requests_per_min: 5}}}\n"
    )
    assert load_table(str(path)).models["openai/mine"].output_usd == 2
    path.write_text("models: {a/b: {price: 1}}\n")
    with pytest.raises(ConfigError, match=r"models\.a/b\.price: no such key"):
        load_table(str(path))
    with pytest.raises(ConfigError, match="cannot read the judge table"):
        load_table(str(tmp_path / "absent.yaml"))


class Nothing(BaseModel):
    """A judgment without a field."""


class Fixed:
    """Returns a verdict or raises an error."""

    def __init__(self, name: str, error: JudgeError | None = None) -> None:
        self.name, self.error = name, error

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        if self.error:
            raise self.error
        return Verdict(judgment=Nothing(), judge=self.name, usage=Usage(input_tokens=5), cost_usd=1.0)


def failing(error: JudgeError) -> JudgeError:
    error.input_tokens, error.cost_usd = 3, 0.25
    return error


def test_a_fallback_judges_when_the_first_cannot_and_both_are_paid_for() -> None:
    judge = FallbackJudge([Fixed("a", failing(Unavailable("down"))), Fixed("b")])
    verdict = asyncio.run(judge.judge([], Nothing))
    assert (verdict.judge, verdict.usage.input_tokens, verdict.cost_usd) == ("b", 8, 1.25)


def test_a_refusal_is_final_and_the_last_error_is_told() -> None:
    with pytest.raises(Refused):
        asyncio.run(FallbackJudge([Fixed("a", Refused("no")), Fixed("b")]).judge([], Nothing))
    both = FallbackJudge([Fixed("a", failing(Unavailable("down"))), Fixed("b", failing(Unavailable("down too")))])
    with pytest.raises(Unavailable, match="down too") as raised:
        asyncio.run(both.judge([], Nothing))
    assert (raised.value.input_tokens, raised.value.cost_usd) == (6, 0.5)
