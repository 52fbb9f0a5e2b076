"""Backends that read emotion in text, by name, behind one protocol.

`classifier` and `lexicon` come with the package and read English; `transformers:MODEL` is a text
classifier of the hub or a folder; `off` reads nothing. affect/README.md says how good each is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from memray_eval.affect.classifier import ClassifierEmotion
from memray_eval.affect.labels import EKMAN, Distribution, LabelSet, ModelLabels
from memray_eval.affect.lexicon import LexiconEmotion
from memray_eval.errors import ConfigError, GenerationError

OFF = "off"
TRANSFORMERS = "transformers:"
TEXT_BACKENDS = ("classifier", "lexicon", f"{TRANSFORMERS}MODEL", OFF)
BATCH_SIZE = 16  # texts that go through a transformer at once
MAX_TOKENS = 512  # of a text that a transformer reads, where its own window is no shorter

Scores = Mapping[str, float]  # a model's own label -> 0 or more


class TextEmotion(Protocol):
    """Reads emotion in texts: one distribution over `labels` for each text, in order, whatever else
    is in the batch (a transformer's up to rounding). Raises GenerationError if a model fails."""

    name: str
    labels: LabelSet

    async def infer(self, texts: Sequence[str]) -> list[Distribution]: ...


def build_text_emotion(name: str) -> TextEmotion:
    """Loads the backend of a name. Raises ConfigError that lists the known ones, or says what a
    model lacks."""
    match name:
        case "classifier":
            return ClassifierEmotion()
        case "lexicon":
            return LexiconEmotion()
        case "off":
            return UnreadText()
    if name.startswith(TRANSFORMERS) and name != TRANSFORMERS:
        return TransformersEmotion(name, *load_classifier(name.removeprefix(TRANSFORMERS)))
    raise ConfigError(f"no text emotion backend {name!r}; there are: {', '.join(TEXT_BACKENDS)}")


class UnreadText:
    """Reads nothing: uniform."""

    name = OFF
    labels = EKMAN

    async def infer(self, texts: Sequence[str]) -> list[Distribution]:
        return [self.labels.uniform() for _ in texts]


class TransformersEmotion:
    """A text classifier of the hub or a folder. Its labels decide the label set; several of its
    labels may share one. A model that scores each label by itself (GoEmotions' are often so) has
    its scores made to sum to 1. The end of a text that is longer than its window is not read."""

    def __init__(
        self, name: str, model_labels: Sequence[str], classify: Callable[[list[str]], list[Scores]]
    ) -> None:
        """Raises ConfigError for labels that no label set knows."""
        self.name, self._classify = name, classify
        self._model_labels = ModelLabels(model_labels, name)
        self.labels = self._model_labels.labels

    async def infer(self, texts: Sequence[str]) -> list[Distribution]:
        if not texts:
            return []
        # Tokenizers refuse lone surrogates
        whole = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        try:
            scores = await asyncio.to_thread(self._classify, whole)
        except RuntimeError as error:  # torch's, for all that goes wrong inside a model
            raise GenerationError(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return [self._model_labels.normalise(by_label) for by_label in scores]


def load_pipeline(kind: Literal["text", "audio"], model: str, **options: Any) -> Any:
    """A classifier of the hub or a folder, as Hugging Face's pipeline. Raises ConfigError that says
    what is missing."""
    try:
        from transformers import pipeline
    except ImportError as error:
        raise ConfigError(
            f"{TRANSFORMERS}{model}: the package {error.name} is missing; install the extra `cpu` "
            "or `gpu` (make setup)"
        ) from None
    try:
        return pipeline(f"{kind}-classification", model=model, top_k=None, **options)
    except Exception as error:  # transformers raises many types: OSError, ValueError, KeyError
        article = "a" if kind == "text" else "an"
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ConfigError(
            f"{TRANSFORMERS}{model} cannot be loaded as {article} {kind} classifier: {reason}"
        ) from error


def load_classifier(model: str) -> tuple[list[str], Callable[[list[str]], list[Scores]]]:
    """The labels of a text classifier, and a function that classifies. Raises ConfigError."""
    pipe = load_pipeline("text", model, batch_size=BATCH_SIZE)
    # RoBERTa's first two positions are padding's.
    config = pipe.model.config
    positions = int(getattr(config, "max_position_embeddings", MAX_TOKENS + 2)) - 2
    window = min(MAX_TOKENS, pipe.tokenizer.model_max_length, positions)

    def classify(texts: list[str]) -> list[Scores]:
        results = pipe(texts, truncation=True, max_length=window)
        return [{entry["label"]: float(entry["score"]) for entry in scores} for scores in results]

    return [str(label) for label in pipe.model.config.id2label.values()], classify
