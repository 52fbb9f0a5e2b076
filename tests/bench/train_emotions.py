"""Trains the classifier that comes with the package, measures every offline text backend, and
writes the table of memray_eval/affect/README.md:

    python -m tests.bench.train_emotions DATA_DIR [--samples dataset/samples] [--keep-classifier]

DATA_DIR holds GoEmotions with Ekman's labels, ek_train.tsv and ek_test.tsv
(monologg/GoEmotions-pytorch, data/ekman, Apache-2.0). Needs scikit-learn, which the package itself
does not. About two minutes on one core. No text is printed.

A comment that people gave k labels is k rows of weight 1/k: the classifier learns to share its
probability among them."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memray_eval import affect
from memray_eval.affect.classifier import FILE, ClassifierEmotion, ClassifierWeights, load
from memray_eval.affect.features import (
    Hashes,
    Vocabulary,
    char_hashes,
    normalise,
    word_hashes,
    words,
)
from memray_eval.affect.labels import EKMAN, Distribution
from memray_eval.affect.lexicon import LexiconEmotion
from memray_eval.errors import ConfigError, DataError, EvalError

FOLDER = Path(affect.__file__).parent
# Chosen on a tenth of ek_train.tsv that was held out, by log loss and macro-F1; ek_test.tsv had no
# part in it.
MIN_COMMENTS_WORD, MIN_COMMENTS_CHAR = 2, 3  # that a feature must be in
CHAR_SHARE = 0.7
INVERSE_PENALTY = 2.0  # scikit-learn's C
MAX_ITERATIONS = 60
NOTES = (
    "Multinomial logistic regression, trained by tests/bench/train_emotions.py on ek_train.tsv of "
    "monologg/GoEmotions-pytorch (data/ekman), which is GoEmotions (Demszky et al. 2020, "
    "google-research) with Ekman's labels. Data and file: Apache-2.0."
)
MARK = re.compile(r"(?<=<!-- quality -->\n).*?(?=<!-- /quality -->)", re.DOTALL)


class Comment(NamedTuple):
    text: str
    labels: tuple[int, ...]  # indices into EKMAN.labels, more than one where people disagreed


def save(weights: ClassifierWeights, path: Path, notes: str) -> None:
    """Writes the file that `load` reads. `notes` state where it comes from and its licence."""
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            word_hashes=weights.words.hashes,
            word_idf=weights.words.idf.astype(np.float16),
            char_hashes=weights.chars.hashes,
            char_idf=weights.chars.idf.astype(np.float16),
            rows=weights.rows,
            scale=weights.scale,
            bias=weights.bias,
            share=np.float64(weights.share),
            labels=np.array(EKMAN.labels),
            notes=np.array(notes),
        )


class Quality(NamedTuple):
    """`accuracy`, `macro_f1` and `log_loss` are over rows with one label; `hit`: the likeliest
    label is one of the row's."""

    accuracy: float
    macro_f1: float
    log_loss: float
    hit: float


def read(path: Path) -> list[Comment]:
    """The rows of a tsv: text, comma-separated label ids, comment id. Raises DataError."""
    try:
        rows = [
            line.rstrip("\r").split("\t")
            for line in path.read_text("utf-8").rstrip("\n").split("\n")
        ]
        return [Comment(text, tuple(map(int, labels.split(",")))) for text, labels, _ in rows]
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from None


def read_samples(folder: Path) -> list[Comment]:
    """The queries of samples whose emotion was written by hand, with the likeliest label: text
    unlike that of training."""
    found = []
    for file in sorted(folder.glob("*/sample.json")):
        sample = json.loads(file.read_text("utf-8"))
        if emotion := sample.get("emotion"):
            found.append(
                Comment(
                    sample["query"], (EKMAN.labels.index(max(emotion, key=emotion.__getitem__)),)
                )
            )
    return found


def train(comments: Sequence[Comment]) -> ClassifierWeights:
    tokens = [words(normalise(comment.text)) for comment in comments]
    word_docs, char_docs = (
        [word_hashes(one) for one in tokens],
        [char_hashes(one) for one in tokens],
    )
    word_vocabulary, char_vocabulary = (
        _vocabulary(word_docs, MIN_COMMENTS_WORD),
        _vocabulary(char_docs, MIN_COMMENTS_CHAR),
    )
    matrix = (
        _sparse()
        .hstack(
            [_matrix(word_docs, word_vocabulary), _matrix(char_docs, char_vocabulary) * CHAR_SHARE]
        )
        .tocsr()
    )
    rows = [row for row, comment in enumerate(comments) for _ in comment.labels]
    # That it stops early is wanted: the settings were chosen with it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", _package("sklearn.exceptions").ConvergenceWarning)
        model = _package("sklearn.linear_model").LogisticRegression(
            C=INVERSE_PENALTY, max_iter=MAX_ITERATIONS, tol=1e-3
        )
        model.fit(
            matrix[rows],
            [label for comment in comments for label in comment.labels],
            sample_weight=[1 / len(comment.labels) for comment in comments for _ in comment.labels],
        )
    scale = np.abs(model.coef_).max(axis=1) / 127
    return ClassifierWeights(
        words=word_vocabulary,
        chars=char_vocabulary,
        rows=np.rint(model.coef_ / scale[:, None]).T.astype(np.int8),
        scale=scale.astype(np.float32),
        bias=model.intercept_.astype(np.float32),
        share=CHAR_SHARE,
    )


