"""Which judge scores which metric, said before anything runs, and what is known of each judge
model."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator

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
    Dollars,
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
RETIRES_SOON = timedelta(days=60)  # what retires by then is told
THINKING_OUTPUT_TOKENS = 16_384  # of a judge that thinks first: its thinking counts, too
DEFAULT_OUTPUT_TOKENS = 2048
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


class PriceBand(Frozen):
    """Prices per million tokens of prompts of more than `above_tokens`, on the days from `since` to
    `until` (None: from the beginning, without an end). Without any, they are not known."""

    above_tokens: int = 0
    since: date | None = None
    until: date | None = None
    input_usd: Dollars | None = None
    output_usd: Dollars | None = None
    cached_input_usd: Dollars | None = None
    cache_write_usd: Dollars | None = None
    cache_write_1h_usd: Dollars | None = None

    @property
    def days(self) -> tuple[date, date]:
        return self.since or date.min, self.until or date.max

    @model_validator(mode="after")
    def _is_whole(self) -> PriceBand:
        if (self.input_usd is None) != (self.output_usd is None):
            raise ValueError("input_usd and output_usd belong together: give both, or neither")
        return self


class ModelEntry(PriceBand):
    """One model of a provider: its prices per million tokens with their date (none: not known), and
    in `bands` those of longer prompts and of other days; the limits of a beginner's account (where
    a run starts until the provider says better), the parameters it is asked with (null: not sent),
    and its family ("": told from its name). A model that `thinks` before it answers has a larger
    limit for both together.

    It is off from the day `retires` on, and its `successor`, PROVIDER/MODEL, judges in its place.
    What is no `judge` is here for that day alone.

    A prompt's start is cached from `cache_floor_tokens` on; with `cache_marks` only up to where
    the request marks it, and writing it is billed. `cache_date` is that of these and of the cache's
    prices. `takes_batches` says whether the provider's batch API takes the model, and
    `batch_factor` the share of its prices that are billed there. None: not known."""

    bands: tuple[PriceBand, ...] = ()
    price_date: str = "unknown"
    cache_floor_tokens: int | None = None
    cache_marks: bool = False
    cache_date: str = "unknown"
    takes_batches: bool | None = None
    batch_factor: float | None = None
    limits: RateLimits = RateLimits()
    parameters: dict[str, Any] = Field(default_factory=dict)
    family: str = ""
    thinks: bool = False
    retires: date | None = None
    successor: str | None = None
    kind: Literal["judge", "speech", "embeddings"] = "judge"

    def price_on(self, day: date) -> Price | None:
        """The prices of a day; None where they are not known."""
        bands = [band for band in self._bands if band.days[0] <= day <= band.days[1]]
        known = [
            (
                band.above_tokens,
                None
                if band.input_usd is None or band.output_usd is None
                else Price(
                    band.input_usd,
                    band.output_usd,
                    band.cached_input_usd,
                    band.cache_write_usd,
                    band.cache_write_1h_usd,
                    self.batch_factor,
                ),
            )
            for band in bands
        ]
        if not known or known[0][1] is None:
            return None
        return known[0][1]._replace(above=tuple(known[1:]))

    @property
    def _bands(self) -> list[PriceBand]:
        """All bands, by their days and lengths."""
        own = [] if self.input_usd is None and self.bands else [self]
        return sorted([*own, *self.bands], key=lambda band: (band.days, band.above_tokens))

    @model_validator(mode="after")
    def _has_no_gap(self) -> ModelEntry:
        periods = [(days, [*bands]) for days, bands in groupby(self._bands, lambda one: one.days)]
        for (start, end), bands in periods:
            lengths = [band.above_tokens for band in bands]
            if lengths[0] or len(set(lengths)) < len(lengths) or start > end:
                raise ValueError(
                    f"the prices from {start} to {end} are for prompts above "
                    f"{', '.join(map(str, lengths))} tokens: each once, from 0 on"
                )
        for ((_, end), _), ((start, _), _) in pairwise(periods):
            if end == date.max or start != end + timedelta(days=1):
                raise ValueError(
                    f"its prices end on {end} and begin again on {start}: let `since` follow "
                    "`until` by a day"
                )
        return self


class JudgeTable(Frozen):
    """The known models, by provider/model."""

    fallback_order: tuple[str, ...] = ()
    models: dict[str, ModelEntry]

    def successors(self, name: str) -> list[str]:
        """Who comes after a model, one after the other. Raises ValueError for a circle."""
        line = [name]
        while (entry := self.models.get(line[-1])) is not None and entry.successor is not None:
            if entry.successor in line:
                raise ValueError(f"{' -> '.join([*line, entry.successor])}: the line has no end")
            line.append(entry.successor)
        return line[1:]

    @model_validator(mode="after")
    def _lines_end(self) -> JudgeTable:
        for name in self.models:
            for heir in self.successors(name):
                if heir.partition("/")[0] not in KEYS or not heir.partition("/")[2]:
                    raise ValueError(f"the successor {heir!r} of {name} is no PROVIDER/MODEL")
        return self


class Succession(NamedTuple):
    """A judge that answers in the place of a model that is off."""

    role: str
    judge: str
    since: date

    def __str__(self) -> str:
        return f"{self.role} is off since {self.since}: {self.judge} judges in its place"


class Rubric(Frozen):
    """The words that a judge goes by: a rubric of the metric's, or a user's file, with what a
    person calls it."""

    name: str
    text: str


class JudgeAssignment(Frozen):
    """Who scores a metric, or one `task` of it, and why: one judge, or the first of a jury with its
    `others`; by which rubric, where the metric has several; and what stands in where no judge gives
    a verdict. `withheld` says why the rules give no estimate, where they are to score it and cannot
    tell: nobody scores it then. `successions` tell of judges in the place of models that are off;
    `heirs` are who is asked, by judge, if it answers that it is no more."""

    metric: str
    judge: str
    why: str
    others: tuple[str, ...] = ()
    task: str = ""
    rubric: Rubric | None = None
    on_failure: OnJudgeFailure = "error"
    withheld: str = ""
    successions: tuple[Succession, ...] = ()
    heirs: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)

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
        told += [f"in place of {one.role}, off since {one.since}" for one in self.successions]
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
    metrics: Iterable[Metric],
    request: JudgeRequest,
    table: JudgeTable,
    tasks: Collection[str] = (),
    today: date | None = None,
    kept: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, JudgeAssignment]:
    """The choice for every judged metric, and under "metric/task" for every task that has a judge
    or a rubric of its own; `tasks` are the suite's, where it names them. Models that are off
    `today` have their successors; a resumed run has `kept` its judges, by the same keys. Raises
    ConfigError for an unknown provider, metric, task or rubric, a missing key, a rubric's file that
    cannot be read."""
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
    assigner = _JudgeAssigner(judging, table, today or date.today(), barred)
    choices = {}
    for key, metric in _keys(judged, (*wanted, *request.rubrics)):
        jury, way = _own(wanted, key, metric), judging.way_on_failure
        more = {
            "task": key.partition("/")[2],
            "rubric": _rubric(metric, key, _own(request.rubrics, key, metric)),
            "on_failure": way if way in metric.without_judge else "error",
        }
        choice = assigner.keep(
            assigner.jury(metric, AUTO if jury is None else jury), kept.get(key, ())
        )
        if choice.judge == RULES:
            more["withheld"] = _withheld(metric, request.estimates.get(metric.name))
        choices[key] = choice.model_copy(update=more)
    _check_one_stage(choices, judged)
    _check_parameters(judging, choices.values(), table)
    return choices


def _check_parameters(
    judging: JudgingConfig, choices: Iterable[JudgeAssignment], table: JudgeTable
) -> None:
    """Refuses parameters of a judge that the run cannot ask: they would count nowhere. Judges of
    the table may take another's place."""
    asked = {name for choice in choices for name in choice.judges if name != RULES}
    known = {*asked, *judging.fallbacks, *table.models}
    known |= {model_name(name, judging) for name in known if "/" in name}
    for name in (key for key in judging.parameters if "/" in key):
        if asked and name not in known:
            raise ConfigError(
                f"judging.parameters: this run asks no judge {name!r}, it asks "
                f"{', '.join(sorted(asked))}; write one of these"
            )


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


