"""Who judges in the place of a model that is off: by date, by an answer that it is no more, or for
want of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from pydantic import BaseModel

from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import (
    ConfigError,
    JudgeError,
    JudgeStalled,
    Refused,
    UnknownModel,
    cause_of,
)
from memray_eval.judges.accounts import (
    entry_of,
    is_embedded,
    is_reachable,
    model_name,
    own_server,
)
from memray_eval.judges.model_table import JudgeTable, ModelEntry, family
from memray_eval.ports import Judge, Verdict
from memray_eval.types import Message, Usage

RETIRES_SOON = timedelta(days=60)  # what retires by then is told


class Succession(NamedTuple):
    """A judge that answers in the place of a model that is off."""

    role: str
    judge: str
    since: date

    def __str__(self) -> str:
        return f"{self.role} is off since {self.since}: {self.judge} judges in its place"


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
        and is_reachable(heir, config)
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


class GoneModels:
    """The models that have answered one actor that they are no more. `say` is told of each once,
    with who is asked instead."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._causes = say, dict[str, UnknownModel]()

    def first_of(self, line: Sequence[str]) -> str | None:
        return next((name for name in line if name not in self._causes), None)

    def add(self, name: str, cause: UnknownModel, find_heir: Callable[[], str | None]) -> None:
        is_news, self._causes[name] = name not in self._causes, cause
        if is_news:
            after = (
                f"{heir} judges in its place" if (heir := find_heir()) else "nobody is left to ask"
            )
            self._say(f"{name} is off ({cause_of(str(cause))}): {after}")


class SucceedingJudge:
    """Asks the first of a line of judges whose model is still there; the verdict names which.
    `others` are the lines of the rest of the jury: who answers for one of them has its vote."""

    def __init__(
        self,
        line: Sequence[str],
        others: Sequence[Sequence[str]],
        gone: GoneModels,
        build: Callable[[str], Judge],
    ) -> None:
        self.name, self._line, self._others = line[0], line, others
        self._gone, self._build = gone, build
        self._built = {line[0]: build(line[0])}

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        while (name := self._first()) is not None:
            judge = self._built.get(name) or self._built.setdefault(name, self._build(name))
            try:
                return await judge.judge(messages, judgment)
            except UnknownModel as error:
                self._gone.add(name, error, self._first)
        line = ", ".join(self._line)
        raise UnknownModel(f"404: no model is left of {line}; name another judge", status=404)

    def _first(self) -> str | None:
        voting = {self._gone.first_of(line) for line in self._others}
        return self._gone.first_of(
            [name for name in self._line if name == self.name or name not in voting]
        )


class FallbackJudge:
    """Asks the next judge when one gives no verdict; the verdict names who gave it. A refusal is a
    verdict of sorts: final. Where the last one lets no call through any more, JudgeStalled ends the
    run, instead of one unit after the other."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        self.name = " then ".join(judge.name for judge in judges)
        self._judges = judges

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        lost, cost_usd, saved_usd, calls = Usage(), 0.0, 0.0, 0
        for position, judge in enumerate(self._judges):
            try:
                verdict = await judge.judge(messages, judgment)
            except Refused:
                raise
            except JudgeError as error:
                lost = lost + Usage.of(error)
                cost_usd, saved_usd = cost_usd + error.cost_usd, saved_usd + error.saved_usd
                calls += error.calls
                if position == len(self._judges) - 1:
                    if error.is_stalled:
                        raise JudgeStalled(f"{judge.name}: {error}") from None
                    error.set_tokens(lost)
                    error.cost_usd, error.saved_usd, error.calls = cost_usd, saved_usd, calls
                    raise
                continue
            if not position:
                return verdict
            spent = {
                "usage": verdict.usage + lost,
                "cost_usd": verdict.cost_usd + cost_usd,
                "saved_usd": verdict.saved_usd + saved_usd,
                "calls": verdict.calls + calls,
            }
            return verdict.model_copy(update=spent)
        raise JudgeError("no judge to ask")
