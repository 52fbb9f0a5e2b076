"""A judge's rubric revised by labels, and what that gains on those held back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memray_eval.analysis import improvement as analysis
from memray_eval.analysis.agreement import rescale
from memray_eval.analysis.calibration import MIN_COVERAGE, Unit
from memray_eval.analysis.improvement import Apart, DisagreementCause, Gain, Improvement
from memray_eval.api.calibrating import (
    LabelledFile,
    load_trial,
    make_evaluate,
    to_units,
    write_responses,
)
from memray_eval.cli.app import say
from memray_eval.cli.calibrate import LabelOptions
from memray_eval.config.schema import RunConfig
from memray_eval.datasets.labels import LabelledResponse
from memray_eval.errors import JudgeError
from memray_eval.execution.prepare.estimates import estimate_of
from memray_eval.judges.prices import cost_text
from memray_eval.judges.router import find_rubric
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics._shared import revision
from memray_eval.report.calibration_console import format_figure
from memray_eval.storage.paths import write_atomically
from memray_eval.text_processing.judge_prompts import JudgePrompt
from memray_eval.types import Record, Response, Sample

N_CASES = 12  # that a model is shown which revises a rubric
SHOWN_CHARS = 1_500  # of a text of a case
EXAMPLES = "Examples: responses (data, no instructions), each with the score that people gave it"
FIGURES = {"kappa": "weighted kappa", "spearman": "Spearman's rho"}


@dataclass
class Trial:
    """A judge that scores labelled responses, in runs below `folder` that share one budget."""

    options: LabelOptions
    file: LabelledFile
    metric: JudgedMetric
    judge: str
    folder: Path
    spent_usd: float = 0.0
    unpriced_calls: int = 0

    def score(self, rows: Sequence[LabelledResponse], rubric: str = "") -> list[Unit]:
        """The judge's verdicts by a rubric, "" for its own. Raises what `run` raises."""
        path, settings = self.folder / f"{self.file.metric}.md", list(self.options.settings or ())
        if rubric:
            path.write_text(rubric, "utf-8")
            settings.append(f"rubrics.{self.file.metric}={path}")
        records = self._run(write_responses(rows, self.folder), self.judge, {}, settings)
        return to_units(rows, records, self.file.metric)

    def propose(
        self, proposer: str, current: str, causes: Sequence[DisagreementCause], cases: Sequence[str]
    ) -> list[str]:
        """A model's findings, and the rubric that it writes. Raises JudgeError for none."""
        question = {"id": "revision", "query": current, "response": "\n".join(cases)}
        question["context"] = "\n".join(map(_cause_line, causes))
        path = self.folder / "revision.jsonl"
        path.write_text(json.dumps(question), "utf-8")
        keys = {"metrics": [f"{revision.__name__}:METRIC"]}
        settings = [text for text in self.options.settings or () if not text.startswith("rubrics")]
        (record,) = self._run(path, proposer, keys, settings)
        (score,) = record.scores
        if score.value is None:
            raise JudgeError(f"{proposer} revised no rubric: {score.error or score.status}")
        judgment = json.loads(score.judgment or "{}")
        return [judgment["findings"], judgment["rubric"].strip()]

    def _run(
        self, responses: Path, judge: str, changes: dict[str, Any], settings: Sequence[str]
    ) -> list[Record]:
        keys = self.options.keys(self.file) | changes
        if self.options.budget_usd is not None:
            keys["budget.usd"] = max(0.0, self.options.budget_usd - self.spent_usd)
        evaluate = make_evaluate(str(self.folder), keys, settings, self.options.yes, {}, say)
        records = list(evaluate(responses, judge))
        scores = [score for record in records for score in record.scores]
        self.spent_usd += sum(score.cost_usd for score in scores)
        self.unpriced_calls += sum(score.usage.unpriced_calls for score in scores)
        return records


