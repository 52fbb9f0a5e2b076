"""Which judge scores which metric, said before anything runs, and what is known of each judge
model."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import Field, ValidationError

from memray_eval.config.environment import (
    api_key,
    environment_url,
    host_of,
    is_private_host,
    server_address,
)
from memray_eval.config.packages import is_installed, require_package
from memray_eval.config.problems import describe, nearest
from memray_eval.config.sections import (
    EMBEDDED,
    JudgeRequest,
    JudgingConfig,
    Jury,
    NamedServer,
    OnJudgeFailure,
    Provider,
    RateLimits,
    names_a_file,
)
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError
from memray_eval.extensions import OwnObject
from memray_eval.judges.prices import FREE, Price
from memray_eval.judges.prompt_cache import PromptCache
from memray_eval.metric import RULES, JudgedMetric, Metric
from memray_eval.types import Frozen

AUTO = "auto"
GOOGLE_SDK = "google.genai"  # an extra
T = TypeVar("T")
# What a word of a model's name begins or ends with, of the models that no judge table knows.
FAMILY_MARKS = {
    "openai": ("gpt",),
    "anthropic": ("claude",),
    "google": ("gemini", "gemma"),
    "meta": ("llama",),
    "qwen": ("qwen",),
    "mistral": ("mistral", "mixtral"),
    "deepseek": ("deepseek",),
    "smollm": ("smollm", "embedded"),
}
_O_SERIES = re.compile(r"o\d\b")  # OpenAI's o1, o3 and their kin
KEYS: dict[Provider, str] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GOOGLE_API_KEY",
}


class ModelEntry(Frozen):
    """One judge model: its prices per million tokens with their date (none: not known), the limits
    of a beginner's account (where a run starts until the provider says better), the parameters it
    is asked with, and its family ("": told from its name).

    A prompt's start is cached from `cache_floor_tokens` on; with `cache_marks` only up to where
    the request marks it, and writing it is billed. `cache_date` is that of these and of the cache's
    prices. `takes_batches` says whether the provider's batch API takes the model, and
    `batch_factor` the share of its prices that are billed there. None: not known."""

    input_usd: float | None = None
    output_usd: float | None = None
    price_date: str = "unknown"
    cached_input_usd: float | None = None
    cache_write_usd: float | None = None
    cache_write_1h_usd: float | None = None
    cache_floor_tokens: int | None = None
    cache_marks: bool = False
    cache_date: str = "unknown"
    takes_batches: bool | None = None
    batch_factor: float | None = None
    limits: RateLimits = RateLimits()
    parameters: dict[str, Any] = Field(default_factory=dict)
    family: str = ""


class JudgeTable(Frozen):
    """The known judge models, by provider/model."""

    fallback_order: tuple[str, ...] = ()
    models: dict[str, ModelEntry]


class Rubric(Frozen):
    """The words that a judge goes by: a rubric of the metric's, or a user's file, with what a
    person calls it."""

    name: str
    text: str


class JudgeAssignment(Frozen):
    """Who scores a metric, or one `task` of it, and why: one judge, or the first of a jury with its
    `others`; by which rubric, where the metric has several; and what stands in where no judge gives
    a verdict. `withheld` says why the rules give no estimate, where they are to score it and cannot
    tell: nobody scores it then."""

    metric: str
    judge: str
    why: str
    others: tuple[str, ...] = ()
    task: str = ""
    rubric: Rubric | None = None
    on_failure: OnJudgeFailure = "error"
    withheld: str = ""

    @property
    def judges(self) -> tuple[str, ...]:
        return (self.judge, *self.others)

    @property
    def asked_by(self) -> str:
        """What the rubric is called that a judge is asked by; "" where it is the metric's only one,
        and for the rules, which know none."""
        return self.rubric.name if self.rubric is not None and self.judge != RULES else ""

    def __str__(self) -> str:
        if self.withheld:
            return f"nobody ({self.withheld})"
        told = [self.why]
        if self.asked_by:
            told.append(f"rubric {self.asked_by}")
        if self.on_failure != "error" and self.judge != RULES:
            told.append(f"without a verdict {self.on_failure}")
        return f"{' + '.join(self.judges)} ({'; '.join(told)})"


def load_table(path: str | None) -> JudgeTable:
    """The judge table of a file, else the one that comes with the package. Raises ConfigError that
    names what is wrong."""
    where = Path(path) if path else importlib.resources.files("memray_eval.judges") / "judges.yaml"
    try:
        data = parse_yaml(where.read_text("utf-8"))
        return JudgeTable.model_validate(data)
    except (OSError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"cannot read the judge table {where}: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(describe(error, JudgeTable))) from None


def assign_judges(
    metrics: Iterable[Metric], request: JudgeRequest, table: JudgeTable, tasks: Collection[str] = ()
) -> dict[str, JudgeAssignment]:
    """The choice for every judged metric, and under "metric/task" for every task that has a judge
    or a rubric of its own; `tasks` are the suite's, where it names them. Raises ConfigError for an
    unknown provider, metric, task or rubric, a missing key, a rubric's file that cannot be read."""
    judged = {metric.name: metric for metric in metrics if isinstance(metric, JudgedMetric)}
    judging, wanted = request.judging, request.judge
    if not isinstance(wanted, dict):
        wanted = dict.fromkeys(judged, wanted)
    for fallback in judging.fallbacks:
        check_judge(fallback, judging)
    _check_keys("judge", wanted, judged, tasks)
    if judged:  # a run that only generates has none, whatever its job says of rubrics
        _check_keys("rubrics", request.rubrics, judged, tasks)
        if unknown := sorted(set(request.estimates) - set(judged)):
            raise ConfigError(
                f"estimates: no judged metric {unknown[0]!r} in this run; there are: "
                f"{', '.join(sorted(judged))}"
            )
        _check_failures(judging, judged.values())
    barred = {family(model) for model in request.models} if judging.exclude_own_family else set()
    choices = {}
    for key, metric in _keys(judged, (*wanted, *request.rubrics)):
        jury, way = _own(wanted, key, metric), judging.way_on_failure
        more = {
            "task": key.partition("/")[2],
            "rubric": _rubric(metric, key, _own(request.rubrics, key, metric)),
            "on_failure": way if way in metric.without_judge else "error",
        }
        choice = _jury(metric, AUTO if jury is None else jury, judging, table, barred)
        if choice.judge == RULES:
            more["withheld"] = _withheld(metric, request.estimates.get(metric.name))
        choices[key] = choice.model_copy(update=more)
    _check_one_stage(choices, judged)
    return choices


