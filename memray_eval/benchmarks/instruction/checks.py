"""Scores how well a response follows a prompt (seed 004): three types of prompt, each with checks
(0 to 100) and their weights.

The overall score is the weighted mean, rounded to one decimal, of the checks that apply (a target
of words or steps, options). For an empty response every check is 0."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from memray_eval.benchmarks.instruction.answers import (
    ChosenOption,
    compare,
    find_choice,
    json_values,
    offered_options,
    read_json,
)
from memray_eval.benchmarks.instruction.counts import (
    asked_steps,
    asked_words,
    chinese_words,
    count_words,
    is_chinese,
    sentences_of,
    words_of,
)
from memray_eval.errors import ConfigError, cut
from memray_eval.text_processing.matching import stem, stems, words
from memray_eval.types import Frozen

POINTS_A_STEP = 20
STEP_FIELDS = ("action", "parameters")
MAX_ISSUES = 10
_TRIES = 5  # at finding an object within other text


def navigation(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    plan = read_json(response)
    is_valid = isinstance(plan, dict | list)
    if not is_valid:
        plan = find_plan(response)
    steps = plan.get("steps") if isinstance(plan, dict) else None
    objects = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    fault = "Text beside the JSON" if plan is not None else "Invalid JSON"
    checks = {
        "json_validity": graded(100, "Valid JSON syntax") if is_valid else graded(0, fault),
        "required_fields": _required_fields(objects, isinstance(plan, dict) and "steps" in plan),
        "structure": _structure(plan, steps, objects),
    }
    if (expected := asked_steps(prompt)) is not None:
        off = expected.off(len(objects))
        score = max(100 - POINTS_A_STEP * off, 0) if objects or not off else 0
        message = f"Step count: {len(objects)} (expected: {expected})"
        checks["step_count"] = graded(score, message)
    return {**checks, "step_structure": _step_structure(steps)}


def find_plan(text: str) -> Any:
    """The first JSON object with steps in a text; None if none is within a few tries."""
    plans = (value for _, _, value in json_values(text, r"\{", _TRIES) if "steps" in value)
    return next(plans, None)


def _required_fields(objects: list[dict[str, Any]], has_steps: bool) -> CheckResult:
    """The share of `steps` and, in any of its objects, action and parameters that are there."""
    present = {field: any(field in step for step in objects) for field in STEP_FIELDS}
    present = {"steps": has_steps, **present}
    if missing := tuple(f"Missing field: {name}" for name in present if not present[name]):
        return CheckResult(round(100 * sum(present.values()) / len(present)), issues=missing)
    return graded(100, "All required fields present")


def _structure(plan: Any, steps: Any, objects: list[dict[str, Any]]) -> CheckResult:
    if objects and len(objects) == len(steps):
        return graded(100, "Correct structure (steps is array)")
    if not isinstance(plan, dict):
        return graded(0, "The plan is no JSON object")
    if "steps" not in plan:
        return CheckResult(0)
    if not isinstance(steps, list):
        return graded(0, f"steps must be an array, not {_kind(steps)}")
    return graded(0, "steps must hold objects only" if steps else "steps is empty")


def _step_structure(steps: Any) -> CheckResult:
    """The share of steps that are as they should be; the first MAX_ISSUES faults are listed."""
    if not isinstance(steps, list) or not steps:
        return CheckResult(0)
    faults = []
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, dict):
            wrong = f"is {_kind(step)}, not an object with action and parameters"
            faults.append(f"Step {number} {wrong}")
        elif problems := list(_field_faults(step)):
            faults.append(f"Step {number}: {'; '.join(problems)}")
    if not faults:
        return graded(100, "All steps have action and parameters")
    more = (f"... and {len(faults) - MAX_ISSUES} more steps",) if len(faults) > MAX_ISSUES else ()
    return CheckResult(
        round(100 * (len(steps) - len(faults)) / len(steps)), issues=(*faults[:MAX_ISSUES], *more)
    )


def _field_faults(step: dict[str, Any]) -> Iterator[str]:
    for field in STEP_FIELDS:
        if field not in step:
            yield f"missing {field} field"
    if "action" in step and not (isinstance(step["action"], str) and step["action"].strip()):
        yield f"action must be text that is not empty, not {_kind(step['action'])}"
    if "parameters" in step and not isinstance(step["parameters"], dict):
        yield f"parameters must be an object, not {_kind(step['parameters'])}"


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if value == "":
        return "empty text"
    kinds: tuple[tuple[type, str], ...] = ((str, "text"), (list, "an array"), (dict, "an object"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "a number")


EARLY_WORDS = 20
LATER_SCORE = 50
SENTENCES, SENTENCE_WORDS, ONE_SENTENCE_SCORE = 2, 2, 50
MAX_CONCEPTS = 6
READ_CHARS = 100_000  # of a response: no explanation is longer

_MARKERS = re.compile(
    r"\b(?:because|since|therefore|thus|hence|consequently|as a result|due to|given that|so "
    r"that|which means|this means"
    r"|otherwise|for this reason|it follows|if\b[^.?!\n]{1,80}\bthen)\b|(?:^|[,;.] "
    r")so\b|因为|所以|因此|由于",
    re.IGNORECASE | re.MULTILINE,
)
_OPTION_MARK = re.compile(r"\(?\b[A-Ja-j][).:]")
# Words of a prompt that ask for the answer and are not what it is about.
_ASKING = frozenset(
    stem(word)
    for word in """
    answer answers choose choice option options explain explanation why reason reasoning question
    following select pick best correct sentence sentences word words short brief briefly state give
    say tell letter decide think justify show
