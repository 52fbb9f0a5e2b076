"""Suites that users bring: in a file of theirs, or as a template in a job."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import ValidationError

from memray_eval.benchmarks import Suite, all_suites, get_suite
from memray_eval.config.problems import describe
from memray_eval.config.sections import RubricMetric, SuiteTemplate, names_a_text_file
from memray_eval.errors import ConfigError, reason_of, suggest
from memray_eval.extensions import OwnObject, find_own_object, split_reference
from memray_eval.metric import Metric
from memray_eval.types import Candidate, Message, Prompt, Sample

Asked: TypeAlias = str | Prompt | Sequence[Message | Mapping[str, str]]
FIELDS = tuple(name for name in Sample.model_fields if name != "suite")  # that a template may name
_WRITTEN = {"query", "required_keys"}  # what every row of a run has, and hardly any other
_TEMPLATES = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, autoescape=False)


@dataclass(frozen=True)
class OwnSuite:
    """A suite as a user's file defines it, with its metrics before they have names."""

    suite: Suite
    metrics: tuple[Any, ...]


def suite(
    prompt: str | Callable[[Sample], Asked],
    metrics: Sequence[str | Metric | Callable[..., Any]],
    *,
    system: str = "",
    adapt: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    tasks: Sequence[str] = (),
    max_tokens: int | None = None,
    description: str = "",
) -> OwnSuite:
    """A suite for one's own file: `suite: my_suite.py:NAME`.

    `prompt` is a template over the sample's fields, or a function of a Sample that returns a text,
    a list of messages or a Prompt; `system` is a template too. `metrics` are names of built-in
    ones, and metrics and functions of the same file. `adapt` turns a record of one's own format
    into the fields of a Sample. `tasks` are in the order of the report's table. Raises ConfigError
    for a template that cannot be parsed.

        desk = me.suite("A customer asks: {{ query }}", metrics=["politeness"])
    """
    if isinstance(prompt, str):
        own = _from_template(prompt, system, "prompt", max_tokens)
    else:
        own = _from_function(prompt, _parse(system, "system"), max_tokens)
    own = replace(own, description=description, tasks=tuple(tasks))
    if adapt is not None:
        own = replace(own, adapt=lambda raw, path: raw if raw.keys() >= _WRITTEN else adapt(raw))
    return OwnSuite(own, tuple(metrics))


@dataclass(frozen=True)
class SuiteSource:
    """The source of a suite, which travels to workers: a name with templates, or a user's own."""

    name: str
    templates: str | None = None
    own: OwnObject | SuiteTemplate | None = None

    def load(self) -> Suite:
        """The suite. Raises ConfigError."""
        return _load(self)

    @property
    def metrics(self) -> tuple[str | RubricMetric, ...]:
        """The metrics of the suite unless a job says otherwise, as a job would list it."""
        return self.own.metrics if isinstance(self.own, SuiteTemplate) else self.load().metrics

    @property
    def code(self) -> OwnObject | None:
        """The user's object that the suite is."""
        return self.own if isinstance(self.own, OwnObject) else None

    def adapt(self, raw: Mapping[str, Any], path: str) -> Mapping[str, Any]:
        """The suite's own `adapt`, on any worker."""
        return self.load().adapt(raw, path)


def suite_name(entry: str | SuiteTemplate) -> str:
    """The name of the suite that a job names."""
    if isinstance(entry, SuiteTemplate):
        return entry.name
    if entry in all_suites() or (reference := split_reference(entry)) is None:
        return entry
    file, attribute = reference
    return (attribute or Path(file).stem).lower()


def find_suite(entry: str | SuiteTemplate, templates: str | None = None) -> SuiteSource:
    """The suite that a job names. Raises ConfigError if there is none, or it cannot be loaded."""
    name = suite_name(entry)
    own: OwnObject | SuiteTemplate | None = None
    if isinstance(entry, SuiteTemplate):
        own = entry.model_copy(
            update={key: _read_text(key, getattr(entry, key)) for key in ("prompt", "system")}
        )
    elif entry not in all_suites() and (own := find_own_object(entry)) is not None:
        own = replace(own, attribute=own.attribute or _only_suite(own))
    if own is not None and templates is not None:
        raise ConfigError(f"templates: suite {name!r} takes none; leave the key out")
    source = SuiteSource(name, templates, own)
    source.load()
    return source


