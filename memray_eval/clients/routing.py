"""Which judge scores which metric, said before anything runs; and the judges built from their names."""

from __future__ import annotations

import asyncio
import importlib
import importlib.resources
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml
from pydantic import BaseModel, Field, ValidationError

from memray_eval.clients.instructed import JudgeSpec, Price
from memray_eval.clients.policy import RetryPolicy
from memray_eval.config import EMBEDDED, JudgingConfig, Jury, Provider, RunConfig, api_key, describe
from memray_eval.errors import ConfigError, JudgeError, Refused
from memray_eval.metric import RULES, JudgedMetric, Metric
from memray_eval.ports import Judge, Verdict
from memray_eval.types import Frozen, Message, Usage

AUTO = "auto"
SERVER_MODEL = "judge"  # how the embedded judge's server calls its model
EMBEDDED_OUTPUT_TOKENS = 1024
FAMILIES = {
    "openai": ("gpt", "openai/o"),
    "anthropic": ("claude",),
    "google": ("gemini", "gemma"),
    "meta": ("llama",),
    "qwen": ("qwen",),
    "mistral": ("mistral", "mixtral"),
    "deepseek": ("deepseek",),
    "smollm": ("smollm", "embedded"),
}
KEYS: dict[Provider, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "google": "GOOGLE_API_KEY"}


