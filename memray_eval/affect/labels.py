"""Label sets of emotions, and how a distribution converts from one to another.

A distribution maps every label of its set to a probability; the probabilities sum to 1 within 1e-6.
Every set is tied to EKMAN by two tables of shares, and any two sets to each other through it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from memray_eval.errors import ConfigError
from memray_eval.types import Frozen, Name

Distribution = dict[str, float]  # label -> probability
# Label -> its shares over the labels of another set, summing to 1
Table = Mapping[str, Mapping[str, float]]


class LabelSet(Frozen):
    """Emotions that exclude each other, in a fixed order, under a name."""

    name: Name
    labels: Annotated[tuple[Name, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _distinct(self) -> LabelSet:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError(f"label set {self.name!r} has a label twice")
        return self

    def uniform(self) -> Distribution:
        """The distribution for when nothing is known."""
        return dict.fromkeys(self.labels, 1.0 / len(self.labels))

    def normalised(self, weights: Sequence[float]) -> Distribution:
        """Weights in the order of the labels, made to sum to 1. Negative ones and those not finite
        count as 0; where nothing is left, uniform. Raises ValueError if their number is not that of
        the labels."""
        held = [
            weight if math.isfinite(weight) and weight > 0 else 0.0
            for weight in map(float, weights)
        ]
        top = max(held, default=0.0)
        if len(held) != len(self.labels):
            raise ValueError(
                f"{len(held)} weights for the {len(self.labels)} labels of {self.name!r}"
            )
        if top == 0.0:
            return self.uniform()
        # So that neither huge nor tiny weights leave the range of a float
        scaled = [weight / top for weight in held]
        total = math.fsum(scaled)
        return {label: weight / total for label, weight in zip(self.labels, scaled, strict=True)}


def is_uniform(distribution: Mapping[str, float]) -> bool:
    """Whether all labels of a distribution have the same share."""
    return all(
        math.isclose(share, 1.0 / len(distribution), abs_tol=1e-9)
        for share in distribution.values()
    )


EKMAN = LabelSet(
    name="ekman", labels=tuple("anger disgust fear joy neutral sadness surprise".split())
)
GOEMOTIONS = LabelSet(
    name="goemotions28",
    labels=tuple(
        """
        admiration amusement anger annoyance approval caring confusion curiosity desire
        disappointment disapproval disgust embarrassment excitement fear gratitude grief joy love
        nervousness optimism pride realization relief remorse sadness surprise neutral
    """.split()
    ),
)
# As most speech models have it (IEMOCAP)
FOUR = LabelSet(name="four", labels=tuple("angry happy neutral sad".split()))
CONGRUENCE = (
    LabelSet(  # the families that metrics/assistant/emotional_congruence.py answers differently
        name="congruence", labels=tuple("anger fear joy neutral sadness surprise".split())
    )
)
LABEL_SETS = {labels.name: labels for labels in (EKMAN, GOEMOTIONS, FOUR, CONGRUENCE)}

# Where GoEmotions' 27 emotions go is GoEmotions' own hierarchy (Demszky et al. 2020,
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


def _one_to_one(pairs: Iterable[tuple[str, str]]) -> Table:
    return {label: {other: 1.0} for label, other in pairs}


_SAME_NAME = _one_to_one((label, label) for label in EKMAN.labels)
TO_EKMAN: dict[str, Table] = {
    "ekman": _SAME_NAME,
    "goemotions28": _one_to_one(
        (fine, coarse)
        for coarse, members in _EKMAN_OF_GOEMOTIONS.items()
        for fine in members.split()
    ),
    # Four classes cannot tell disgust from anger, fear from sadness, surprise from joy. These
    # shares say so, and leave uniform over four uniform over seven: a recogniser that knows nothing
    # must not speak against fear.
    "four": {
        "angry": {"anger": 4 / 7, "disgust": 3 / 7},
        "happy": {"joy": 4 / 7, "surprise": 3 / 7},
        "sad": {"sadness": 4 / 7, "fear": 3 / 7},
        "neutral": {"neutral": 4 / 7, "disgust": 1 / 7, "fear": 1 / 7, "surprise": 1 / 7},
    },
    "congruence": {label: {label: 1.0} for label in CONGRUENCE.labels},
}
FROM_EKMAN: dict[str, Table] = {
    "ekman": _SAME_NAME,
    "goemotions28": _SAME_NAME,  # the head of each family bears its name
    "four": {  # surprise is neither good nor bad: it says nothing about four classes
        **_one_to_one(
            (
                ("anger", "angry"),
                ("disgust", "angry"),
                ("fear", "sad"),
                ("sadness", "sad"),
                ("joy", "happy"),
            )
        ),
        "neutral": {"neutral": 1.0},
        "surprise": FOUR.uniform(),
    },
    "congruence": {**_SAME_NAME, "disgust": {"anger": 1.0}},
}

# What models call the same emotion, by Ekman's or GoEmotions' name for it.
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
    """Converts a distribution over `source` to the labels of `target`: the same sum, every target
    label present, zeros included. A label of the source that is left out counts as 0. Raises
    ConfigError for a label or a set that is not known."""
    if unknown := sorted(set(distribution) - set(source.labels)):
        raise ConfigError(
            f"not labels of {source.name!r}: {unknown}; there are: {', '.join(source.labels)}"
        )
    if source == target:
        return {label: float(distribution.get(label, 0.0)) for label in target.labels}
    ekman = _map_labels(distribution, _find_table(TO_EKMAN, source), EKMAN)
    return _map_labels(ekman, _find_table(FROM_EKMAN, target), target)


def _find_table(tables: Mapping[str, Table], labels: LabelSet) -> Table:
    if LABEL_SETS.get(labels.name) != labels:
        raise ConfigError(
            f"no mapping for the label set {labels.name!r}; there are: {', '.join(LABEL_SETS)}"
        )
    return tables[labels.name]


def _map_labels(distribution: Mapping[str, float], table: Table, target: LabelSet) -> Distribution:
    pushed = dict.fromkeys(target.labels, 0.0)
    for label, share in distribution.items():
        for other, part in table[label].items():
            pushed[other] += share * part
    return pushed


def labels_of(distribution: Mapping[str, float]) -> LabelSet:
    """The known set that a distribution is over: the one with just its labels, else the smallest
    that has all of them. Raises ConfigError where no set has."""
    names = set(distribution)
    for labels in sorted(
        LABEL_SETS.values(), key=lambda labels: (set(labels.labels) != names, len(labels.labels))
    ):
        if names <= set(labels.labels):
            return labels
    raise ConfigError(
        f"no label set has all of {sorted(names)}; the sets are: {', '.join(LABEL_SETS)}"
    )


def match_labels(model_labels: Sequence[str], whose: str) -> tuple[LabelSet, tuple[str, ...]]:
    """The set that a foreign model speaks in, and for each of its labels the one in that set: the
    smallest of FOUR, EKMAN and GOEMOTIONS that has them all, under whatever synonyms. Two of its
    labels may share one. Raises ConfigError that names the labels of `whose` model that no set
    has."""
    names = [_canonical(label) for label in model_labels]
    for labels in (FOUR, EKMAN, GOEMOTIONS):
        by_name = {_canonical(label): label for label in labels.labels}
        if set(names) <= set(by_name):
            return labels, tuple(by_name[name] for name in names)
    unmapped = [
        label
        for label, name in zip(model_labels, names, strict=True)
        if name not in GOEMOTIONS.labels
    ]
    raise ConfigError(
        f"{whose} has labels that no label set knows: {', '.join(map(repr, unmapped))}; name them "
        f"in its config.json (id2label) by words of: {', '.join(GOEMOTIONS.labels)}"
    )


def _canonical(label: str) -> str:
    word = label.strip().strip("<>").lower().replace(" ", "_")
    return _CANONICAL.get(word, word)


class ModelLabels:
    """A foreign model's labels in those of `labels`, the set that it speaks in (`match_labels`)."""

    def __init__(self, model_labels: Sequence[str], whose: str) -> None:
        """Raises ConfigError for labels that no label set knows."""
        self.labels, ours = match_labels(model_labels, whose)
        self._ours = dict(zip(model_labels, ours, strict=True))

    def normalise(self, scores: Mapping[str, float]) -> Distribution:
        """A model's scores, those of labels with one meaning summed, made to sum to 1."""
        summed = dict.fromkeys(self.labels.labels, 0.0)
        for label, score in scores.items():
            summed[self._ours[label]] += score if score > 0 else 0.0
        return self.labels.normalised(list(summed.values()))
