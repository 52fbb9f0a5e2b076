"""What tokens cost."""

from __future__ import annotations

import importlib.resources
import re
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from memray_eval.config.environment import PROVIDERS
from memray_eval.config.problems import describe
from memray_eval.config.sections import Dollars, RateLimits
from memray_eval.config.strict_yaml import parse_yaml
from memray_eval.errors import ConfigError, JudgeError, reason_of
from memray_eval.ports import Verdict
from memray_eval.types import Frozen, TokenCounts, Usage


class Price(NamedTuple):
    """US dollars per million tokens, and `batch_factor`, the share that a batch's calls are billed.
    None: not known; cached input then costs what other input does. `above` has the prices of
    prompts of more than this many tokens, in ascending order."""

    input_usd: float = 0.0
    output_usd: float = 0.0
    cached_input_usd: float | None = None
    cache_write_usd: float | None = None
    cache_write_1h_usd: float | None = None
    batch_factor: float | None = None
    above: tuple[tuple[int, Price | None], ...] = ()

    def of(self, spent: TokenCounts, is_batch: bool = False, calls: float = 1.0) -> float | None:
        """US dollars for the tokens of this many calls of one length, None if their price is not
        known; `is_batch` where a batch's calls took them, whose cache writes last an hour."""
        price = self._for_length(spent.input_tokens / max(1.0, calls))
        return None if price is None else price._share(is_batch) * price._live(spent, is_batch)

    def saved_on(self, spent: TokenCounts, is_batch: bool = False) -> float:
        """Dollars that the prompt cache saved on one call's tokens; below 0 where it cost more."""
        price = self._for_length(spent.input_tokens)
        if price is None:
            return 0.0
        usd = spent.input_tokens * price.input_usd + spent.output_tokens * price.output_usd
        return price._share(is_batch) * (usd / 1e6 - price._live(spent, is_batch))

    @property
    def is_whole(self) -> bool:
        """Whether the price of every prompt is known, however long."""
        return all(price is not None for _, price in self.above)

    def band(self, tokens: float) -> int:
        """Which price a prompt of this many tokens has: 0 the own one, 1 the first of `above`."""
        return sum(tokens > most for most, _ in self.above)

    def _for_length(self, tokens: float) -> Price | None:
        band = self.band(tokens)
        return self.above[band - 1][1] if band else self

    def _live(self, spent: TokenCounts, is_batch: bool) -> float:
        write_usd = self.cache_write_1h_usd if is_batch else self.cache_write_usd
        plain = spent.input_tokens - spent.cached_input_tokens - spent.cache_write_tokens
        usd = plain * self.input_usd + spent.output_tokens * self.output_usd
        usd += spent.cached_input_tokens * _or_else(self.cached_input_usd, self.input_usd)
        usd += spent.cache_write_tokens * _or_else(write_usd, self.input_usd)
        return usd / 1e6

    def _share(self, is_batch: bool) -> float:
        return _or_else(self.batch_factor, 1.0) if is_batch else 1.0


