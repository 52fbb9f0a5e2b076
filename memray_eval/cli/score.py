"""The command that scores one response by rules: score."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from memray_eval.cli.app import RUN, app, show
from memray_eval.cli.options import argument, named_number, option
from memray_eval.errors import ConfigError, DataError, cut, reason_of

TEXT = "text"


@app.command(
    rich_help_panel=RUN,
    epilog="Example: memray-eval score simple 'Name two colours.' 'Red and blue.'",
)
def score(
    words: list[str] | None = argument(
        "TYPE PROMPT RESPONSE, in place of --type, --prompt and --response.", None
    ),
    prompt_type: str | None = option(
        "Type of prompt: simple, navigation, reasoning, or text.", None, "--type"
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

    rest = iter(words or ())
    prompt_type = prompt_type or next(rest, None)
    prompt = prompt if prompt is not None or prompt_file else next(rest, None)
    response = response if response is not None or response_file else next(rest, None)
    if (extra := next(rest, None)) is not None:
        raise ConfigError(
            f"{cut(extra, 40)!r} is too much: write TYPE PROMPT RESPONSE, each in quotes"
        )
    if prompt_type not in (*PROMPT_TYPES, TEXT):
        problem = "no --type" if prompt_type is None else f"no prompt type {prompt_type!r}"
        raise ConfigError(f"{problem}; there are: {', '.join((*PROMPT_TYPES, TEXT))}")
    answer = _read_option("response", response, response_file)
    form = "CHECK=SHARE, such as word_count=0.5"
    weights = dict(named_number(share, "--weight", form) for share in weight) if weight else None
    if prompt_type == TEXT:
        if expected:
            raise ConfigError("--type text compares with no answer; leave out --expected")
        question = _read_option("prompt", prompt, prompt_file, default="-")
        show(json.dumps(_score_text(question, answer, weights or {}), indent=2))
        return
    question = _read_option("prompt", prompt, prompt_file)
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


def _score_text(prompt: str, text: str, weights: dict[str, float]) -> dict[str, float | str | None]:
    """Scores one response by every metric of the text family; None where it is not measured, and
    why. Raises ConfigError for bad weights, DataError with the reason if a metric fails."""
    from memray_eval.config.sections import MetricOptions
    from memray_eval.metric import ComputedMetric, score_by_code
    from memray_eval.metrics import all_metrics, pick
    from memray_eval.metrics.text._features import reading_level
    from memray_eval.types import Response, Sample

    sample, response = Sample(id="-", query=prompt or "-"), Response(text=text)
    values: dict[str, float | str | None] = {}
    names = [metric.name for metric in all_metrics().values() if metric.family == TEXT]
    for metric in pick(names, MetricOptions(text_weights=weights)):
        if isinstance(metric, ComputedMetric):
            score = score_by_code(metric, sample, response)
            if score.status == "not_applicable":
                values["not_measured"] = score.error
            elif score.value is None:
                raise DataError(f"{score.metric}: {score.error}")
            values[metric.name] = None if score.value is None else round(score.value, 4)
    readability = values.get("readability_score")
    if isinstance(readability, float) and text.strip():
        values["reading_level"] = reading_level(readability)
    return values
