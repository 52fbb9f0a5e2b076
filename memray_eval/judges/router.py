"""Which judge scores which metric, chosen before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from memray_eval.config.sections import (
    EMBEDDED,
    JudgeRequest,
    JudgingConfig,
    Jury,
    OnJudgeFailure,
    names_a_file,
    read_rubric,
)
from memray_eval.errors import (
    SAID,
    ConfigError,
    JudgeError,
    JudgeStalled,
    Refused,
    TooLong,
    UnknownModel,
    cause_of,
    suggest,
)
from memray_eval.judges.accounts import JudgeAccount, is_embedded
from memray_eval.judges.prices import JudgeTable, ModelEntry, Spent, family
from memray_eval.metric import NEEDS_JUDGE, RULES, JudgedMetric, Metric
from memray_eval.ports import VOTERS, Judge, Verdict
from memray_eval.types import Frozen, Message, join_jurors, split_jurors

RETIRES_SOON = timedelta(days=60)  # what retires by then is told


class Succession(NamedTuple):
    """A judge that answers in the place of a model that is off."""

    role: str
    judge: str
    since: date

    def __str__(self) -> str:
        return f"{self.role} is off since {self.since}: {self.judge} judges in its place"


@dataclass(frozen=True)
class Roster:
    """Who can judge on one day, by config and table, and who is chosen for a metric; nobody of a
    `barred` family steps in."""

    config: JudgingConfig
    table: JudgeTable
    today: date
    barred: Collection[str] = ()

    def account(self, name: str) -> JudgeAccount:
        return JudgeAccount(name, self.config, self.table)

    def off_since(self, name: str) -> date | None:
        """The day since which a provider has a judge's model no more, as far as the table knows."""
        account = self.account(name)
        day = account.entry.retires
        is_off = day is not None and day <= self.today and account.own_server is None
        return day if is_off else None

    def successors_of(self, name: str) -> list[str]:
        """Who comes after a judge's model, on the same account if the provider is the same."""
        account, model = name.partition("/")[0], self.account(name).model_name
        provider = f"{model.partition('/')[0]}/"
        line = self.table.successors(name if name in self.table.models else model)
        return [
            f"{account}/{heir.removeprefix(provider)}" if heir.startswith(provider) else heir
            for heir in line
        ]

    def heirs_of(self, name: str) -> tuple[str, ...]:
        """Who can be asked, in this order, if a judge of the table is no more."""
        if self.account(name).entry == ModelEntry():
            return ()
        line = [*self.config.fallbacks, *self.successors_of(name)]
        for other in self.table.fallback_order:
            line += [other, *self.successors_of(other)]
        return tuple(
            heir
            for heir in dict.fromkeys(line)
            if heir != name
            and family(heir) not in self.barred
            and self.off_since(heir) is None
            and self.account(heir).is_reachable
        )

    def stand_in(self, name: str) -> tuple[str, tuple[Succession, ...]]:
        """The judge that is asked for a named one: itself, or if that is off the first of its
        heirs. Raises ConfigError if there is none."""
        if (since := self.off_since(name)) is None:
            return name, ()
        if heirs := self.heirs_of(name):
            return heirs[0], (Succession(name, heirs[0], since),)
        line = ", ".join(self.successors_of(name)) or "none is known"
        raise ConfigError(
            f"judge {name} is off since {since}, and no key of a successor ({line}) or of the "
            f"fallback order is set; {self.advice(name)}"
        )

    def advice(self, name: str, gone: Collection[str] = ()) -> str:
        """What to write instead of a judge that is no more: another of its provider, if one is, and
        is not `gone` too."""
        provider = f"{self.account(name).model_name.partition('/')[0]}/"
        for other, entry in self.table.models.items():
            is_judge = other.startswith(provider) and entry.kind == "judge"
            is_tried = other in (name, *self.heirs_of(name), *gone)
            if is_judge and not is_tried and self.off_since(other) is None:
                return f"name another judge, as --judge {other}"
        return "name another judge"

    def retiring_lines(self, names: Iterable[str]) -> list[str]:
        """A line for each model that its provider switches off within RETIRES_SOON, or has."""
        lines = []
        for name in dict.fromkeys(names):
            entry = self.account(name).entry
            if entry.retires is None or entry.retires - self.today > RETIRES_SOON:
                continue
            after = f"its successor: {entry.successor or 'unknown'}"
            when = f"is off since {entry.retires}"
            if (left := entry.retires - self.today) > timedelta():
                when = f"retires on {entry.retires}, in {left.days} days"
            lines.append(f"{name} {when}; {after}")
        return lines

    def jury(self, metric: JudgedMetric, wanted: Jury) -> JudgeAssignment:
        """The judge or the jury of a metric, with those who come after each."""
        if isinstance(wanted, str):
            choice = self.judge(metric, wanted)
        else:
            choice = self._several(metric, wanted)
        lines = {name: self.heirs_of(name) for name in choice.judges if name != RULES}
        heirs = {name: line for name, line in lines.items() if line}
        return choice.model_copy(update={"heirs": heirs})

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
        choices = [self.judge(metric, juror) for juror in jurors]
        # Two may have one successor
        names = list(dict.fromkeys(choice.judge for choice in choices))
        left_out = [juror for juror in wanted if juror not in jurors]
        why = f"jury, {self.config.vote}" + (
            f"; without {', '.join(left_out)}, of a candidate's family" if left_out else ""
        )
        successions = tuple(succession for choice in choices for succession in choice.successions)
        return choices[0].model_copy(
            update={"others": tuple(names[1:]), "why": why, "successions": successions}
        )

    def judge(self, metric: JudgedMetric, wanted: str) -> JudgeAssignment:
        assign, preferred = partial(JudgeAssignment, metric=metric.name), metric.preferred_judge
        if wanted == RULES:
            return assign(judge=RULES, why=f"offline estimate; preferred judge: {preferred}")
        if is_embedded(wanted):
            why = "a small local model: it proves the plumbing, not the scores"
            return assign(judge=wanted, why=why)
        if wanted != AUTO:
            judge, successions = self.stand_in(wanted)
            self.account(judge).check()
            return assign(judge=judge, why="as configured", successions=successions)
        for role in (preferred, *self.table.fallback_order):
            line = (role, *self.successors_of(role))
            standing = next((name for name in line if self.off_since(name) is None), None)
            if standing is None or not self.account(standing).is_reachable:
                continue
            why = "preferred" if role == preferred else f"fallback: no key for {preferred}"
            since = self.off_since(role)
            gone = () if since is None else (Succession(role, standing, since),)
            return assign(judge=standing, why=why, successions=gone)
        why = f"offline estimate: no key for {preferred} or any fallback"
        return assign(judge=RULES, why=why)

    def keep(self, choice: JudgeAssignment, names: Sequence[str]) -> JudgeAssignment:
        """The choice with the judges that a resumed run had, as long as they can be asked."""
        if not names or RULES in (choice.judge, *names):
            return choice
        if tuple(names) == choice.judges or not all(
            is_embedded(name) or (self.off_since(name) is None and self.account(name).is_reachable)
            for name in names
        ):
            return choice
        heirs = {name: self.heirs_of(name) for name in names}
        kept = {"judge": names[0], "others": tuple(names[1:]), "successions": (), "heirs": heirs}
        return choice.model_copy(update=kept)