def _withheld(metric: JudgedMetric, is_wanted: bool | None) -> str:
    """Why the rules give no estimate of a metric; "" where they do."""
    if not metric.has_estimate:
        return "it has no offline estimate; name a judge with --judge PROVIDER/MODEL"
    if is_wanted is False:
        return f"estimates.{metric.name} is false, and no judge is named"
    if is_wanted or metric.worth is None or not metric.worth.cannot_tell:
        return ""
    return (
        f"rules cannot tell: {metric.worth}; name a judge, or take the estimate with --set "
        f"estimates.{metric.name}=true"
    )


def _keys(
    judged: Mapping[str, JudgedMetric], named: Iterable[str]
) -> Iterator[tuple[str, JudgedMetric]]:
    """Every metric, each followed by those of its tasks that are named."""
    tasks = sorted({key for key in named if "/" in key})
    for name, metric in judged.items():
        yield name, metric
        yield from ((key, metric) for key in tasks if key.partition("/")[0] == name)


def _own(by_key: Mapping[str, T], key: str, metric: Metric) -> T | None:
    return by_key.get(key, by_key.get(metric.name))


def _check_keys(
    where: str, keys: Iterable[str], judged: Mapping[str, JudgedMetric], tasks: Collection[str]
) -> None:
    for key in sorted(keys):
        name, slash, task = key.partition("/")
        if name not in judged:
            raise ConfigError(
                f"{where}: no judged metric {name!r} in this run; there are: "
                f"{', '.join(sorted(judged))}"
            )
        if slash and (not task or (tasks and task not in tasks)):
            hint = nearest(task, tasks)
            told = f"did you mean {hint!r}?" if hint else f"there are: {', '.join(tasks)}"
            raise ConfigError(
                f"{where}: {key!r} names no task of this suite" + (f"; {told}" if tasks else "")
            )


