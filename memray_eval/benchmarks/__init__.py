"""The benchmarks: <name>.py, or <name>/suite.py, has `SUITE`: how a sample is asked and scored."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from statistics import fmean
from typing import Any, NamedTuple

from memray_eval.config.sections import names_a_file
from memray_eval.errors import ConfigError, reason_of, suggest
from memray_eval.ports import PublishedFiles, no_adaptation
from memray_eval.storage.paths import locate, open_reader
from memray_eval.text_processing.numerals import choice_lines, choices_of
from memray_eval.types import Candidate, Message, Prompt, Sample
from memray_eval.types.samples import SYSTEM


class Answered(NamedTuple):
    """An answer as a benchmark's overall figures count it: its task, whether the question
    cannot be answered, and the values and parts of its metrics."""

    task: str
    is_unanswerable: bool
    values: Mapping[str, float]
    parts: Mapping[str, Mapping[str, float]]


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are not None; None if there are none."""
    present = [value for value in values if value is not None]
    return fmean(present) if present else None


def mean_of_tasks(answered: Iterable[Answered], metric: str) -> float | None:
    """The mean of a metric's means by task, each task counting once."""
    by_task: dict[str, list[float]] = {}
    for row in answered:
        if metric in row.values:
            by_task.setdefault(row.task, []).append(row.values[metric])
    return mean_of(map(fmean, by_task.values()))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A benchmark's own rule. `about` says what it computes, the docstring of `by` (else of
    `score`) how; `version` is the original's repository and commit; `why_not` says why it does not
    apply to a sample (None: it does); `score` gives 0-1, and ValueError for what is lacking."""

    title: str
    value_label: str
    about: str
    version: str
    score: Callable[[Sample, str], float]
    why_not: Callable[[Sample], str | None] = lambda sample: None
    by: Callable[..., object] | None = None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A benchmark: how its samples are asked, and what a run of it computes by default.

    `prompts` names the variants that a candidate may ask for; with `takes_prompt_files` also by
    path. `baselines` are functions of the folder's baselines.py. `adapt` turns a published record,
    read from the file at `path`, into the fields of a Sample, and leaves our own format as it is;
    it raises ValueError that says what is lacking. `tasks` are in the order of its table;
    `headline` is the metric of quality (the first, unless named). `has_contexts`: samples share
    long contexts; `has_arms`: they are conversations, of which a candidate may be shown a part.
    `files` reads published files with several questions a record. `rules` are also metrics;
    `rule_of` names that of a sample; `right_from` is the score from which an answer is right.
    `scores_empty`: the published rule scores an empty prediction. `own_metric` is the benchmark's
    own score, `overall` its own figures over all answers. `templated` makes the suite that asks, or
    judges by `judge_rubrics`, with the user's copy of its templates."""

    description: str
    metrics: tuple[str, ...]
    prompt: Callable[[Sample, Candidate], Prompt]
    prompts: tuple[str, ...] = ("default",)
    takes_prompt_files: bool = False
    baselines: tuple[str, ...] = ()
    adapt: Callable[[Mapping[str, Any], str], Mapping[str, Any]] = no_adaptation
    tasks: tuple[str, ...] = ()
    headline: str = ""
    has_contexts: bool = False
    has_arms: bool = False
    files: PublishedFiles | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    rule_of: Callable[[Sample], str | None] = lambda sample: None
    right_from: Mapping[str, float] = field(default_factory=dict)
    own_metric: str = "rule_score"
    overall: Callable[[Sequence[Answered]], dict[str, float | None]] = lambda answered: {}
    judge_rubrics: Mapping[str, str] = field(default_factory=dict)
    reports_speed: bool = False
    scores_empty: bool = False
    templated: Callable[[Suite, str], Suite] | None = None
    name: str = ""

    def ask(self, sample: Sample, candidate: Candidate) -> Prompt:
        """The prompt, with the row's own system prompt and choices if it shows neither."""
        prompt = self.prompt(sample, candidate)
        system, shown = sample.metadata.get(SYSTEM), [turn.content for turn in prompt.messages]
        lines, whole = choice_lines(sample), "\n".join(shown)
        own = system if isinstance(system, str) and " " in system.strip() else ""
        own = "" if own in whole else own
        lines = "" if all(choice in whole for choice in choices_of(sample)) else lines
        if not (own or lines):
            return prompt
        messages = [*prompt.messages]
        if lines:
            messages[-1] = Message(role=messages[-1].role, content=shown[-1] + lines)
        if own and messages[0].role == "system":
            messages[0] = Message(role="system", content=f"{messages[0].content}\n\n{own}")
        elif own:
            messages.insert(0, Message(role="system", content=own + "\n\n" * (not prompt.is_chat)))
        return prompt.model_copy(update={"messages": tuple(messages)})

    def quality_metric(self, computed: Sequence[str]) -> str:
        """The metric that stands for quality: the headline, or the run's first; "" for none."""
        headline = self.headline or next(iter(self.metrics), "")
        return headline if headline in computed else next(iter(computed), "")