@dataclass
class FallbackJudge:
    """Asks a judge, then its `fallbacks` in turn until one gives a verdict, which names its judge.
    `line` is the judge and its successors: the first whose model still exists is asked. Nobody is
    asked who votes for another of the `jurors`. `gone`, of all judges of an actor, are models that
    answered 404; `say` gets a line for each. A refusal is final. If the last judge is stalled, and
    no fallback votes already, JudgeStalled ends the run; if its model is gone, the error ends with
    `advice`."""

    line: Sequence[str]
    build: Callable[[str], Judge]
    fallbacks: Sequence[Judge] = ()
    jurors: Collection[str] = ()
    gone: set[str] = field(default_factory=set)
    say: Callable[[str], None] = lambda line: None
    advice: Callable[[], str] = lambda: "name another judge"

    def __post_init__(self) -> None:
        self._named = self.build(self.line[0])
        self.name = " then ".join([self.line[0], *(judge.name for judge in self.fallbacks)])

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        lost, last, name = Spent(), JudgeError("no judge to ask"), ""
        tried, is_voting = list[str](), False
        first = partial(self._ask_line, tried) if len(self.line) > 1 else self._named.judge
        asks = [(self.line[0], first), *((judge.name, judge.judge) for judge in self.fallbacks)]
        for number, (judge_name, ask) in enumerate(asks):
            if number and (judge_name in tried or not self._may_vote(judge_name)):
                is_voting |= judge_name not in tried
                continue
            try:
                verdict = await ask(messages, judgment)
            except JudgeError as error:
                if isinstance(error, Refused) and not isinstance(error, TooLong):
                    raise
                last, name = error, judge_name if number or not tried else tried[-1]
                lost.take(error)
                continue
            spent = {
                "usage": verdict.usage + lost.usage,
                "cost_usd": verdict.cost_usd + lost.cost_usd,
                "saved_usd": verdict.saved_usd + lost.saved_usd,
                "calls": verdict.calls + lost.answered,
            }
            return verdict.model_copy(update=spent)
        if last.is_stalled and not is_voting:
            raise JudgeStalled(f"{name}: {last}")
        if isinstance(last, UnknownModel):
            head, mark, excerpt = str(last).partition(SAID)
            last.args = (f"{head}; {self.advice()}{mark}{excerpt}",)
        lost.put_on(last)
        raise last

    async def _ask_line(
        self, tried: list[str], messages: Sequence[Message], judgment: type[BaseModel]
    ) -> Verdict:
        while (name := self._first()) is not None:
            tried.append(name)
            try:
                return await self.build(name).judge(messages, judgment)
            except UnknownModel as error:
                if name not in self.gone:
                    self.gone.add(name)
                    heir = self._first()
                    after = f"{heir} judges in its place" if heir else "nobody is left to ask"
                    self.say(f"{name} is off ({cause_of(str(error))}): {after}")
        left = [name for name in self.line if name not in self.gone]
        voting = f"; {left[0]} votes already" if left else ""
        raise UnknownModel(f"404: no model is left of {', '.join(self.line)}{voting}", status=404)

    def _first(self) -> str | None:
        living = (name for name in self.line if name not in self.gone)
        return next(filter(self._may_vote, living), None)

    def _may_vote(self, name: str) -> bool:
        """Whether a judge votes for no other juror; from then on it votes for this one."""
        own, voters = self.line[0], VOTERS.get()
        if name != own and name in self.jurors and name not in self.gone:
            return False
        return voters is None or voters.setdefault(name, own) == own