def _check_failures(config: JudgingConfig, judged: Iterable[JudgedMetric]) -> None:
    way = config.way_on_failure
    if way != "error" and not any(way in metric.without_judge for metric in judged):
        names = ", ".join(metric.name for metric in judged)
        raise ConfigError(
            f"judging.on_judge_failure: {way} means nothing for {names}; leave it at error"
        )


def _check_one_stage(
    choices: Mapping[str, JudgeAssignment], judged: Mapping[str, JudgedMetric]
) -> None:
    """A metric whose rules need embeddings goes by them in another stage, so for all of its tasks
    or for none."""
    for name, metric in judged.items():
        by_rules = {choice.judge == RULES for choice in choices.values() if choice.metric == name}
        if metric.rules_texts is not None and len(by_rules) > 1:
            raise ConfigError(
                f"judge: {name} cannot go by rules for some tasks and by a judge for others; "
                "choose one"
            )


def _rubric(metric: JudgedMetric, key: str, named: str | None) -> Rubric | None:
    """The rubric that a metric is judged by: its first, the named one of its own, or the text of a
    file."""
    if metric.prompt_with is None and named is not None:
        raise ConfigError(
            f"rubrics: {metric.name} has one rubric, which cannot be changed; leave {key!r} out"
        )
    name = named or next(iter(metric.rubrics), None)
    if name is None:
        return None
    if name in metric.rubrics:
        return Rubric(name=name, text=metric.rubrics[name])
    if not names_a_file(name):
        known = "".join(f"{one}, " for one in metric.rubrics)
        raise ConfigError(
            f"rubrics: {key} has no rubric {name!r}; write {known and f'{known}or '}the path of a "
            "text file"
        )
    try:
        text = Path(name).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"rubrics: cannot read {name}, the rubric of {key}: {error}") from None
    if not text:
        raise ConfigError(f"rubrics: {name}, the rubric of {key}, is empty")
    return Rubric(name=Path(name).name, text=text)


def _jury(
    metric: JudgedMetric, wanted: Jury, config: JudgingConfig, table: JudgeTable, barred: set[str]
) -> JudgeAssignment:
    if isinstance(wanted, str):
        return _assign_judge(metric, wanted, config, table)
    families = {
        juror: table.models.get(juror, ModelEntry()).family or family(juror) for juror in wanted
    }
    jurors = [juror for juror, own in families.items() if not own or own not in barred]
    if not jurors:
        named = ", ".join(wanted) or "none was named"
        raise ConfigError(
            f"judge: no juror is left for {metric.name} ({named}); name one of another family"
        )
    if unfit := [juror for juror in jurors if juror in (RULES, AUTO)]:
        raise ConfigError(f"judge: {unfit[0]!r} cannot sit on a jury; name models")
    choices = [_assign_judge(metric, juror, config, table) for juror in jurors]
    left_out = [juror for juror in wanted if juror not in jurors]
    why = f"jury, {config.vote}" + (
        f"; without {', '.join(left_out)}, of a candidate's family" if left_out else ""
    )
    return choices[0].model_copy(
        update={"others": tuple(choice.judge for choice in choices[1:]), "why": why}
    )


def family(model: str) -> str:
    """The family that the words of a model's name tell, "" for an unknown one: gpt-4o and o3 are
    one, gemini and gemma another. Of a name with words of two families, the first in
    FAMILY_MARKS."""
    name = model.lower()
    words = [word for word in re.findall(r"[a-z]+", name) if word != "ollama"]  # a server's name
    for named, marks in FAMILY_MARKS.items():
        if any(word.startswith(marks) or word.endswith(marks) for word in words):
            return named
    return "openai" if _O_SERIES.match(name.rpartition("/")[2]) else ""


