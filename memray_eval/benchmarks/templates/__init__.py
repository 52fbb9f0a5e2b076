"""Text with places to fill, and how a task of a published benchmark is asked. `records` reads the
benchmarks' records, `files` the templates that a user has of them."""

import re
from collections.abc import Callable, Collection, Mapping
from string import Formatter
from typing import TypeAlias

from memray_eval.types import Candidate, Frozen, Message, Prompt, Sample

Values: TypeAlias = Callable[[Sample], Mapping[str, str]]
_DOLLARED = re.compile(r"\$(DOC|Q|C_[A-D])\$")


class Template(Frozen):
    """Text with named places: `parts` are, in turn, text and a place's name, text at both ends."""

    parts: tuple[str, ...]

    @property
    def places(self) -> tuple[str, ...]:
        return self.parts[1::2]

    def fill(self, values: Mapping[str, str]) -> str:
        """The text with each place's value. Raises KeyError for a place without one."""
        return "".join(values[part] if index % 2 else part for index, part in enumerate(self.parts))


def parse_braces(text: str) -> Template:
    """A template in Python's format syntax. Raises ValueError for a brace that is not a field."""
    parts = [""]
    for literal, name, form, conversion in Formatter().parse(text):
        parts[-1] += literal
        if name is not None:
            if form or conversion or not name.isidentifier():
                raise ValueError(
                    f"{{{name}...}} is not a place; a brace that is text is written twice"
                )
            parts += [name, ""]
    return Template(parts=tuple(parts))


def parse_dollars(text: str) -> Template:
    """A template in LongBench v2's syntax: places are $DOC$, $Q$ and $C_A$ to $C_D$."""
    return Template(parts=tuple(_DOLLARED.split(text)))


def check_places(template: Template, names: Collection[str], context: str = "context") -> Template:
    """The template. Raises ValueError if it lacks the context's place or has an unknown one."""
    if context not in template.places:
        raise ValueError(f"has no place {context} for the context")
    if unknown := [name for name in template.places if name not in names]:
        raise ValueError(
            f"has a place {unknown[0]} that nothing fills; there are: {', '.join(names)}"
        )
    return template


class Wording(Frozen):
    """The prompt of one task, how long an answer may be and what ends it."""

    template: Template
    max_tokens: int
    is_chat: bool = True
    stop: tuple[str, ...] = ()

    def ask(self, values: Mapping[str, str]) -> Prompt:
        """One message, whose middle may be cut if the window is too small."""
        message = Message(role="user", content=self.template.fill(values))
        return Prompt(
            messages=(message,),
            is_chat=self.is_chat,
            max_tokens=self.max_tokens,
            stop=self.stop,
            is_cut=True,
        )


def own_wording(
    before: str, after: str, max_tokens: int, *, is_chat: bool = True, stop: tuple[str, ...] = ()
) -> Wording:
    """The house's way to ask: what all of a task's samples share, the context, and then all that
    varies, so that the engine's prefix cache serves questions on one context."""
    template = parse_braces(f"{before}\n\n{{context}}\n\n{after}")
    return Wording(template=template, max_tokens=max_tokens, is_chat=is_chat, stop=stop)


def own_values(sample: Sample) -> dict[str, str]:
    """The values of the places that our own wordings have."""
    return {"context": sample.context or "", "input": sample.query}


class PromptByTask(Frozen):
    """The `prompt` of a suite whose wordings differ by task; "" has that of all other samples."""

    wordings: Mapping[str, Wording]
    values: Values = own_values

    def __call__(self, sample: Sample, candidate: Candidate) -> Prompt:
        wording = self.wordings.get(sample.task) or self.wordings[""]
        return wording.ask(self.values(sample))