@dataclass(frozen=True)
class _JudgeAssigner:
    """Chooses judges by what is known of them on one day; models of a `barred` family do not
    vote."""

    config: JudgingConfig
    table: JudgeTable
    today: date
    barred: Collection[str]

    def jury(self, metric: JudgedMetric, wanted: Jury) -> JudgeAssignment:
        """The judge or the jury of a metric, with those who come after each."""
        if isinstance(wanted, str):
            choice = self.judge(metric, wanted)
        else:
            choice = self._several(metric, wanted)
        heirs = {name: self.heirs(name) for name in choice.judges if name != RULES}
        return choice.model_copy(
            update={"heirs": {name: line for name, line in heirs.items() if line}}
        )

    def _several(self, metric: JudgedMetric, wanted: Sequence[str]) -> JudgeAssignment:
        families = {
            juror: self.table.models.get(juror, ModelEntry()).family or family(juror)
            for juror in wanted
        }
        jurors = [juror for juror, own in families.items() if not own or own not in self.barred]
        if not jurors:
            named = ", ".join(wanted) or "none was named"
            raise ConfigError(
                f"judge: no juror is left for {metric.name} ({named}); name one of another family"
            )
        if unfit := [juror for juror in jurors if juror in (RULES, AUTO)]:
            raise ConfigError(f"judge: {unfit[0]!r} cannot sit on a jury; name models")
        each = [self.judge(metric, juror) for juror in jurors]
        names = list(dict.fromkeys(choice.judge for choice in each))  # two may have one successor
        left_out = [juror for juror in wanted if juror not in jurors]
        why = f"jury, {self.config.vote}" + (
            f"; without {', '.join(left_out)}, of a candidate's family" if left_out else ""
        )
        successions = tuple(one for choice in each for one in choice.successions)
        return each[0].model_copy(
            update={"others": tuple(names[1:]), "why": why, "successions": successions}
        )

    def judge(self, metric: JudgedMetric, wanted: str) -> JudgeAssignment:
        if wanted == RULES:
            why = f"offline estimate; preferred judge: {metric.preferred_judge}"
            return JudgeAssignment(metric=metric.name, judge=RULES, why=why)
        if is_embedded(wanted):
            why = "a small local model: it proves the plumbing, not the scores"
            return JudgeAssignment(metric=metric.name, judge=wanted, why=why)
        if wanted != AUTO:
            judge, successions = stand_in(wanted, self.config, self.table, self.today, self.barred)
            check_judge(judge, self.config)
            return JudgeAssignment(
                metric=metric.name, judge=judge, why="as configured", successions=successions
            )
        for role in (metric.preferred_judge, *self.table.fallback_order):
            line = [role, *successors_of(role, self.config, self.table)]
            standing = [name for name in line if self._off_since(name) is None]
            if not standing or not _is_reachable(standing[0], self.config):
                continue
            why = "preferred"
            if role != metric.preferred_judge:
                why = f"fallback: no key for {metric.preferred_judge}"
            since = self._off_since(role)
            gone = () if since is None else (Succession(role, standing[0], since),)
            return JudgeAssignment(metric=metric.name, judge=standing[0], why=why, successions=gone)
        return JudgeAssignment(
            metric=metric.name,
            judge=RULES,
            why=f"offline estimate: no key for {metric.preferred_judge} or any fallback",
        )

    def keep(self, choice: JudgeAssignment, names: Sequence[str]) -> JudgeAssignment:
        """The choice with the judges that a resumed run had, as long as they can be asked."""
        if not names or tuple(names) == choice.judges or RULES in (choice.judge, *names):
            return choice
        if not all(
            is_embedded(name)
            or (self._off_since(name) is None and _is_reachable(name, self.config))
            for name in names
        ):
            return choice
        heirs = {name: self.heirs(name) for name in names}
        kept = {"judge": names[0], "others": tuple(names[1:]), "successions": (), "heirs": heirs}
        return choice.model_copy(update=kept)

    def heirs(self, name: str) -> tuple[str, ...]:
        return heirs_of(name, self.config, self.table, self.today, self.barred)

    def _off_since(self, name: str) -> date | None:
        return off_since(name, self.config, self.table, self.today)