def _vocabulary(docs: Sequence[Hashes], least: int) -> Vocabulary:
    hashes, counts = np.unique(np.concatenate([np.unique(doc) for doc in docs]), return_counts=True)
    kept = counts >= least
    return Vocabulary(
        hashes[kept], (np.log((1 + len(docs)) / (1 + counts[kept])) + 1).astype(np.float32)
    )


def _matrix(docs: Sequence[Hashes], vocabulary: Vocabulary) -> Any:
    cells = [vocabulary.weigh(doc) for doc in docs]
    starts = np.cumsum([0, *(len(rows) for rows, _ in cells)])
    columns, weights = (
        np.concatenate([rows for rows, _ in cells]),
        np.concatenate([weights for _, weights in cells]),
    )
    return _sparse().csr_matrix(
        (weights, columns, starts), shape=(len(docs), len(vocabulary.hashes))
    )


def measure(told_of: Sequence[Distribution], comments: Sequence[Comment]) -> Quality:
    """How good the distributions told of the comments are. Macro-F1 is over the labels that the
    rows with one label have; log loss takes the right label's probability as 1e-6 at least."""
    told = np.array([list(shares.values()) for shares in told_of])
    guesses = told.argmax(axis=1)
    single = [row for row, comment in enumerate(comments) if len(comment.labels) == 1]
    truth = np.array([comments[row].labels[0] for row in single])
    return Quality(
        accuracy=float(np.mean(guesses[single] == truth)),
        macro_f1=float(
            np.mean(
                [
                    2
                    * ((guesses[single] == label) & (truth == label)).sum()
                    / ((guesses[single] == label).sum() + (truth == label).sum())
                    for label in np.unique(truth)
                ]
            )
        ),
        log_loss=float(-np.log(np.maximum(told[single, truth], 1e-6)).mean()),
        hit=float(
            np.mean(
                [guess in comment.labels for guess, comment in zip(guesses, comments, strict=True)]
            )
        ),
    )


def prior(comments: Sequence[Comment]) -> Distribution:
    """How often each label is given: the majority class is its likeliest."""
    counts = [0.0] * len(EKMAN.labels)
    for comment in comments:
        for label in comment.labels:
            counts[label] += 1 / len(comment.labels)
    return EKMAN.normalised(counts)


def table(
    name: str, always: Distribution, comments: Sequence[Comment], weights: ClassifierWeights
) -> str:
    texts = [comment.text for comment in comments]
    told = {
        "classifier": asyncio.run(ClassifierEmotion(weights).infer(texts)),
        "lexicon": asyncio.run(LexiconEmotion().infer(texts)),
        "majority class": [always] * len(texts),
    }
    single = sum(len(comment.labels) == 1 for comment in comments)
    lines = [f"{name}: {len(comments)} texts, {single} of them with one label.", ""]
    lines += [
        "| backend | accuracy | macro-F1 | log loss | hit, all texts |",
        "|---|---|---|---|---|",
    ]
    for backend, distributions in told.items():
        lines.append(
            f"| {backend} | {' | '.join(f'{figure:.3f}' for figure in measure(distributions, comments))} |"  # noqa: E501
        )
    return "\n".join(lines) + "\n"


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"training needs scikit-learn ({error.name} is missing): pip install scikit-learn"
        ) from None


def _sparse() -> Any:
    return _package("scipy.sparse")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.train_emotions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("data", type=Path, help="the folder with ek_train.tsv and ek_test.tsv")
    parser.add_argument(
        "--samples",
        type=Path,
        default=Path("dataset/samples"),
        help="samples with an emotion, measured too",
    )
    parser.add_argument(
        "--keep-classifier",
        action="store_true",
        help="measure only, with the classifier that is there",
    )
    options = parser.parse_args(arguments)
    training = read(options.data / "ek_train.tsv")
    if not options.keep_classifier:
        save(train(training), FOLDER / FILE, NOTES)
    weights = load(FOLDER / FILE)
    parts = [
        table(
            "GoEmotions-Ekman, ek_test.tsv",
            prior(training),
            read(options.data / "ek_test.tsv"),
            weights,
        )
    ]
    if samples := read_samples(options.samples):
        parts.append(
            table(
                "Queries of dataset/samples, emotion written by hand",
                prior(training),
                samples,
                weights,
            )
        )
    report = "\n".join(parts)
    readme = FOLDER / "README.md"
    readme.write_text(MARK.sub(lambda _: f"\n{report}\n", readme.read_text("utf-8")), "utf-8")
    print(report)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except EvalError as error:
        sys.exit(f"error: {error}")
