"""Who judges in the place of a model: by date, by its answer, or for want of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

from pydantic import BaseModel

from memray_eval.config.sections import JudgingConfig
from memray_eval.errors import (
    SAID,
    ConfigError,
    JudgeError,
    JudgeStalled,
    Refused,
    TooLong,
    UnknownModel,
    cause_of,
)
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.model_table import JudgeTable, ModelEntry, family
from memray_eval.judges.prices import Spent
from memray_eval.ports import Judge, Verdict
from memray_eval.types import Message

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
    """Who can judge on one day, by config and table; nobody of a `barred` family steps in."""

    config: JudgingConfig
    table: JudgeTable
    today: date
    barred: Collection[str] = ()

    def account(self, name: str) -> JudgeAccount:
        return JudgeAccount(name, self.config, self.table)

    def off_since(self, name: str) -> date | None:
        """The day since which a provider has a judge's model no more; None: it has, as far as is
        known. A server of one's own says itself what it has."""
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
        """Who can be asked, in this order, if a judge of the table is no more: its successors, then
        the fallback order with theirs. Nobody for a model that the table does not know."""
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

    def advice(self, name: str) -> str:
        """What to write instead of a judge that is no more: another of its provider, if one is."""
        provider = f"{self.account(name).model_name.partition('/')[0]}/"
        for other, entry in self.table.models.items():
            is_judge = other.startswith(provider) and entry.kind == "judge"
            is_tried = other in (name, *self.heirs_of(name))
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


class GoneModels:
    """The models that told one actor that they are no more; `say` hears of each once."""

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
        raise UnknownModel(f"404: no model is left of {line}", status=404)

    def _first(self) -> str | None:
        voting = {self._gone.first_of(line) for line in self._others}
        return self._gone.first_of(
            [name for name in self._line if name == self.name or name not in voting]
        )


class FallbackJudge:
    """Asks the next judge when one gives no verdict; the verdict names who gave it. A refusal is
    final. If the last one lets no call through any more, JudgeStalled ends the run; if its model is
    no more, the error says what to do, by `advice`."""

    def __init__(self, judges: Sequence[Judge], advice: str = "name another judge") -> None:
        self._advice = advice
        self.name = " then ".join(judge.name for judge in judges)
        self._judges = judges

    async def judge(self, messages: Sequence[Message], judgment: type[BaseModel]) -> Verdict:
        lost, last, name = Spent(), JudgeError("no judge to ask"), ""
        for judge in self._judges:
            try:
                verdict = await judge.judge(messages, judgment)
            except JudgeError as error:
                if isinstance(error, Refused) and not isinstance(error, TooLong):
                    raise
                last, name = error, judge.name
                lost.take(error)
                continue
            if judge is self._judges[0]:
                return verdict
            spent = {
                "usage": verdict.usage + lost.usage,
                "cost_usd": verdict.cost_usd + lost.cost_usd,
                "saved_usd": verdict.saved_usd + lost.saved_usd,
                "calls": verdict.calls + lost.answered,
            }
            return verdict.model_copy(update=spent)
        if last.is_stalled:
            raise JudgeStalled(f"{name}: {last}")
        if isinstance(last, UnknownModel):
            head, said, excerpt = str(last).partition(SAID)
            last.args = (f"{head}; {self._advice}{said}{excerpt}",)
        lost.put_on(last)
        raise last