class ModelEntry(Frozen):
    """One judge model: its prices, the limits of a usual account (None: not known), and the parameters it is asked with."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class JudgeTable(Frozen):
    """The known judge models, by provider/model."""

    price_date: str
    fallback_order: tuple[str, ...] = ()
    models: dict[str, ModelEntry]


class Choice(Frozen):
    """Who scores a metric, and why: one judge, or the first of a jury with its `others`."""

    metric: str
    judge: str
    why: str
    others: tuple[str, ...] = ()

    @property
    def judges(self) -> tuple[str, ...]:
        return (self.judge, *self.others)

    def __str__(self) -> str:
        return f"{' + '.join(self.judges)} ({self.why})"


def load_table(path: str | None) -> JudgeTable:
    """The judge table of a file, else the one that comes with the package. Raises ConfigError that names what is wrong."""
    where = Path(path) if path else importlib.resources.files("memray_eval.clients") / "judges.yaml"
    try:
        data = yaml.safe_load(where.read_text("utf-8"))
        data["price_date"] = str(data.get("price_date", "unknown"))
        return JudgeTable.model_validate(data)
    except (OSError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"cannot read the judge table {where}: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(describe(error, JudgeTable))) from None


def choose(metrics: Iterable[Metric], config: RunConfig, table: JudgeTable) -> dict[str, Choice]:
    """The choice for every judged metric. Raises ConfigError for an unknown provider, metric or missing key."""
    judged = [metric for metric in metrics if isinstance(metric, JudgedMetric)]
    wanted = config.judge if isinstance(config.judge, dict) else dict.fromkeys((metric.name for metric in judged), config.judge)
    known = {metric.name for metric in judged}
    for fallback in config.judging.fallbacks:
        _check(fallback, config.judging)
    if unknown := sorted(set(wanted) - known):
        raise ConfigError(f"judge: no judged metric {unknown[0]!r} in this run; there are: {', '.join(sorted(known))}")
    barred = {family(candidate.model) for candidate in config.candidates} if config.judging.exclude_own_family else set()
    return {metric.name: _jury(metric, wanted.get(metric.name, AUTO), config.judging, table, barred) for metric in judged}


def _jury(metric: JudgedMetric, wanted: Jury, config: JudgingConfig, table: JudgeTable, barred: set[str]) -> Choice:
    if isinstance(wanted, str):
        return _choice(metric, wanted, config, table)
    jurors = [juror for juror in dict.fromkeys(wanted) if family(juror) not in barred or not family(juror)]
    if not jurors:
        named = ", ".join(wanted) or "none was named"
        raise ConfigError(f"judge: no juror is left for {metric.name} ({named}); name one of another family")
    if unfit := [juror for juror in jurors if juror in (RULES, AUTO)]:
        raise ConfigError(f"judge: {unfit[0]!r} cannot sit on a jury; name models")
    choices = [_choice(metric, juror, config, table) for juror in jurors]
    left_out = [juror for juror in wanted if juror not in jurors]
    why = f"jury, {config.vote}" + (f"; without {', '.join(left_out)}, of a candidate's family" if left_out else "")
    return choices[0].model_copy(update={"others": tuple(choice.judge for choice in choices[1:]), "why": why})


def family(model: str) -> str:
    """The model family that a name speaks of, "" for an unknown one: gpt-4o and o3 are one, gemini and gemma another."""
    name = model.lower()
    return next((kin for kin, marks in FAMILIES.items() if any(mark in name for mark in marks)), "")


def _choice(metric: JudgedMetric, wanted: str, config: JudgingConfig, table: JudgeTable) -> Choice:
    if wanted == RULES:
        return Choice(metric=metric.name, judge=RULES, why=f"offline estimate; preferred judge: {metric.preferred_judge}")
    if is_embedded(wanted):
        return Choice(metric=metric.name, judge=wanted, why="a small local model: it proves the plumbing, not the scores")
    if wanted != AUTO:
        _check(wanted, config)
        return Choice(metric=metric.name, judge=wanted, why="as configured")
    for name, why in ((metric.preferred_judge, "preferred"), *((name, "fallback") for name in table.fallback_order)):
        if _is_reachable(name, config):
            lacking = "" if why == "preferred" else f": no key for {metric.preferred_judge}"
            return Choice(metric=metric.name, judge=name, why=f"{why}{lacking}")
    return Choice(metric=metric.name, judge=RULES, why=f"offline estimate: no key for {metric.preferred_judge} or any fallback")


def is_embedded(judge: str) -> bool:
    return judge == EMBEDDED or judge.startswith(f"{EMBEDDED}:")


def embedded_model(choices: Mapping[str, Choice]) -> str | None:
    """The model that the embedded judge serves in this run: `embedded`, or the path of `embedded:PATH`. Raises ConfigError
    for two different ones."""
    models = sorted(
        {name.partition(":")[2] or EMBEDDED for choice in choices.values() for name in choice.judges if is_embedded(name)}
    )
    if len(models) > 1:
        raise ConfigError(f"judge: one embedded model a run, not {len(models)}: {', '.join(models)}")
    return models[0] if models else None


def _provider(name: str) -> Provider:
    provider, _, model = name.partition("/")
    if provider not in KEYS or not model:
        raise ConfigError(f"no judge {name!r}; write auto, rules, embedded or PROVIDER/MODEL, with one of: {', '.join(KEYS)}")
    return provider


def _is_reachable(name: str, config: JudgingConfig) -> bool:
    provider = _provider(name)
    return provider in config.base_urls or api_key(config.api_key_envs.get(provider, KEYS[provider])) is not None


def _check(name: str, config: JudgingConfig) -> None:
    """Raises ConfigError for a name that is no judge, or whose key is not set."""
    provider = _provider(name)
    if not _is_reachable(name, config):
        variable = config.api_key_envs.get(provider, KEYS[provider])
        raise ConfigError(f"judge {name} needs a key in the environment variable {variable}, which is not set")


def build_judges(
    choices: Mapping[str, Choice], config: JudgingConfig, embedded_url: str | None = None
) -> dict[str, list[Judge]]:
    """The judges of every metric that has any, `repeats` times each, the same object for the same name. `embedded_url` is
    where the embedded judge's server answers. Call it on the loop that will use them."""
    table, built = load_table(config.models), dict[str, Judge]()

    def judge(name: str) -> Judge:
        if name not in built:
            built[name] = _embedded(name, config, embedded_url) if is_embedded(name) else _build(name, config, table)
        return built[name]

    def with_fallbacks(name: str) -> Judge:
        names = [name, *(fallback for fallback in config.fallbacks if fallback != name)]
        return judge(name) if len(names) == 1 else FallbackJudge([judge(each) for each in names])

    asked = {metric: choice.judges for metric, choice in choices.items() if choice.judge != RULES}
    return {metric: [with_fallbacks(name) for name in names for _ in range(config.repeats)] for metric, names in asked.items()}