def _assign_judge(
    metric: JudgedMetric, wanted: str, config: JudgingConfig, table: JudgeTable
) -> JudgeAssignment:
    if wanted == RULES:
        return JudgeAssignment(
            metric=metric.name,
            judge=RULES,
            why=f"offline estimate; preferred judge: {metric.preferred_judge}",
        )
    if is_embedded(wanted):
        return JudgeAssignment(
            metric=metric.name,
            judge=wanted,
            why="a small local model: it proves the plumbing, not the scores",
        )
    if wanted != AUTO:
        check_judge(wanted, config)
        return JudgeAssignment(metric=metric.name, judge=wanted, why="as configured")
    for name, why in (
        (metric.preferred_judge, "preferred"),
        *((name, "fallback") for name in table.fallback_order),
    ):
        if _is_reachable(name, config):
            lacking = "" if why == "preferred" else f": no key for {metric.preferred_judge}"
            return JudgeAssignment(metric=metric.name, judge=name, why=f"{why}{lacking}")
    return JudgeAssignment(
        metric=metric.name,
        judge=RULES,
        why=f"offline estimate: no key for {metric.preferred_judge} or any fallback",
    )


def calls_a_record(choices: Mapping[str, JudgeAssignment], repeats: int) -> int:
    """How many judge calls one record makes, at most: of a metric with judges by task, those of one
    task."""
    most: dict[str, int] = {}
    for choice in choices.values():
        calls = len(choice.judges) * repeats if choice.judge != RULES else 0
        most[choice.metric] = max(calls, most.get(choice.metric, 0))
    return sum(most.values())


def limits_of(name: str, config: JudgingConfig, table: JudgeTable) -> tuple[RateLimits, bool]:
    """A judge's limits before anything is learnt, and whether they are firm: what the config says
    is, the table's is not (and does not hold for a server of one's own). A local model's server has
    none; a pool's are those of its members together."""
    if is_embedded(name):
        return RateLimits(), True
    if members := pool_members(name, config):
        of_each = [limits_of(member, config, table) for member in members]
        return sum_limits(limits for limits, _ in of_each), all(firm for _, firm in of_each)
    if name in config.limits:
        return config.limits[name], True
    server = server_of(name, config)
    if server is not None and server.limits is not None:
        return server.limits, True
    is_theirs = own_server(name, config) is None
    return (entry_of(name, config, table).limits if is_theirs else RateLimits()), False


def sum_limits(limits: Iterable[RateLimits]) -> RateLimits:
    """What a pool's members allow together: nothing is known of a kind that one of them leaves
    open."""
    each = [one.model_dump() for one in limits]
    return RateLimits(
        **{
            kind: None if None in (found := [one[kind] for one in each]) else sum(found)
            for kind in RateLimits.model_fields
        }
    )


def server_of(name: str, config: JudgingConfig) -> NamedServer | None:
    """The named server whose model a judge is; None for a provider's."""
    return config.servers.get(name.partition("/")[0])


def pool_members(name: str, config: JudgingConfig) -> tuple[str, ...]:
    """The judges that a pool's judge is asked as, one a server: (east/m, west/m) for both/m. None
    for any other judge."""
    server, (_, _, model) = server_of(name, config), name.partition("/")
    if server is None or server.pool is None:
        return ()
    return tuple(f"{member}/{model}" for member in server.pool)


def describe_pools(
    choices: Iterable[JudgeAssignment], config: JudgingConfig, table: JudgeTable
) -> list[str]:
    """A line for each judge that is a pool: its servers, with where each is and what its user
    allows it."""
    lines = []
    for name in asked_judges(choices, config):
        if members := pool_members(name, config):
            told = ", ".join(_describe_member(member, config, table) for member in members)
            lines.append(f"{name} is a pool of {len(members)}: {told}")
    return lines


def _describe_member(name: str, config: JudgingConfig, table: JudgeTable) -> str:
    limits, is_firm = limits_of(name, config, table)
    told = [server_address(provider_of(name, config), own_server(name, config))]
    if is_firm and limits.requests_per_min is not None:
        told.append(f"{limits.requests_per_min:,.10g} requests/min")
    return f"{name.partition('/')[0]} ({', '.join(told)})"


def entry_of(name: str, config: JudgingConfig, table: JudgeTable) -> ModelEntry:
    """What the table knows of a judge's model: of an account of a provider, and of a pool of such
    accounts, what it knows of the provider's."""
    if name in table.models:
        return table.models[name]
    return table.models.get(model_name(name, config), ModelEntry())