AUTO = "auto"
T = TypeVar("T")


class Rubric(Frozen):
    """The words that a judge goes by, the metric's or a user's file, with their name."""

    name: str
    text: str


class JudgeAssignment(Frozen):
    """Who scores a metric, or one `task` of it, and why: one judge, or the first of a jury with its
    `others`; by which rubric; and what stands in without a verdict. Nobody scores it if it
    `needs_judge`. `successions` tell of models that are off; `heirs` are asked if a judge answers
    that it is no more. A metric may share the call of another, `shares_call_of`."""

    metric: str
    judge: str
    why: str
    others: tuple[str, ...] = ()
    task: str = ""
    rubric: Rubric | None = None
    on_failure: OnJudgeFailure = "error"
    needs_judge: bool = False
    successions: tuple[Succession, ...] = ()
    heirs: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    shares_call_of: str = ""

    @property
    def judges(self) -> tuple[str, ...]:
        """Who is asked."""
        return (self.judge, *self.others)

    @property
    def asked_by(self) -> str:
        """The name of the rubric that a judge is asked by; "" where it is the only one."""
        return self.rubric.name if self.rubric is not None and self.judge != RULES else ""

    def __str__(self) -> str:
        if self.needs_judge:
            return f"nobody ({NEEDS_JUDGE})"
        details = [self.why]
        details += [
            f"in place of {succession.role}, off since {succession.since}"
            for succession in self.successions
        ]
        if self.asked_by:
            details.append(f"rubric {self.asked_by}")
        if self.on_failure != "error" and self.judge != RULES:
            details.append(f"without a verdict {self.on_failure}")
        return f"{join_jurors(self.judges)} ({'; '.join(details)})"


