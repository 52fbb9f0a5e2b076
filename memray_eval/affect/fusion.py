"""Fuses the emotion heard in speech and the emotion read in text into one weighted mean. Source:
seed 000, step 6 of the generation.

How much weight to give speech: a synthesiser's voice carries almost no emotion.
Recognisers of four classes were right in 0.29 to 0.54 of the cases on the speech of three engines,
where guessing gives 0.25. Give it weight for people's own recordings; for synthetic speech 0 is
right, and any more dilutes the text. So does speech that is off: it is uniform, as in seed 000, and
takes its weight from what the text says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from memray_eval.affect.labels import Distribution, LabelSet, convert, is_uniform, labels_of
from memray_eval.errors import ConfigError


class FusionWeights(NamedTuple):
    """What speech and text count; they sum to 1."""

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
    speech: Mapping[str, float] | None,
    text: Mapping[str, float],
    speech_weight: float,
    text_weight: float,
) -> Distribution:
    """The weighted mean of two distributions, in the labels of the text's set. Both are over known
    label sets, not necessarily the same. Without speech, and where the speech is uniform over its
    own set, it is uniform over the text's: what says nothing must not favour labels that the sets
    share. Raises ConfigError for weights or labels that are wrong."""
    weights = normalised_weights(speech_weight, text_weight)
    labels = labels_of(text)
    heard = _express_speech(speech, labels)
    return labels.normalised(
        [
            weights.speech * heard[label] + weights.text * text.get(label, 0.0)
            for label in labels.labels
        ]
    )


def _express_speech(speech: Mapping[str, float] | None, labels: LabelSet) -> Distribution:
    """The distribution of the speech in the labels of the text; uniform if it says nothing."""
    if speech is None:
        return labels.uniform()
    spoken = labels_of(speech)
    knows = not is_uniform(convert(speech, spoken, spoken))  # with the labels that are left out
    return convert(speech, spoken, labels) if knows else labels.uniform()