""".split()
)


def reasoning(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    """Checks the first READ_CHARS characters of a response that is not empty; its answer only if
    the prompt offers options."""
    response = response[:READ_CHARS]
    options = offered_options(prompt)
    choice = find_choice(response, options)
    right = choice if choice is not None and choice.option in options else None
    checks: dict[str, CheckResult] = {}
    if options:
        checks["answer_present"] = _answer_present(choice, options)
        checks["answer_position"] = _answer_position(right, response)
    marker = found[0].strip(" ,;.").lower() if (found := _MARKERS.search(response)) else ""
    wanted = concepts(prompt, options, right.option if right else "")
    return {
        **checks,
        "explanation_present": _explanation_present(response),
        "concept_coverage": _concept_coverage(wanted, response),
        "logical_structure": graded(100, f"Reasoning marker: {' '.join(marker.split())[:40]}")
        if marker
        else graded(0, "No marker of reasoning, such as because or therefore"),
    }


def _answer_present(choice: ChosenOption | None, options: Mapping[str, str]) -> CheckResult:
    if choice is None:
        return graded(0, f"No answer: none of {', '.join(options)} is chosen")
    if choice.option not in options:
        return graded(0, f"Answer {choice.option} is none of {', '.join(options)}")
    return graded(100, f"Answer present: {choice.option}")


def _answer_position(choice: ChosenOption | None, response: str) -> CheckResult:
    """100 within the first EARLY_WORDS words, LATER_SCORE within the first half, else 0."""
    if choice is None:
        return CheckResult(0)
    position = count_words(response[: choice.start]) + 1
    if position <= EARLY_WORDS:
        return graded(100, "Answer stated early")
    is_half = 2 * position <= count_words(response)
    return graded(LATER_SCORE if is_half else 0, f"Answer stated late: at word {position}")


def _explanation_present(response: str) -> CheckResult:
    """A sentence has two words or more, so "B." does not count."""
    n_sentences = sum(
        count_words(sentence) >= SENTENCE_WORDS for sentence in sentences_of(response)
    )
    message = f"Explanation: {n_sentences} {'sentence' if n_sentences == 1 else 'sentences'}"
    if n_sentences >= SENTENCES:
        return graded(100, message)
    return graded(ONE_SENTENCE_SCORE if n_sentences else 0, f"{message} (expected: 2 or more)")


def concepts(prompt: str, options: Mapping[str, str], answer: str) -> dict[str, str]:
    """The words that an explanation should use, at most MAX_CONCEPTS, by their stems: up to three
    content words of the chosen option, then the prompt's most frequent, without those of other
    options."""
    own = _content(options.get(answer, ""))[:3]
    offered = {root for text in options.values() for root, _ in _content(text)}
    of_prompt = [of for of in _content(_OPTION_MARK.sub(" ", prompt)) if of[0] not in offered]
    counts = Counter(root for root, _ in of_prompt)
    written = dict(reversed([*own, *of_prompt]))
    wanted = dict.fromkeys((*dict(own), *(root for root, _ in counts.most_common())))
    return {root: written[root] for root in [*wanted][:MAX_CONCEPTS]}


def _content(text: str) -> list[tuple[str, str]]:
    """The stem of each content word of a text and the word, in order, with repetitions."""
    spaced = _spaced(text)
    kept = stems(spaced) - _ASKING
    pairs = ((stem(word), word) for word in words(spaced.replace("_", " ")))
    return [pair for pair in pairs if pair[0] in kept]


def _spaced(text: str) -> str:
    """Chinese text with spaces between its words, those of one character left out."""
    if not is_chinese(text):
        return text
    return " ".join(word for word in chinese_words(text) if len(word) > 1 or not is_chinese(word))


def _concept_coverage(wanted: Mapping[str, str], response: str) -> CheckResult:
    """100 if the prompt has no content word."""
    if not wanted:
        return CheckResult(100)
    mentioned = stems(_spaced(response))
    missing = [word for root, word in wanted.items() if root not in mentioned]
    n_mentioned = len(wanted) - len(missing)
    lacking = f" (not mentioned: {', '.join(missing)})" if missing else ""
    score = round(100 * n_mentioned / len(wanted))
    return graded(score, f"Key concepts: {n_mentioned} of {len(wanted)}{lacking}")


WORDS_OFF = ((1 / 10, 75), (1 / 5, 50), (1 / 3, 25))  # up to which share off the target -> subscore
CUT_OFF_SCORE = 50

_CLOSERS = "\"'”’»)]}*_` \t\n"
_UNFINISHED = frozenset(",;:-–—([{/&…")
_ADDRESS = re.compile(r"://\w|^(?:www\.|~?/\w)|\w\.\w+/")
_DANGLING = frozenset("a an the and or but of because than my your his her its their our".split())
_STOPS = frozenset(".!?。！？")
_LIST_ITEM = re.compile(r"[ \t]*(?:[-*•#|>]|\d{1,3}[.)])")
_PROSE_WORDS = 30

_NO_REFUSAL = (
    r"(?! (?:wait|believe|imagine|thank|stress|overstate|emphasi[sz]e|help but|recommend))"
)
_ERRORS = re.compile(
    rf"(?<![\"“'\w])(?:I (?:cannot|can not|can't)\b{_NO_REFUSAL}|I(?: am|'m) (?:unable|not "
    rf"able|not allowed) to\b"
    r"|I(?:(?: am|'m) sorry| apologi[sz]e)(?:,? but|,? I (?:do not|don't|have no)"
    r"|, I(?: (?:did|could|will|wo)(?: not|n't)|(?: am|'m) not| must decline))\b|as an AI\b"
    r"|as a language model\b)"
    r"|我(?:无法|不能)|作为(?:一个|一名)?(?:AI|人工智能)|抱歉，我"
    r"|^[ \t]*\[?(?:(?:fatal|runtime|internal|server|syntax) ){0,2}error(?:\]|[ \t]*(?::|\d|$))"
    r"|^[ \t]*Traceback \(most recent call|^[ \t]*\w{0,40}(?:Error|Exception):"
    r"|\binternal server error\b|\bHTTP (?:error )?(?P<code>[45]\d\d)\b",
    re.IGNORECASE | re.MULTILINE,
)
_ASKS_OF_HTTP = re.compile(r"\b(?:https?|status code)s?\b(?!:)", re.IGNORECASE)


class CheckResult(NamedTuple):
    """The outcome of one check: its subscore 0-100, and what it found right and wrong."""

    score: int
    passed: str = ""
    issues: tuple[str, ...] = ()


def graded(score: int, message: str) -> CheckResult:
    """A check with one finding: what is right at 100, else an issue."""
    return CheckResult(100, message) if score == 100 else CheckResult(score, issues=(message,))


def simple(prompt: str, response: str, is_cut: bool) -> dict[str, CheckResult]:
    """The checks of a response that is not empty. `is_cut`: it ran into its length."""
    checks: dict[str, CheckResult] = {}
    if (target := asked_words(prompt)) is not None:
        count = count_words(response)
        off = target.share_off(count)
        score = next((score for share, score in WORDS_OFF if off <= share), 0) if off else 100
        checks["word_count"] = graded(score, f"Word count: {count} (target: {target})")
    return {
        **checks,
        "completeness": completeness(response, is_cut),
        "error_free": error_free(prompt, response),
    }


def completeness(response: str, is_cut: bool) -> CheckResult:
    if is_cut or is_cut_off(response):
        return graded(CUT_OFF_SCORE, "Truncated response")
    return graded(100, "Complete response")


def is_cut_off(response: str) -> bool:
    """Returns True if a text looks as if it broke off: it ends with "...", a comma, colon, dash or
    open bracket, or on a word such as "the" or "and"; a code fence stays open; or it is prose of 30
    words and more that ends its sentences, but not the last. One word, and the letter A, are whole
    answers, and an address may end in any sign."""
    text = response.rstrip()
    if text.count("```") % 2 or text.endswith("..."):
        return True
    bare = text.rstrip(_CLOSERS)
    if not bare or bare[-1] in _STOPS or text[-1] in "\"'”’»)]}`":
        return False
    if bare[-1] in _UNFINISHED and not _ADDRESS.search(bare[-200:].split()[-1]):
        return True
    last = words_of(bare[-40:])
    dangles = len(last) > 1 and last[-1] != "A" and last[-1].lower() in _DANGLING
    return dangles or (bool(last) and _is_unended_prose(bare))


def _is_unended_prose(text: str) -> bool:
    last_line = text[text.rfind("\n") + 1 :]
    ends_others = any(f"{stop} " in text or f"{stop}\n" in text for stop in ".!?") or "。" in text
    return (
        ends_others
        and not _LIST_ITEM.match(last_line)
        and text[-1].isalnum()
        and count_words(text) >= _PROSE_WORDS
    )


def error_free(prompt: str, response: str) -> CheckResult:
    """0 for a refusal ("I cannot ...", "As an AI") or an error message ("Error: ...", a traceback),
    in English or Chinese. "I can't wait" and text in quotation marks do not count, nor "HTTP 404"
    if the prompt is of HTTP or of that number."""
    found = _ERRORS.finditer(response.replace("’", "'"))
    of_http = _ASKS_OF_HTTP.search(prompt)
    match = next((m for m in found if not m["code"] or not (of_http or m["code"] in prompt)), None)
    if match is None:
        return graded(100, "No errors detected")
    return graded(0, f"Refusal or error message: {cut(match[0], 60)!r}")


WEIGHTS: Mapping[str, Mapping[str, float]] = {
    "simple": {"word_count": 0.4, "completeness": 0.4, "error_free": 0.2},
    "navigation": {
        "json_validity": 0.3,
        "required_fields": 0.2,
        "structure": 0.1,
        "step_count": 0.2,
        "step_structure": 0.2,
    },
    "reasoning": {
        "answer_present": 0.3,
        "answer_position": 0.1,
        "explanation_present": 0.2,
        "concept_coverage": 0.2,
        "logical_structure": 0.2,
    },
}
PROMPT_TYPES = tuple(WEIGHTS)
# subscores of expected answers: in no weights but a caller's own
BESIDE = ("exact_match", "answer_f1")
CHECKS = (*(check for weights in WEIGHTS.values() for check in weights), *BESIDE)
_SUM_TOLERANCE = 1e-6

_SCORERS: Mapping[str, Callable[[str, str, bool], dict[str, CheckResult]]] = {
    "simple": simple,
    "navigation": navigation,
    "reasoning": reasoning,
}


class Band(NamedTuple):
    """The meaning of an overall score from `low` up to the next higher band."""

    low: float
    name: str
    meaning: str


BANDS = (
    Band(90, "excellent", "Production-ready for this task type"),
    Band(75, "good", "Usable with minor issues"),
    Band(60, "fair", "Consider for non-critical tasks"),
    Band(40, "poor", "Significant issues, use with caution"),
    Band(0, "failed", "Not suitable for this task"),
)


def band(score: float) -> Band:
    """The band of an overall score: 89.9 is good, 90 excellent."""
    return next(band_ for band_ in BANDS if score >= band_.low)


class Result(Frozen):
    """Seed 004's output: the overall score, the subscores (0-100), and the checks' findings."""

    overall_score: float
    subscores: dict[str, int]
    issues: tuple[str, ...] = ()
    passed_checks: tuple[str, ...] = ()


def score_response(
    prompt_type: str,
    prompt: str,
    response: str,
    expected: Sequence[str] | str | None = None,
    *,
    is_cut: bool = False,
    weights: Mapping[str, float] | None = None,
) -> Result:
    """Scores how well a response follows a prompt of one of PROMPT_TYPES. `is_cut`: it reached its
    maximum length. `expected` answers add the subscores exact_match and answer_f1 (times 100),
    which weigh nothing unless `weights`, in place of the type's, name them. Raises ConfigError."""
    if prompt_type not in WEIGHTS:
        raise ConfigError(f"no prompt type {prompt_type!r}; there are: {', '.join(PROMPT_TYPES)}")
    shares = WEIGHTS[prompt_type] if weights is None else check_weights(prompt_type, weights)
    answers = (expected,) if isinstance(expected, str) else tuple(expected or ())
    is_empty = not response.strip()
    checks = (
        {name: CheckResult(0) for name in WEIGHTS[prompt_type]}
        if is_empty
        else _SCORERS[prompt_type](prompt, response, is_cut)
    )
    if any(answer.strip() for answer in answers):
        checks |= _compare_with_answers(prompt, response, answers)
    issues = [issue for check in checks.values() for issue in check.issues]
    if is_empty:
        issues.append("Empty response")
    else:
        issues += (*completeness(response, is_cut).issues, *error_free(prompt, response).issues)
    weight = sum(shares.get(name, 0.0) for name in checks)
    total = sum(shares.get(name, 0.0) * check.score for name, check in checks.items())
    return Result(
        # 0 if no check that there is weighs anything
        overall_score=min(round(total / weight, 1), 100.0) if weight else 0.0,
        subscores={name: check.score for name, check in checks.items()},
        issues=tuple(dict.fromkeys(issues)),
        passed_checks=tuple(check.passed for check in checks.values() if check.passed),
    )


