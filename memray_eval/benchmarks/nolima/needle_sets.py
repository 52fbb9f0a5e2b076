"""NoLiMa's published needle sets and books, from the user's copy (hf://datasets/amodaresi/NoLiMa:
needlesets/*.json and haystack/rand_shuffle/*.txt).

The format is that of evaluation/run_tests.py at 7532e4e. Its licence is for non-commercial research
only, so nothing of it is shipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from memray_eval.benchmarks.conversations.conversation import names_in
from memray_eval.benchmarks.generator.resources import read_text
from memray_eval.errors import DataError
from memray_eval.types import Frozen, Name

CHARACTER = "{CHAR}"
Texts = Annotated[
    tuple[Name, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)
]


class _Test(BaseModel):
    model_config = ConfigDict(frozen=True)

    input_args: tuple[str, ...] = ()
    gold_answers: Texts = ()


class _Experiment(BaseModel):
    """One entry of a needle set. What is asked of it differs by its questions' types (onehop,
    twohop, direct, ...) and its tests, which fill the places {1}, {2}, ..."""

    model_config = ConfigDict(frozen=True)

    id: Name
    needle: Name
    questions: Annotated[dict[Name, Name], Field(min_length=1)]
    tests: Annotated[dict[Name, _Test], Field(min_length=1)]
    character_set: tuple[Name, ...] = ()
    distractors: dict[str, str] = Field(default_factory=dict)


class NeedleQuestion(Frozen):
    """A needle and the question about it, ready but for the character whose name is drawn for each
    sample: where there are `characters`, that one is the answer."""

    id: str
    task: str
    needle: str
    question: str
    characters: tuple[str, ...]
    answers: tuple[str, ...]
    distractor: str = ""


class Book(Frozen):
    """A text by the name of its file."""

    name: str
    text: str


_SET = TypeAdapter(Annotated[tuple[_Experiment, ...], Field(min_length=1)])


def read_needle_set(path: str) -> list[NeedleQuestion]:
    """The questions of a needle set, by experiment, type of question and test. Raises DataError
    that names the place."""
    try:
        experiments = _SET.validate_json(read_text(path))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise DataError(
            f"{path}: no needle set of NoLiMa's: {field + ': ' if field else ''}{first['msg']}"
        ) from None
    return [question for experiment in experiments for question in _questions_of(experiment, path)]


def _questions_of(experiment: _Experiment, path: str) -> Iterator[NeedleQuestion]:
    for task, question in experiment.questions.items():
        for name, test in experiment.tests.items():
            texts = [experiment.needle, question, experiment.distractors.get(task, "")]
            for number, value in enumerate(test.input_args, 1):
                texts = [text.replace(f"{{{number}}}", value) for text in texts]
            needle, query, distractor = texts
            draws = CHARACTER in needle
            if draws and not experiment.character_set:
                raise DataError(
                    f"{path}: {experiment.id}: its needle has {CHARACTER}, and no names to it"
                )
            if not draws and not test.gold_answers:
                raise DataError(f"{path}: {experiment.id}, test {name}: it has no gold_answers")
            yield NeedleQuestion(
                id=f"{experiment.id}_{name}_{task}",
                task=task,
                needle=needle,
                question=query,
                characters=experiment.character_set if draws else (),
                answers=test.gold_answers,
                distractor=distractor,
            )


def read_books(path: str) -> list[Book]:
    """A .txt file, or those of a folder, in the order of their names. Raises DataError."""
    names = [name for name in names_in(path) if name.endswith(".txt")]
    paths = (
        [f"{path.rstrip('/')}/{name}" for name in names] if not path.endswith(".txt") else [path]
    )
    if not paths:
        raise DataError(f"--books {path}: no .txt file there")
    books = [Book(name=file.rpartition("/")[2].removesuffix(".txt"), text=read_text(file))
             for file in paths]  # fmt: skip
    if empty := next((book.name for book in books if not book.text.strip()), None):
        raise DataError(f"--books {path}: {empty}.txt has no text")
    return books
