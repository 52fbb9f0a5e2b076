"""Label sets of emotions, the conversion of a distribution between them, and fusion. The
probabilities of all labels of a set sum to 1 within 1e-6. Every set is tied to EKMAN by two tables
of shares, and to others through it."""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from memray_eval.errors import ConfigError, cut

Distribution = dict[str, float]  # label -> probability
# Label -> its shares over the labels of another set, summing to 1
Table = Mapping[str, Mapping[str, float]]


class LabelSet(NamedTuple):
    """Emotions that exclude each other, in a fixed order, under a name."""

    name: str
    labels: tuple[str, ...]

    def uniform(self) -> Distribution:
        return dict.fromkeys(self.labels, 1.0 / len(self.labels))

    def normalised(self, weights: Sequence[float]) -> Distribution:
        """Scales weights, in the order of the labels, to sum to 1. Negative and infinite ones count
        as 0; without any, the result is uniform. Raises ValueError if their number is wrong."""
        valid = [weight if math.isfinite(weight) and weight > 0 else 0.0 for weight in weights]
        # Divided by the largest first: huge and tiny weights stay in the range of a float
        top = max(valid, default=0.0) or 1.0
        total = math.fsum(weight / top for weight in valid)
        if total == 0.0:
            return self.uniform()
        return {
            label: weight / top / total for label, weight in zip(self.labels, valid, strict=True)
        }


def is_uniform(distribution: Mapping[str, float]) -> bool:
    """Returns True if all labels of a distribution have the same share."""
    even = 1.0 / len(distribution)
    return all(math.isclose(share, even, abs_tol=1e-9) for share in distribution.values())


EKMAN = LabelSet("ekman", tuple("anger disgust fear joy neutral sadness surprise".split()))
GOEMOTIONS = LabelSet(
    "goemotions28",
    tuple(
        """
        admiration amusement anger annoyance approval caring confusion curiosity desire
        disappointment disapproval disgust embarrassment excitement fear gratitude grief joy love
        nervousness optimism pride realization relief remorse sadness surprise neutral
    """.split()
    ),
)
# As most speech models have it (IEMOCAP)
FOUR = LabelSet("four", tuple("angry happy neutral sad".split()))
LABEL_SETS = {labels.name: labels for labels in (FOUR, EKMAN, GOEMOTIONS)}

# The mapping of GoEmotions' 27 emotions is GoEmotions' own hierarchy (Demszky et al. 2020,
# ekman_mapping.json).
_EKMAN_OF_GOEMOTIONS = {
    "anger": "anger annoyance disapproval",
    "disgust": "disgust",
    "fear": "fear nervousness",
    "joy": "joy amusement approval excitement gratitude love optimism relief pride admiration "
    "desire caring",
    "sadness": "sadness disappointment embarrassment grief remorse",
    "surprise": "surprise realization confusion curiosity",
    "neutral": "neutral",
}


def _whole(members: Mapping[str, str]) -> Table:
    """The table by which the whole share of each label goes to the one that has it as a member."""
    return {label: {other: 1.0} for other, labels in members.items() for label in labels.split()}


_SAME_NAME = _whole({label: label for label in EKMAN.labels})
TO_EKMAN: dict[str, Table] = {
    "ekman": _SAME_NAME,
    "goemotions28": _whole(_EKMAN_OF_GOEMOTIONS),
    # Four classes cannot tell disgust from anger, fear from sadness, surprise from joy. These
    # shares keep uniform over four uniform over seven.
    "four": {
        "angry": {"anger": 4 / 7, "disgust": 3 / 7},
        "happy": {"joy": 4 / 7, "surprise": 3 / 7},
        "sad": {"sadness": 4 / 7, "fear": 3 / 7},
        "neutral": {"neutral": 4 / 7, "disgust": 1 / 7, "fear": 1 / 7, "surprise": 1 / 7},
    },
}
FROM_EKMAN: dict[str, Table] = {
    "ekman": _SAME_NAME,
    "goemotions28": _SAME_NAME,  # the head of each family bears its name
    "four": {  # surprise is neither good nor bad: it says nothing about four classes
        **_whole(
            {"angry": "anger disgust", "sad": "fear sadness", "happy": "joy", "neutral": "neutral"}
        ),
        "surprise": FOUR.uniform(),
    },
}

# Models' names of the same emotion, by Ekman's or GoEmotions' name.
_SYNONYMS = {
    "anger": "angry ang mad",
    "annoyance": "annoyed frustration frustrated fru",
    "disgust": "disgusted dis",
    "excitement": "excited exc",
    "fear": "fearful afraid scared fea",
    "joy": "joyful happy happiness hap",
    "neutral": "neu calm calmness other others unknown unk none no_emotion",
    "nervousness": "nervous anxiety anxious",
    "sadness": "sad",
    "surprise": "surprised sur pleasant_surprise",
}
_CANONICAL = {word: name for name, words in _SYNONYMS.items() for word in words.split()}


def convert(distribution: Mapping[str, float], source: LabelSet, target: LabelSet) -> Distribution:
    """Converts a distribution over `source` to the labels of `target`: the same sum, every label
    present. A label of the source that is missing counts as 0."""
    if source == target:
        return {label: float(distribution.get(label, 0.0)) for label in target.labels}
    ekman = _map_labels(distribution, TO_EKMAN[source.name], EKMAN)
    return _map_labels(ekman, FROM_EKMAN[target.name], target)