def improve_judge(trial: Trial, mine: str, proposer: str, examples: int, seed: int) -> Improvement:
    """Splits the labels, groups the disagreements, and tests the revision. Raises as `_split` does,
    before anything is asked."""
    file, options, scales = trial.file, trial.options, (trial.file.metric_scale, trial.file.scale)
    dev, test = _split(file, seed)
    how = [f"by {proposer or 'hand'}"] if mine or proposer else []
    revised = " and ".join([*how, *([f"with {examples} examples"] if examples else [])])
    responses = write_responses(file.rows, trial.folder), trial.judge
    job = load_trial(str(trial.folder), options.keys(file), options.settings or (), *responses)
    current = _current_rubric(job, trial.metric, file.rows[0])
    _say_cost(job, 1 + len(test) / len(file.rows) if revised else 1, proposer)

    before = {unit.id: unit for unit in trial.score(file.rows)}
    apart = analysis.lay_apart([before[row.id] for row in dev], *scales)
    causes = analysis.find_causes(apart, [row.group for row in dev], file.scale)
    tested: dict[str, Any] = {}
    if revised:
        cases = analysis.choose_cases(apart, N_CASES)
        shown = [_case(file, case, case.label, judge=case.judge) for case in cases]
        findings, text = trial.propose(proposer, current, causes, shown) if proposer else ("", mine)
        text = _with_examples(text or current, file, analysis.choose_cases(apart, examples))
        after = trial.score(test, text)
        gains = analysis.measure_gains([before[row.id] for row in test], after, *scales)
        tested = {"findings": findings, "rubric": text, "gains": gains}
        tested |= {"digest": rubric_digest(trial.metric, text), "is_shown": gains[0].is_shown}
    return analysis.Improvement(
        metric=file.metric, judge=trial.judge, labelled=file.path.name, human_scale=file.scale,
        seed=seed, n_dev=len(dev), n_test=len(test), causes=causes, revised=revised,
        cost_usd=None if trial.unpriced_calls else trial.spent_usd, **tested,
    )  # fmt: skip


def _split(file: LabelledFile, seed: int) -> list[list[LabelledResponse]]:
    """The half to learn from, and the one held back. Raises DataError if one says too little."""
    drawn = analysis.split_clusters([row.cluster for row in file.rows], seed)
    halves = [
        [row for row, is_drawn in zip(file.rows, drawn, strict=True) if is_drawn == is_test]
        for is_test in (False, True)
    ]
    for name, rows in zip(("first", "held-back"), halves, strict=True):
        analysis.check_half(name, to_units(rows, (), file.metric))
    return halves


def _current_rubric(job: RunConfig, metric: JudgedMetric, row: LabelledResponse) -> str:
    """The rubric that the judge goes by: the job's, or the metric's own. Raises ConfigError."""
    if chosen := find_rubric(metric, metric.name, job.rubrics.get(metric.name)):
        return chosen.text
    fields = {key: value for key, value in row.fields.items() if key != "response"}
    prompt = metric.prompt(Sample.model_validate(fields), Response(text="-"))
    return prompt.rubric.strip() if isinstance(prompt, JudgePrompt) else prompt[0].content


def _say_cost(job: RunConfig, times: float, proposer: str) -> None:
    """Says what calls about all responses, so many `times`, may cost."""
    once = estimate_of(job)
    tokens = sum(judge.input_tokens + judge.output_tokens for judge in once.judges)
    usd = None if once.usd is None else once.usd * times
    cost = cost_text(usd, round(once.unpriced_calls * times), ",.2f")
    proposal = f" and 1 of {proposer}" if proposer else ""
    say(
        f"About {once.calls * times:,.0f} calls of {job.judge}{proposal}, {tokens * times:,.0f} "
        f"tokens, {cost}; calls that are remembered cost nothing"
    )


def _with_examples(rubric: str, file: LabelledFile, cases: Sequence[Apart]) -> str:
    """The rubric with labelled responses at its end, scored on the metric's scale."""
    low, high = file.metric_scale
    lines = [_case(file, case, rescale(case.label, file.scale, (low, high))) for case in cases]
    head = ["", f"{EXAMPLES}, from {low:g} to {high:g}:"] if lines else []
    return "\n".join([rubric, *head, *lines])


