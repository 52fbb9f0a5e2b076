"""Reads emotion in text with a classifier of the hub or a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from memray_eval.affect.labels import Distribution, LabelSet, ModelLabels
from memray_eval.errors import ConfigError, GenerationError, cut

OFF = "off"
TRANSFORMERS = "transformers:"
BATCH_SIZE = 16  # texts that go through a transformer at once
MAX_TOKENS = 512  # of a text that a transformer reads, unless its own window is shorter

Scores = Mapping[str, float]  # a model's own label -> 0 or more


class TextEmotion(Protocol):
    """Reads emotion in texts."""

    name: str
    labels: LabelSet

    async def infer(self, texts: Sequence[str]) -> list[Distribution]:
        """Returns a distribution over `labels` for each text, in order, whatever else is in the
        batch (up to rounding). Raises GenerationError if a model fails."""
        ...


class TransformersEmotion:
    """A text classifier. Its labels decide the label set; several of them may share one. Scores of
    a model that rates each label by itself (GoEmotions' are often so) are made to sum to 1."""

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
        encodable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        try:
            scores = await asyncio.to_thread(self._classify, encodable)
        except RuntimeError as error:  # torch's, for all that goes wrong inside a model
            raise GenerationError(f"{self.name} failed: {type(error).__name__}: {error}") from error
        return [self._model_labels.normalise(by_label) for by_label in scores]


def load_text_emotion(name: str) -> TransformersEmotion:
    """Loads `transformers:MODEL`. Raises ConfigError that says what is missing."""
    pipe = load_pipeline("text", name, batch_size=BATCH_SIZE)
    # RoBERTa's first two positions are padding's.
    config = pipe.model.config
    positions = int(getattr(config, "max_position_embeddings", MAX_TOKENS + 2)) - 2
    window = min(MAX_TOKENS, pipe.tokenizer.model_max_length, positions)

    def classify(texts: list[str]) -> list[Scores]:
        results = pipe(texts, truncation=True, max_length=window)
        return [{entry["label"]: float(entry["score"]) for entry in scores} for scores in results]

    return TransformersEmotion(name, [str(label) for label in config.id2label.values()], classify)


def load_pipeline(kind: Literal["text", "audio"], name: str, **options: Any) -> Any:
    """Loads `transformers:MODEL` as Hugging Face's pipeline. Raises ConfigError if it cannot."""
    try:
        from transformers import pipeline
    except ImportError as error:
        raise ConfigError(
            f"{name}: the package {error.name} is missing; install the extra `cpu` or `gpu` (make "
            "setup)"
        ) from None
    try:
        model = name.removeprefix(TRANSFORMERS)
        return pipeline(f"{kind}-classification", model=model, top_k=None, **options)
    except Exception as error:  # transformers raises many types: OSError, ValueError, KeyError
        reason = cut(str(error), 300) or type(error).__name__
        raise ConfigError(f"{name} cannot be loaded as a classifier of {kind}: {reason}") from error