def limited(judges: Mapping[str, Sequence[Judge]], max_in_flight: int) -> dict[str, list[Judge]]:
    """The judges with at most so many calls in flight, all together. Call it on the loop that will use them."""
    slots = asyncio.Semaphore(max_in_flight)
    return {metric: [_LimitedJudge(judge, slots) for judge in jury] for metric, jury in judges.items()}


class _LimitedJudge:
    def __init__(self, judge: Judge, slots: asyncio.Semaphore) -> None:
        self.name, self._judge, self._slots = judge.name, judge, slots

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        async with self._slots:
            return await self._judge.judge(messages, judgment)


class _Builder(Protocol):
    def __call__(self, spec: JudgeSpec, policy: RetryPolicy) -> Judge: ...


def _build(name: str, config: JudgingConfig, table: JudgeTable) -> Judge:
    provider, model = _provider(name), name.partition("/")[2]
    entry = table.models.get(name, ModelEntry())
    module = importlib.import_module(f"memray_eval.clients.{provider}")  # an SDK takes a second: only the one that is used
    builder: _Builder = getattr(module, f"{provider}_judge")
    spec = JudgeSpec(
        name=name,
        model=model,
        base_url=config.base_urls.get(provider),
        api_key_env=config.api_key_envs.get(provider),
        timeout_s=config.timeout_s,
        max_output_tokens=config.max_output_tokens,
        parameters=entry.parameters,
        price=Price(entry.input_usd, entry.output_usd),
    )
    return builder(spec, RetryPolicy(tries=config.tries, ceiling_s=config.ceiling_s))


def _embedded(name: str, config: JudgingConfig, url: str | None) -> Judge:
    from memray_eval.clients.openai import openai_judge

    tokens = min(config.max_output_tokens, EMBEDDED_OUTPUT_TOKENS)
    spec = JudgeSpec(
        name=name,
        model=SERVER_MODEL,
        base_url=url,
        timeout_s=config.ceiling_s,
        max_output_tokens=tokens,
        parameters={"temperature": 0, "seed": 0},
    )
    return openai_judge(spec, RetryPolicy(tries=config.tries, ceiling_s=config.ceiling_s), is_small=True)


class FallbackJudge:
    """Asks the next judge when one gives no verdict; the verdict names who gave it. A refusal is a verdict of sorts: final."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        self.name = " then ".join(judge.name for judge in judges)
        self._judges = judges

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        lost, cost_usd = Usage(), 0.0
        for position, judge in enumerate(self._judges):
            try:
                verdict = await judge.judge(messages, judgment)
            except Refused:
                raise
            except JudgeError as error:
                lost = Usage(
                    input_tokens=lost.input_tokens + error.input_tokens, output_tokens=lost.output_tokens + error.output_tokens
                )
                cost_usd += error.cost_usd
                if position == len(self._judges) - 1:
                    error.input_tokens, error.output_tokens, error.cost_usd = lost.input_tokens, lost.output_tokens, cost_usd
                    raise
                continue
            usage = Usage(
                input_tokens=verdict.usage.input_tokens + lost.input_tokens,
                output_tokens=verdict.usage.output_tokens + lost.output_tokens,
            )
            return verdict.model_copy(update={"usage": usage, "cost_usd": verdict.cost_usd + cost_usd})
        raise JudgeError("no judge to ask")