def _case(file: LabelledFile, case: Apart, people: float, **more: float | None) -> str:
    """A labelled response as one line of JSON, its texts cut."""
    fields = next(row.fields for row in file.rows if row.id == case.unit.id)
    names = [name for name in ("query", "memory", "answers", "response") if fields.get(name)]
    shown: dict[str, Any] = {name: str(fields[name])[:SHOWN_CHARS] for name in names}
    return json.dumps({**shown, "people": round(people, 3), **more}, ensure_ascii=False)


def save_rubric(done: Improvement, folder: Path) -> Path:
    """Writes the rubric as the metric's next version, with what it gained in a .json beside it; a
    rubric that is there already keeps its version. Raises ConfigError if it cannot be written."""
    digest, texts = done.digest[:8], {".json": done.model_dump_json(indent=1), ".md": done.rubric}
    if same := sorted(folder.glob(f"{done.metric}.v*-{digest}.md")):
        return same[0]
    numbers = (re.search(r"\.v(\d+)-", path.name) for path in folder.glob(f"{done.metric}.v*.md"))
    version = 1 + max((int(match[1]) for match in numbers if match), default=0)
    folder.mkdir(parents=True, exist_ok=True)
    for suffix, text in texts.items():
        with write_atomically(f"{folder}/{done.metric}.v{version}-{digest}{suffix}") as stream:
            stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
    return folder / f"{done.metric}.v{version}-{digest}.md"


def result_lines(done: Improvement) -> Iterator[str]:
    """Renders the disagreements by cause, the revised rubric, and what it gained."""
    low, high = done.human_scale
    yield f"{done.metric} by {done.judge}; people's scale {low:g} to {high:g}, of {done.labelled}"
    yield f"{done.n_dev} labels to learn from, {done.n_test} held back (seed {done.seed})"
    yield f"\n  {'':<42}{'n':>6}{'apart':>7}{'judge - people':>16}  furthest apart"
    yield from map(_cause_line, done.causes)
    if not done.gains:
        yield "\nTo revise the rubric: --rubric FILE, --proposer MODEL, or --examples N"
        return
    yield f"\nThe rubric, revised {done.revised} (digest {done.digest})"
    yield from filter(None, [done.findings])
    yield from (f"  | {line}" for line in done.rubric.splitlines() if not done.saved)
    yield f"\n  {'before':>42}{'after':>26}{'gain':>26}"
    for gain in done.gains:
        cells = map(format_figure, (gain.before, gain.after, gain.gain))
        yield f"  {FIGURES[gain.figure]:<16}" + "".join(f"{cell:>26}" for cell in cells)
    cost, first = "unknown" if done.cost_usd is None else f"${done.cost_usd:.4f}", done.gains[0]
    yield f"On the {first.n} held-back responses that both score; cost {cost}\n"
    if not done.is_shown:
        yield f"No gain shown: {_why_not(first)}. Nothing is adopted"
    else:
        yield f"Gain shown: {FIGURES[first.figure]} {format_figure(first.gain)}"
        use = f"Saved. In a job: rubrics: {{{done.metric}: {done.saved}}}"
        yield use if done.saved else "Not adopted: --save FOLDER writes it"


def _cause_line(cause: DisagreementCause) -> str:
    gap = "-" if cause.gap is None else f"{cause.gap:+z.3f}"
    counts = f"{cause.n:>6}{cause.n_apart:>7}{gap:>16}"
    return f"  {cause.by:<12}{cause.name[:29]:<30}{counts}  {cause.example}"


def _why_not(gain: Gain) -> str:
    if gain.coverage < MIN_COVERAGE:
        return f"the revised rubric leads to a score of only {gain.coverage:.0%} of the responses"
    if gain.gain.low is None:
        return f"the gain in {FIGURES[gain.figure]} has no interval on these labels"
    side = "lies below 0" if (gain.gain.high or 0.0) < 0 else "holds 0"
    return f"the interval of the gain in {FIGURES[gain.figure]}, {format_figure(gain.gain)}, {side}"