def parameters_of(name: str, config: JudgingConfig, table: JudgeTable) -> dict[str, Any]:
    """What a judge is asked with: the table's parameters, else temperature 0 (and seed 0 by
    OpenAI's protocol), which a server may refuse; over these the job's, of which null ones are not
    sent."""
    entry, asked = entry_of(name, config, table), dict[str, Any](temperature=0)
    if "parameters" in entry.model_fields_set:
        asked = dict(entry.parameters)
    elif provider_of(name, config) == "openai":
        asked["seed"] = 0
    given = config.parameters
    asked |= {key: value for key, value in given.items() if "/" not in key}
    asked |= given.get(name) or given.get(model_name(name, config)) or {}
    return {key: value for key, value in asked.items() if value is not None}


def parameter_target(name: str, config: JudgingConfig) -> str:
    """What a judge's refusals of parameters are kept by: its model at its address, or its pool."""
    if pool_members(name, config):
        return name
    address = server_address(provider_of(name, config), own_server(name, config))
    return f"{name.partition('/')[2]} at {address}"


def model_name(name: str, config: JudgingConfig) -> str:
    """What a judge's model is called, whichever account asks it: PROVIDER/MODEL where that is a
    provider's own, else as the judge."""
    server, (_, _, model) = server_of(name, config), name.partition("/")
    if server is not None and server.pool is not None:
        server = config.servers[server.pool[0]]
    return f"{server.provider}/{model}" if server is not None and server.provider else name


def code_of(name: str, config: JudgingConfig) -> OwnObject | None:
    """The user's function that a judge is; None for one behind an address."""
    server = server_of(name, config)
    if server is None or server.source is None:
        return None
    return OwnObject(server.source, name.partition("/")[2])


def own_server(name: str, config: JudgingConfig) -> str | None:
    """The address of the server that a judge is asked at, from the config or the environment, or
    the code that it is; None: the provider's own."""
    provider, server = provider_of(name, config), server_of(name, config)
    if server is not None:
        own = server.url or server.code
        return environment_url(provider) if own is None and server.provider is not None else own
    return config.base_urls.get(provider) or environment_url(provider)


def key_variable(name: str, config: JudgingConfig) -> str | None:
    """The environment variable with a judge's key; None for a named server that wants none."""
    provider, server = provider_of(name, config), server_of(name, config)
    if server is None:
        return config.api_key_envs.get(provider, KEYS[provider])
    # OpenAI's key goes to OpenAI only
    is_theirs = server.provider is not None and (server.url is None or provider != "openai")
    return server.api_key_env or (KEYS[provider] if is_theirs else None)


def price_of(name: str, config: JudgingConfig, table: JudgeTable) -> Price | None:
    """What a judge's tokens cost: by the config, else by the table; None where neither says. Of a
    pool, what its dearest member's do."""
    if is_embedded(name):
        return FREE
    server = server_of(name, config)
    own = config.price.get(name) or (server.price if server is not None else None)
    if own is not None:
        return Price(**own.model_dump())
    if members := pool_members(name, config):
        each = [price for one in members if (price := price_of(one, config, table)) is not None]
        is_known = len(each) == len(members)
        return max(each, key=lambda one: one.input_usd + one.output_usd) if is_known else None
    entry = entry_of(name, config, table)
    if entry.input_usd is None and entry.output_usd is None:
        return None
    return Price(
        entry.input_usd or 0.0,
        entry.output_usd or 0.0,
        entry.cached_input_usd,
        entry.cache_write_usd,
        entry.cache_write_1h_usd,
        entry.batch_factor,
    )


def cache_of(name: str, config: JudgingConfig, table: JudgeTable) -> PromptCache:
    """What is known of a judge's prompt cache, without the secret. What it takes only at a price is
    not put into it where that price is not known."""
    entry = entry_of(name, config, table)
    price = None if is_embedded(name) else price_of(name, config, table)
    is_known = price is not None and price.cached_input_usd is not None
    if entry.cache_marks:
        is_known = is_known and price is not None and price.cache_write_usd is not None
    return PromptCache(
        floor_tokens=entry.cache_floor_tokens if is_known else None,
        is_marked=entry.cache_marks,
        layout=config.layout,
    )


