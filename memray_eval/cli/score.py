"""The command that scores one response by rules: score."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from memray_eval.cli.app import RUN, app, show
from memray_eval.cli.options import named_number, option
from memray_eval.errors import ConfigError, DataError, reason_of

TEXT = "text"


@app.command(rich_help_panel=RUN)
def score(
    prompt_type: str = option(
        "Type of prompt: simple, navigation, reasoning, or text.",
        None,
        "--type",
        default=...,
        show_default=False,
    ),
    response: str | None = option("The response to score."),
    prompt: str | None = option("The prompt that it answers; optional for text."),
    response_file: str | None = option("Read the response from this file; - is stdin."),
    prompt_file: str | None = option("Read the prompt from this file; - is stdin."),
    expected: list[str] | None = option("A correct answer to compare with. Repeatable."),
    weight: list[str] | None = option(
        "Weight of a check: CHECK=SHARE. Together they replace the type's weights. Repeatable."
    ),
) -> None:
    """Score one response by rules, and print JSON: the overall score, subscores, issues and passed
    checks for instruction following (0-100), or text quality scores (0-1). Makes no model calls."""
    from memray_eval.benchmarks.instruction.checks import PROMPT_TYPES, score_response

    if prompt_type not in (*PROMPT_TYPES, TEXT):
        raise ConfigError(
            f"no prompt type {prompt_type!r}; there are: {', '.join((*PROMPT_TYPES, TEXT))}"
        )
    answer = _read_option("response", response, response_file)
    if prompt_type == TEXT:
        if expected or weight:
            raise ConfigError(
                "--type text compares with no answer and takes no weights; leave out --expected "
                "and --weight"
            )
        question = _read_option("prompt", prompt, prompt_file, default="-")
        show(json.dumps(_score_text(question, answer), indent=2))
        return
    question = _read_option("prompt", prompt, prompt_file)
    form = "CHECK=SHARE, such as word_count=0.5"
    weights = dict(named_number(share, "--weight", form) for share in weight) if weight else None
    scored = score_response(prompt_type, question, answer, expected, weights=weights)
    show(scored.model_dump_json(indent=2))


def _read_option(name: str, text: str | None, path: str | None, default: str | None = None) -> str:
    """The text of an option, or of the file given instead. Raises ConfigError if neither is given,
    or both; DataError if the file cannot be read."""
    if text is not None and path is not None:
        raise ConfigError(f"--{name} and --{name}-file: give one of them")
    if text is not None:
        return text
    if path is not None:
        try:
            return sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: cannot be read: {reason_of(error)}") from None
    if default is None:
        raise ConfigError(f"no {name}: give --{name} or --{name}-file")
    return default


def _score_text(prompt: str, text: str) -> dict[str, float]:
    """Scores one response by every metric of the text family. Raises DataError with the reason if a
    metric cannot score it."""
    from memray_eval.metric import ComputedMetric, score_by_code
    from memray_eval.metrics import all_metrics
    from memray_eval.types import Response, Sample

    sample, response = Sample(id="-", query=prompt or "-"), Response(text=text)
    values = {}
    for metric in all_metrics().values():
        if metric.family == TEXT and isinstance(metric, ComputedMetric):
            score = score_by_code(metric, sample, response)
            if score.value is None:
                raise DataError(f"{score.metric}: {score.error}")
            values[metric.name] = round(score.value, 4)
    return values