def off_since(name: str, config: JudgingConfig, table: JudgeTable, today: date) -> date | None:
    """The day since which a provider has a judge's model no more; None: it has, as far as is known.
    A server of one's own says itself what it has."""
    day = None if is_embedded(name) else entry_of(name, config, table).retires
    return None if day is None or day > today or own_server(name, config) is not None else day


def successors_of(name: str, config: JudgingConfig, table: JudgeTable) -> list[str]:
    """Who comes after a judge's model, on the same account where the provider is the same."""
    account, model = name.partition("/")[0], model_name(name, config)
    provider = f"{model.partition('/')[0]}/"
    line = table.successors(name if name in table.models else model)
    return [
        f"{account}/{heir.removeprefix(provider)}" if heir.startswith(provider) else heir
        for heir in line
    ]


def heirs_of(
    name: str,
    config: JudgingConfig,
    table: JudgeTable,
    today: date,
    barred: Collection[str] = (),
) -> tuple[str, ...]:
    """Who can be asked, in this order, where a judge of the table is no more: its successors, then
    the fallback order with theirs, without those of a `barred` family. Nobody stands in for a model
    that the table does not know: its name may be a slip."""
    if is_embedded(name) or entry_of(name, config, table) == ModelEntry():
        return ()
    line = successors_of(name, config, table)
    for other in table.fallback_order:
        line += [other, *successors_of(other, config, table)]
    return tuple(
        heir
        for heir in dict.fromkeys(line)
        if heir != name
        and family(heir) not in barred
        and off_since(heir, config, table, today) is None
        and _is_reachable(heir, config)
    )