def _or_else(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


FREE = Price()


@dataclass
class Spent:
    """What a verdict has taken so far: calls `sent`, how many of them were `answered`, and the
    tokens of them all with their cost; `uncounted` of the calls did not give theirs."""

    sent: int = 0
    answered: int = 0
    uncounted: int = 0
    served_model: str = ""  # of the last answer
    usage: Usage = field(default_factory=Usage)
    cost_usd: float = 0.0
    saved_usd: float = 0.0

    def add(self, usage: Usage, price: Price | None, is_batch: bool = False) -> None:
        """Counts an answer; its cost and the cache's savings, if its price is known."""
        self.answered += 1
        usd = None if price is None else price.of(usage, is_batch)
        if price is None or usd is None:
            self.usage += usage.model_copy(update={"unpriced_calls": 1})
            return
        self.usage += usage
        self.cost_usd += usd
        self.saved_usd += price.saved_on(usage, is_batch)

    def take(self, error: JudgeError) -> None:
        """Adds what the attempts of an error took."""
        self.usage += Usage.of(error)
        self.cost_usd += error.cost_usd
        self.saved_usd += error.saved_usd
        self.answered += error.calls

    def put_on(self, error: JudgeError) -> None:
        error.set_tokens(self.usage)
        error.cost_usd, error.saved_usd, error.calls = self.cost_usd, self.saved_usd, self.answered

    def verdict(self, judgment: BaseModel, judge: str, **fields: Any) -> Verdict:
        return Verdict(
            judgment=judgment,
            judge=judge,
            served_model=self.served_model or None,
            usage=self.usage,
            cost_usd=self.cost_usd,
            saved_usd=self.saved_usd,
            calls=self.answered,
            **fields,
        )


def cost_text(usd: float | None, unpriced_calls: int, digits: str = ",.4g") -> str:
    """A sum of judge calls' costs for a person: of `unpriced_calls` the price is not known."""
    if not unpriced_calls:
        return f"${usd or 0.0:{digits}}"
    calls = f"{unpriced_calls:,} {'call' if unpriced_calls == 1 else 'calls'} of unknown price"
    return f"at least ${usd:{digits}} ({calls})" if usd else f"an unknown sum ({calls})"


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
    """One model of a provider: prices with their date (`bands`: of longer prompts and other days),
    limits of a beginner's account, parameters (null: not sent), and family ("": by its name). One
    that `thinks` has a larger output limit. From the day `retires` on its `successor`,
    PROVIDER/MODEL, judges instead; what is no `judge` is here for that alone. A prompt's start is
    cached from `cache_floor_tokens` on, with `cache_marks` only up to a mark; `batch_factor` is the
    share of the prices that batches are billed. None: not known."""

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
        """The prices of a day; None if they are not known."""
        bands = [band for band in self._bands if band.days[0] <= day <= band.days[1]]
        prices = [(band.above_tokens, self._price_of(band)) for band in bands]
        if not prices or (first := prices[0][1]) is None:
            return None
        return first._replace(above=tuple(prices[1:]))

    def _price_of(self, band: PriceBand) -> Price | None:
        if band.input_usd is None or band.output_usd is None:
            return None
        usd = {name: getattr(band, name) for name in Price._fields if name.endswith("_usd")}
        return Price(**usd, batch_factor=self.batch_factor)

    @property
    def _bands(self) -> list[PriceBand]:
        """All bands, by their days and lengths."""
        own = [] if self.input_usd is None and self.bands else [self]
        return sorted([*own, *self.bands], key=lambda band: (band.days, band.above_tokens))

    @model_validator(mode="after")
    def _has_no_gap(self) -> ModelEntry:
        periods = [(days, [*bands]) for days, bands in groupby(self._bands, lambda band: band.days)]
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
                if heir.partition("/")[0] not in PROVIDERS or not heir.partition("/")[2]:
                    raise ValueError(f"the successor {heir!r} of {name} is no PROVIDER/MODEL")
        return self


def load_table(path: str | None) -> JudgeTable:
    """The judge table of a file, else the package's. Raises ConfigError that names the fault."""
    where = Path(path) if path else importlib.resources.files("memray_eval.judges") / "judges.yaml"
    try:
        data = parse_yaml(where.read_text("utf-8"))
        return JudgeTable.model_validate(data)
    except (OSError, yaml.YAMLError, AttributeError, TypeError) as error:
        raise ConfigError(f"cannot read the judge table {where}: {reason_of(error)}") from None
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(describe(error, JudgeTable))) from None


def family(model: str) -> str:
    """The family that the words of a model's name tell, "" for an unknown one: gpt-4o and o3 are
    one, gemini and gemma another. Of two families, the first in FAMILY_MARKS."""
    name = model.lower()
    words = [word for word in re.findall(r"[a-z]+", name) if word != "ollama"]  # a server's name
    for named, marks in FAMILY_MARKS.items():
        if any(word.startswith(marks) or word.endswith(marks) for word in words):
            return named
    return "openai" if _O_SERIES.match(name.rpartition("/")[2]) else ""