@cache  # templates are read once a process
def _load(source: SuiteSource) -> Suite:
    if source.own is None:
        return get_suite(source.name, source.templates)
    if isinstance(source.own, SuiteTemplate):
        template = source.own
        base = _from_template(template.prompt, template.system, "suite.prompt", template.max_tokens)
        return replace(base, name=source.name, description=f"The template {template.name}")
    loaded = source.own.load()
    if not isinstance(loaded, OwnSuite):
        raise ConfigError(
            f"{source.own.source.place}: {source.own.attribute} is {type(loaded).__name__}, no "
            "suite; write NAME = memray_eval.suite(PROMPT, metrics=[...])"
        )
    names = tuple(_name_of(metric, source.own) for metric in loaded.metrics)
    return replace(loaded.suite, name=source.name, metrics=names)


def _name_of(metric: Any, own: OwnObject) -> str:
    """The name that a suite's file has for a metric of its list."""
    if isinstance(metric, str):
        return metric
    if not (names := [name for name, value in own.siblings().items() if value is metric]):
        raise ConfigError(
            f"{own.source.place}: a metric of the suite has no name in the file; write NAME = "
            "computed_metric(...), and list NAME"
        )
    return names[0]


def _only_suite(own: OwnObject) -> str:
    names = [name for name, value in own.siblings().items() if isinstance(value, OwnSuite)]
    if len(names) != 1:
        raise ConfigError(
            f"{own.source.place} defines {len(names)} suites; name one: {own.source.name}:NAME"
            + (f" ({', '.join(names)})" if names else "")
        )
    return names[0]


def _read_text(key: str, text: str) -> str:
    """A template's text; read from the file if it is a path."""
    if not names_a_text_file(text):
        return text
    try:
        return Path(text).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"suite.{key}: cannot read {text}: {reason_of(error)}") from None


def _parse(text: str, what: str) -> jinja2.Template | None:
    """A template, None for no text. Raises ConfigError that names the line or unknown field."""
    if not text:
        return None
    try:
        tree = _TEMPLATES.parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigError(f"{what}, line {error.lineno}: {error.message}") from None
    for name in sorted(jinja2.meta.find_undeclared_variables(tree)):
        if name not in FIELDS:
            raise ConfigError(f"{what}: a sample has no field {name!r}; {suggest(name, FIELDS)}")
    return _TEMPLATES.from_string(text)


def _from_template(text: str, system: str, what: str, max_tokens: int | None) -> Suite:
    """The suite that asks with a template. Too long a prompt with a context loses its middle."""
    user, first = _parse(text, what), _parse(system, what.replace("prompt", "system"))
    if user is None:
        raise ConfigError(f"{what} is empty")
    named = jinja2.meta.find_undeclared_variables(_TEMPLATES.parse(f"{text}\n{system}"))
    has_context = "context" in named

    def ask(sample: Sample, candidate: Candidate) -> Prompt:
        fields = sample.model_dump(include=set(FIELDS))
        turns = [] if "history" in named else [Message(**dict(turn)) for turn in sample.history]
        message = Message(role="user", content=user.render(fields))
        messages = [*_system_message(first, fields), *turns, message]
        return _to_prompt(messages, max_tokens, is_cut=has_context and sample.context is not None)

    return Suite(description="", metrics=(), prompt=ask, has_contexts=has_context)


def _from_function(
    fn: Callable[[Sample], Asked], system: jinja2.Template | None, max_tokens: int | None
) -> Suite:
    def ask(sample: Sample, candidate: Candidate) -> Prompt:
        reply = fn(sample)
        if isinstance(reply, Prompt):
            return reply
        if isinstance(reply, str):
            reply = [Message(role="user", content=reply)]
        is_list = isinstance(reply, Iterable) and not isinstance(reply, Mapping)
        if not is_list or inspect.isawaitable(reply):
            what = type(reply).__name__
            raise TypeError(f"prompt returned {what}, not a text or a list of messages")
        try:
            messages = [Message.model_validate(message) for message in reply]
        except ValidationError as error:
            wrong = "; ".join(describe(error, Message))
            raise TypeError(f"prompt returned a message that is none: {wrong}") from None
        fields = sample.model_dump(include=set(FIELDS))
        return _to_prompt([*_system_message(system, fields), *messages], max_tokens)

    return Suite(description="", metrics=(), prompt=ask)


def _system_message(system: jinja2.Template | None, fields: Mapping[str, Any]) -> list[Message]:
    text = system.render(fields).strip() if system is not None else ""
    return [Message(role="system", content=text)] if text else []


def _to_prompt(messages: Sequence[Message], max_tokens: int | None, is_cut: bool = False) -> Prompt:
    if not any(message.content.strip() for message in messages):
        raise ValueError("the prompt is empty")
    return Prompt(messages=tuple(messages), max_tokens=max_tokens, is_cut=is_cut)