def named_judges(assignment: str) -> list[str]:
    """The judges of a JudgeAssignment in words, as manifests have it."""
    return split_jurors(assignment.partition(" (")[0])


def assign_judges(
    metrics: Iterable[Metric],
    request: JudgeRequest,
    table: JudgeTable,
    tasks: Collection[str] = (),
    today: date | None = None,
    kept: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, JudgeAssignment]:
    """The choice for every judged metric, and under "metric/task" for every task with its own judge
    or rubric. Models that are off `today` have their successors; a resumed run has `kept` its
    judges. Raises ConfigError for an unknown provider, metric, task or rubric, a missing key, a
    file that cannot be read."""
    judged = {metric.name: metric for metric in metrics if isinstance(metric, JudgedMetric)}
    judging, wanted = request.judging, request.judge
    if not isinstance(wanted, dict):
        wanted = dict.fromkeys(judged, wanted)
    for fallback in judging.fallbacks:
        JudgeAccount(fallback, judging, table).check()
    _check_keys("judge", wanted, judged, tasks)
    if judged:  # a run that only generates has none, whatever its job says of rubrics
        _check_keys("rubrics", request.rubrics, judged, tasks)
        _check_failures(judging, judged.values())
    barred = {family(model) for model in request.models} if judging.exclude_own_family else set()
    roster = Roster(judging, table, today or date.today(), barred)
    choices = dict[str, JudgeAssignment]()
    first_to_ask = dict[tuple[object, ...], str]()
    for key, metric in _keys(judged, (*wanted, *request.rubrics)):
        jury, way = _own(wanted, key, metric), judging.on_judge_failure
        more: dict[str, Any] = {
            "task": key.partition("/")[2],
            "rubric": find_rubric(metric, key, _own(request.rubrics, key, metric)),
            "on_failure": way if way in metric.without_judge else "error",
        }
        choice = roster.jury(metric, AUTO if jury is None else jury)
        choice = roster.keep(choice, kept.get(key, ()))
        more["needs_judge"] = choice.judge == RULES and metric.estimate is None
        question = metric.judgment, id(metric.prompt), more["rubric"], choice.judges
        more["shares_call_of"] = first_to_ask.setdefault(question, metric.name)
        choices[key] = choice.model_copy(update=more)
    _check_one_stage(choices, judged)
    _check_parameters(judging, choices.values(), table)
    return choices