def takes_batches(name: str, config: JudgingConfig, table: JudgeTable) -> bool:
    """Whether a judge may be asked through its provider's batch API, as far as is known. A pool may
    not: a batch belongs to one account, which alone can say what became of it."""
    if is_embedded(name) or code_of(name, config) is not None or pool_members(name, config):
        return False
    return entry_of(name, config, table).takes_batches is not False


def unpriced(
    choices: Iterable[JudgeAssignment], config: JudgingConfig, table: JudgeTable
) -> list[str]:
    """The judges that may be asked and whose price is not known, fallbacks among them."""
    names = asked_judges(choices, config)
    return [name for name in names if price_of(name, config, table) is None]


def asked_judges(choices: Iterable[JudgeAssignment], config: JudgingConfig) -> list[str]:
    """The judges that may be asked, fallbacks among them."""
    asked = [name for choice in choices for name in choice.judges if name != RULES]
    return list(dict.fromkeys([*asked, *config.fallbacks])) if asked else []


def may_bill(name: str, config: JudgingConfig) -> bool:
    """Whether a judge is asked at an address where somebody may bill for it: not on this machine or
    its own network. Who brings a function knows what it costs."""
    named = server_of(name, config)
    if named is not None and named.code is not None:
        return False
    if members := pool_members(name, config):
        return any(may_bill(member, config) for member in members)
    server = own_server(name, config)
    return server is None or not is_private_host(host_of(server))


def is_embedded(judge: str) -> bool:
    return judge == EMBEDDED or judge.startswith(f"{EMBEDDED}:")


def embedded_model(choices: Mapping[str, JudgeAssignment]) -> str | None:
    """The model that the embedded judge serves in this run: `embedded`, or the path of
    `embedded:PATH`. Raises ConfigError for two different ones."""
    models = sorted(
        {
            name.partition(":")[2] or EMBEDDED
            for choice in choices.values()
            for name in choice.judges
            if is_embedded(name)
        }
    )
    if len(models) > 1:
        raise ConfigError(
            f"judge: one embedded model a run, not {len(models)}: {', '.join(models)}"
        )
    return models[0] if models else None


def provider_of(name: str, config: JudgingConfig) -> Provider:
    """Whose protocol a judge speaks. Raises ConfigError for a name that is no judge."""
    provider, _, model = name.partition("/")
    if model and (server := config.servers.get(provider)) is not None:
        members = server.pool or (provider,)
        return config.servers[members[0]].provider or "openai"
    if provider not in KEYS or not model:
        raise ConfigError(
            f"no judge {name!r}; write auto, rules, embedded or PROVIDER/MODEL, with one of: "
            f"{', '.join([*KEYS, *config.servers])}"
        )
    return provider


def _is_reachable(name: str, config: JudgingConfig) -> bool:
    if provider_of(name, config) == "google" and not is_installed(GOOGLE_SDK):
        return False
    variable = key_variable(name, config)
    if variable is not None and api_key(variable) is not None:
        return True
    # A named server says itself whether it wants a key
    named = server_of(name, config)
    return own_server(name, config) is not None and (
        variable is None or named is None or (named.url is None and named.api_key_env is None)
    )


def check_judge(name: str, config: JudgingConfig) -> None:
    """Raises ConfigError for a name that is no judge, or whose key is not set."""
    if provider_of(name, config) == "google":
        require_package(GOOGLE_SDK)
    if members := pool_members(name, config):
        if config.mode == "batch":
            raise ConfigError(
                f"judging.mode is batch and judge {name} is a pool, whose servers are accounts of "
                "their own; a batch belongs to one account. Name one of them "
                f"({', '.join(members)}), or ask the pool live (judging.mode: live)"
            )
        for member in members:
            check_judge(member, config)
        return
    code = code_of(name, config)
    if code is not None and not callable(code.load()):
        raise ConfigError(
            f"judge {name}: {code.attribute} of {code.source.place} is no function of messages and "
            "a judgment"
        )
    if not _is_reachable(name, config):
        variable = key_variable(name, config)
        raise ConfigError(
            f"judge {name} needs a key in the environment variable {variable}, which is not set"
        )