def check_weights(prompt_type: str, weights: Mapping[str, float]) -> Mapping[str, float]:
    """The weights as they are. Raises ConfigError: unknown check, no share, a sum that is not 1."""
    checks = (*WEIGHTS[prompt_type], *BESIDE)
    for name, share in weights.items():
        if name not in checks:
            raise ConfigError(
                f"weights: {prompt_type} has no check {name!r}; there are: {', '.join(checks)}"
            )
        if not isinstance(share, int | float) or isinstance(share, bool) or not 0 <= share <= 1:
            raise ConfigError(f"weights: {name} must be a number from 0 to 1, not {share!r}")
    if abs(sum(weights.values()) - 1) > _SUM_TOLERANCE:
        raise ConfigError(f"weights: they sum to {sum(weights.values()):g}, not 1")
    return weights


def _compare_with_answers(
    prompt: str, response: str, answers: Sequence[str]
) -> dict[str, CheckResult]:
    match = compare(prompt, response, answers)
    more = f" or {len(answers) - 1} more" if len(answers) > 1 else ""
    expected = f"(expected: {cut(answers[0], 80)}{more})"
    score, what = (100, "Exact match") if match.exact else (0, "No exact match")
    return {
        "exact_match": graded(score, f"{what} {expected}"),
        "answer_f1": CheckResult(round(100 * match.f1)),
    }
