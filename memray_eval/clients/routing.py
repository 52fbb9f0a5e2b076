"""Which judge scores which metric, said before anything runs, and what is known of each judge model."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from memray_eval.clients.prices import Price
from memray_eval.config import EMBEDDED, JudgingConfig, Jury, Provider, RateLimits, RunConfig, api_key, describe
from memray_eval.errors import ConfigError
from memray_eval.metric import RULES, JudgedMetric, Metric
from memray_eval.types import Frozen

AUTO = "auto"
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
    """One judge model: its prices per million tokens with their date, the limits of a beginner's account (where a run starts
    until the provider says better), and the parameters it is asked with."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    price_date: str = "unknown"
    limits: RateLimits = RateLimits()
    parameters: dict[str, Any] = Field(default_factory=dict)


class JudgeTable(Frozen):
    """The known judge models, by provider/model."""

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


def limits_of(name: str, config: JudgingConfig, table: JudgeTable) -> tuple[RateLimits, bool]:
    """A judge's limits before anything is learnt, and whether they are firm: what the config says is, the table's is not (and
    does not hold for a server of one's own). A local model's server has none."""
    if is_embedded(name):
        return RateLimits(), True
    if name in config.limits:
        return config.limits[name], True
    is_theirs = provider_of(name) not in config.base_urls
    return (table.models.get(name, ModelEntry()).limits if is_theirs else RateLimits()), False


def price_of(name: str, table: JudgeTable) -> Price:
    entry = table.models.get(name, ModelEntry())
    return Price(entry.input_usd, entry.output_usd)


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


def provider_of(name: str) -> Provider:
    provider, _, model = name.partition("/")
    if provider not in KEYS or not model:
        raise ConfigError(f"no judge {name!r}; write auto, rules, embedded or PROVIDER/MODEL, with one of: {', '.join(KEYS)}")
    return provider


def _is_reachable(name: str, config: JudgingConfig) -> bool:
    provider = provider_of(name)
    return provider in config.base_urls or api_key(config.api_key_envs.get(provider, KEYS[provider])) is not None


def _check(name: str, config: JudgingConfig) -> None:
    """Raises ConfigError for a name that is no judge, or whose key is not set."""
    provider = provider_of(name)
    if not _is_reachable(name, config):
        variable = config.api_key_envs.get(provider, KEYS[provider])
        raise ConfigError(f"judge {name} needs a key in the environment variable {variable}, which is not set")