# The suite of a benchmark on long contexts or conversations
long_context_suite = partial(
    Suite, has_contexts=True, scores_empty=True, metrics=("semantic_correctness", "rule_score")
)


@cache
def all_suites() -> dict[str, Suite]:
    """All suites by name: of files, of folders with a suite.py, and those of plain.py."""
    suites: dict[str, Suite] = {}
    for file in pkgutil.iter_modules(__path__):
        name = f"{__name__}.{file.name}.suite" if file.ispkg else f"{__name__}.{file.name}"
        if importlib.util.find_spec(name) is not None:
            module = importlib.import_module(name)
            if hasattr(module, "SUITE"):
                suites[file.name] = module.SUITE
    suites |= importlib.import_module(f"{__name__}.plain").SUITES
    return {name: replace(suites[name], name=name) for name in sorted(suites)}


def get_suite(name: str, templates: str | None = None) -> Suite:
    """The built-in suite, asking with the user's copy of its `templates`. Raises ConfigError."""
    if name not in all_suites():
        advice = suggest(name, all_suites())
        raise ConfigError(f"no suite {name!r}; {advice} One of your own is FILE.py:NAME")
    suite = all_suites()[name]
    if templates is None:
        return suite
    if suite.templated is None:
        raise ConfigError(f"templates: suite {name!r} takes none; leave the key out")
    return suite.templated(suite, templates)


def check_prompts(suite: Suite, candidates: tuple[Candidate, ...]) -> None:
    """Raises ConfigError for a prompt variant that the suite lacks, or an unreadable file."""
    for candidate in candidates:
        if not suite.has_arms and (candidate.context or candidate.retrieved or candidate.memory):
            having = ", ".join(name for name, other in all_suites().items() if other.has_arms)
            raise ConfigError(
                f"candidate {candidate.name!r}: suite {suite.name!r} has no conversations of which "
                f"context: {candidate.context or candidate.arm} could show a part; these have: "
                f"{having}"
            )
        if candidate.prompt in suite.prompts:
            continue
        names = ", ".join(suite.prompts)
        if suite.takes_prompt_files and names_a_file(candidate.prompt):
            try:
                prompt_text(candidate.prompt)
            except ConfigError as error:
                raise ConfigError(
                    f"candidate {candidate.name!r}: {error}; suite {suite.name!r} has: {names}"
                ) from None
            continue
        more = ", or the path of a text file" if suite.takes_prompt_files else ""
        raise ConfigError(
            f"candidate {candidate.name!r}: suite {suite.name!r} has no prompt "
            f"{candidate.prompt!r}; it has: {names}{more}"
        )


@cache
def prompt_text(path: str) -> str:
    """The text of a candidate's own prompt, of a path or cloud URL. Raises ConfigError."""
    try:
        with open_reader(*locate(path)) as file:
            text = file.read().decode("utf-8-sig").strip()
    except FileNotFoundError:
        raise ConfigError(f"prompt: no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt: cannot read {path}: {reason_of(error)}") from None
    if not text:
        raise ConfigError(f"prompt: {path} is empty")
    return text