def _check_parameters(
    judging: JudgingConfig, choices: Iterable[JudgeAssignment], table: JudgeTable
) -> None:
    """Refuses parameters of a judge that the run cannot ask: they would count nowhere. Judges of
    the table may take another's place."""
    judges = {name for choice in choices for name in choice.judges if name != RULES}
    names = {*judges, *judging.fallbacks, *table.models}
    names |= {JudgeAccount(name, judging, table).model_name for name in names if "/" in name}
    for name in (key for key in judging.parameters if "/" in key):
        if judges and name not in names:
            raise ConfigError(
                f"judging.parameters: this run asks no judge {name!r}, it asks "
                f"{', '.join(sorted(judges))}; write one of these"
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
                f"{where}: no judged metric {name!r} in this run; {suggest(name, sorted(judged))}"
            )
        if slash and (not task or (tasks and task not in tasks)):
            raise ConfigError(
                f"{where}: {key!r} names no task of this suite"
                + (f"; {suggest(task, tasks)}" if tasks else "")
            )


def _check_failures(config: JudgingConfig, judged: Iterable[JudgedMetric]) -> None:
    way = config.on_judge_failure
    if way != "error" and not any(way in metric.without_judge for metric in judged):
        names = ", ".join(metric.name for metric in judged)
        raise ConfigError(
            f"judging.on_judge_failure: {way} means nothing for {names}; leave it at error"
        )


def _check_one_stage(
    choices: Mapping[str, JudgeAssignment], judged: Mapping[str, JudgedMetric]
) -> None:
    """Refuses rules that need embeddings for some tasks of a metric only: they are a stage."""
    for name, metric in judged.items():
        by_rules = {choice.judge == RULES for choice in choices.values() if choice.metric == name}
        if metric.estimate and metric.estimate.texts and len(by_rules) > 1:
            raise ConfigError(
                f"judge: {name} cannot go by rules for some tasks and by a judge for others; "
                "choose one"
            )


def find_rubric(metric: JudgedMetric, key: str, named: str | None) -> Rubric | None:
    """The rubric that a metric is judged by: its first, a named one, or a file's text."""
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
        listed = "".join(f"{rubric}, " for rubric in metric.rubrics)
        raise ConfigError(
            f"rubrics: {key} has no rubric {name!r}; write {listed and f'{listed}or '}the path of "
            "a text file"
        )
    return Rubric(name=Path(name).name, text=read_rubric(Path(name), key))


def calls_a_record(choices: Mapping[str, JudgeAssignment], repeats: int) -> int:
    """Judge calls of one record, at most over its tasks; metrics that share a call count once."""

    def calls_in(task: str) -> int:
        choice_of = {choice.metric: choice for choice in choices.values() if not choice.task}
        choice_of |= {choice.metric: choice for choice in choices.values() if choice.task == task}
        juries = {
            (choice.shares_call_of or choice.metric, choice.judges)
            for choice in choice_of.values()
            if choice.judge != RULES
        }
        return sum(len(judges) for _, judges in juries)

    return repeats * max(
        calls_in(task) for task in {"", *(choice.task for choice in choices.values())}
    )


def unpriced(
    choices: Iterable[JudgeAssignment], config: JudgingConfig, table: JudgeTable
) -> list[str]:
    """The judges that may be asked, fallbacks too, without a price (also of long prompts)."""
    judges = (JudgeAccount(name, config, table) for name in asked_judges(choices, config))
    return [judge.name for judge in judges if judge.price is None or not judge.price.is_whole]


def asked_judges(choices: Iterable[JudgeAssignment], config: JudgingConfig) -> list[str]:
    """The judges that may be asked, fallbacks among them."""
    judges = [name for choice in choices for name in choice.judges if name != RULES]
    return list(dict.fromkeys([*judges, *config.fallbacks])) if judges else []


def embedded_model(choices: Mapping[str, JudgeAssignment]) -> str | None:
    """The model that the embedded judge serves in this run: `embedded`, or the path of
    `embedded:PATH`. Raises ConfigError for two different ones."""
    names = {name for choice in choices.values() for name in choice.judges if is_embedded(name)}
    models = sorted({name.partition(":")[2] or EMBEDDED for name in names})
    if len(models) > 1:
        named = ", ".join(models)
        raise ConfigError(f"judge: one embedded model a run, not {len(models)}: {named}")
    return models[0] if models else None