def _map_labels(distribution: Mapping[str, float], table: Table, target: LabelSet) -> Distribution:
    pushed = dict.fromkeys(target.labels, 0.0)
    for label, share in distribution.items():
        for other, part in table[label].items():
            pushed[other] += share * part
    return pushed


def labels_of(distribution: Mapping[str, float]) -> LabelSet:
    """Returns the label set of a distribution. Raises ConfigError if no set has its labels."""
    for labels in LABEL_SETS.values():
        if set(labels.labels) == set(distribution):
            return labels
    raise ConfigError(
        f"no label set has the labels {sorted(distribution)}; the sets are: {', '.join(LABEL_SETS)}"
    )


def _canonical(label: str) -> str:
    word = label.strip().strip("<>").lower().replace(" ", "_")
    return _CANONICAL.get(word, word)


class FusionWeights(NamedTuple):
    """The weights of speech and text; they sum to 1."""

    speech: float
    text: float


def normalised_weights(speech_weight: float, text_weight: float) -> FusionWeights:
    """Scales the two weights to sum to 1. Raises ConfigError that names the flag if one is negative
    or not finite, or both are zero."""
    for flag, weight in (("--speech-weight", speech_weight), ("--text-weight", text_weight)):
        if not math.isfinite(weight) or weight < 0:
            raise ConfigError(f"{flag} {weight}: a weight is a finite number, 0 or more")
    top = max(speech_weight, text_weight)
    if top == 0:
        raise ConfigError(
            "--speech-weight 0 --text-weight 0: give one of them more than 0, or use --affect off"
        )
    speech, text = speech_weight / top, text_weight / top  # so that their sum is finite
    return FusionWeights(speech / (speech + text), text / (speech + text))


def fuse(
    speech: Mapping[str, float] | None, text: Mapping[str, float], weights: FusionWeights
) -> Distribution:
    """Returns the weighted mean of two distributions, in the labels of the text's set. Source: seed
    000, step 6 of the generation. Speech that is missing, or uniform over its own set, is uniform
    over the text's: it must not favour labels that the sets share. Raises ConfigError for labels
    that no set has."""
    labels = labels_of(text)
    spoken = labels.uniform()
    if speech is not None and not is_uniform(speech):
        spoken = convert(speech, labels_of(speech), labels)
    return labels.normalised(
        [weights.speech * spoken[label] + weights.text * text[label] for label in labels.labels]
    )


OFF = "off"
TRANSFORMERS = "transformers:"
BATCH_SIZE = 16  # texts that go through a transformer at once
MAX_TOKENS = 512  # of a text that a transformer reads, unless its own window is shorter

Scores = Mapping[str, float]  # a model's own label -> 0 or more


class Transformer:
    """A classifier of the hub or a folder. `labels` is the smallest set that has all of its labels,
    under their own names or synonyms; several of them may share one label. Scores of a model that
    rates each label by itself (GoEmotions' are often so) are made to sum to 1."""

    def __init__(
        self, name: str, model_labels: Sequence[str], classify: Callable[[list[Any]], list[Scores]]
    ) -> None:
        """Raises ConfigError for labels that no label set knows."""
        self.name, self._classify = name, classify
        names = {label: _canonical(label) for label in model_labels}
        for labels in LABEL_SETS.values():
            by_name = {_canonical(label): label for label in labels.labels}
            if by_name.keys() >= set(names.values()):
                self.labels = labels
                self._translated = {label: by_name[name] for label, name in names.items()}
                return
        unknown = [repr(label) for label, name in names.items() if name not in GOEMOTIONS.labels]
        raise ConfigError(
            f"{name} has labels that no label set knows: {', '.join(unknown)}; name them "
            f"in its config.json (id2label) by words of: {', '.join(GOEMOTIONS.labels)}"
        )

    async def _read(self, inputs: list[Any]) -> list[Distribution | str]:
        """A distribution over `labels` for each input, in order, or the reason why the model failed
        at it. Raises RuntimeError, which is torch's for all that goes wrong inside a model."""
        scores = await asyncio.to_thread(self._classify, inputs) if inputs else []
        return [self._normalise(by_label) for by_label in scores]

    def _normalise(self, scores: Scores) -> Distribution | str:
        """Sums a model's scores by label and scales them to sum to 1; of scores that say nothing
        (NaN, which a model in half precision gives on some CPUs) the reason why it failed."""
        if not any(0 < score < math.inf for score in scores.values()):
            return f"{self.name} failed: none of its scores is a number above 0"
        summed = dict.fromkeys(self.labels.labels, 0.0)
        for label, score in scores.items():
            summed[self._translated[label]] += score if score > 0 else 0.0
        return self.labels.normalised(list(summed.values()))


class TransformersEmotion(Transformer):
    """A text classifier."""

    async def infer(self, texts: Sequence[str]) -> list[Distribution | str]:
        """A distribution over `labels` for each text, in order, or the reason why it failed."""
        # Tokenizers refuse lone surrogates
        encodable = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        try:
            return await self._read(encodable)
        except RuntimeError as error:
            return [f"{self.name} failed: {type(error).__name__}: {error}"] * len(texts)


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