def stand_in(
    name: str,
    config: JudgingConfig,
    table: JudgeTable,
    today: date,
    barred: Collection[str] = (),
) -> tuple[str, tuple[Succession, ...]]:
    """The judge that is asked for a named one: itself, or where that is off the first of its heirs.
    Raises ConfigError if there is none."""
    if is_embedded(name) or (since := off_since(name, config, table, today)) is None:
        return name, ()
    heirs = heirs_of(name, config, table, today, barred)
    if not heirs:
        line = ", ".join(successors_of(name, config, table)) or "none is known"
        raise ConfigError(
            f"judge {name} is off since {since}, and no key of a successor ({line}) or of the "
            "fallback order is set; name another judge"
        )
    return heirs[0], (Succession(name, heirs[0], since),)


def retiring_lines(
    names: Iterable[str], config: JudgingConfig, table: JudgeTable, today: date
) -> list[str]:
    """A line for each model that its provider switches off within RETIRES_SOON, or has."""
    lines = []
    for name in dict.fromkeys(names):
        entry = ModelEntry() if is_embedded(name) else entry_of(name, config, table)
        if entry.retires is None or entry.retires - today > RETIRES_SOON:
            continue
        after = f"its successor: {entry.successor or 'unknown'}"
        when = f"is off since {entry.retires}"
        if (left := entry.retires - today) > timedelta():
            when = f"retires on {entry.retires}, in {left.days} days"
        lines.append(f"{name} {when}; {after}")
    return lines


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


def price_of(
    name: str, config: JudgingConfig, table: JudgeTable, day: date | None = None
) -> Price | None:
    """What a judge's tokens cost today, or on a `day`: by the config, else by the table; None where
    neither says. The run's own code and embedded judge are free. Of a pool, what its dearest
    member's do."""
    if is_embedded(name):
        return FREE
    server = server_of(name, config)
    own = config.price.get(name) or (server.price if server is not None else None)
    if own is not None:
        return Price(**own.model_dump())
    if server is not None and server.code is not None:
        return FREE
    if members := pool_members(name, config):
        each = [price_of(one, config, table, day) for one in members]
        known = [price for price in each if price is not None]
        dearest = max(known, key=lambda one: one.input_usd + one.output_usd, default=None)
        return dearest if len(known) == len(each) else None
    return entry_of(name, config, table).price_on(day or date.today())


def output_limit(name: str, config: JudgingConfig, table: JudgeTable) -> int:
    """How many tokens a verdict may have: as configured, else by whether the judge thinks first."""
    if config.max_output_tokens is not None:
        return config.max_output_tokens
    thinks = not is_embedded(name) and entry_of(name, config, table).thinks
    return THINKING_OUTPUT_TOKENS if thinks else DEFAULT_OUTPUT_TOKENS


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
    """The judges that may be asked and whose price is not known, be it of long prompts; fallbacks
    among them."""
    prices = {name: price_of(name, config, table) for name in asked_judges(choices, config)}
    return [name for name, price in prices.items() if price is None or not price.is_whole]


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
