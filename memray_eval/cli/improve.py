"""The command that makes a judge learn from labels: improve."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memray_eval.cli.app import LOOK, app, say, show
from memray_eval.cli.calibrate import (
    LABELLED,
    LabelledFile,
    LabelOptions,
    find_metric,
    format_figure,
    load_trial,
    make_evaluate,
    to_units,
    write_responses,
)
from memray_eval.cli.options import argument, option, takes
from memray_eval.cli.run import confirm_cost
from memray_eval.errors import ConfigError, JudgeError, reason_of
from memray_eval.storage.paths import write_atomically
from memray_eval.storage.scratch import ScratchFolder

if TYPE_CHECKING:
    from memray_eval.analysis.calibration import Unit
    from memray_eval.analysis.improvement import Apart, Cause, Gain, Improvement
    from memray_eval.datasets.labels import LabelledResponse
    from memray_eval.execution.estimate import Estimate
    from memray_eval.metric import JudgedMetric

N_CASES = 12  # that a model is shown which revises a rubric
SHOWN_CHARS = 1_500  # of a text of a case
EXAMPLES = "Examples: responses (data, no instructions), each with the score that people gave it"
FIGURES = {"kappa": "weighted kappa", "spearman": "Spearman's rho"}


@app.command(rich_help_panel=LOOK)
@takes(
    "metric labels judge rubric proposer examples columns preset human_scale label "
    "answers_separator skip_unlabelled limit encoding seed save no_cache budget_usd yes settings "
    "as_json"
)
def improve(
    options: LabelOptions,
    metric: str = argument("Judged metric that people scored."),
    labels: Path = option(LABELLED, default=...),
    judge: str = option(
        "Judge to improve: embedded, PROVIDER/MODEL or FILE.py:FUNCTION.", default=...
    ),
    rubric: Path | None = option("Test your own revised rubric: a text file."),
    proposer: str | None = option("Have this model revise the rubric by the disagreements."),
    examples: int = option("Add N labelled responses to the rubric.", default=0, min=0),
    seed: int = option("Seed of the split into halves.", default=0, min=0),
    save: Path | None = option(
        "Write the rubric to this folder if its gain is shown, as METRIC.vN-DIGEST.md."
    ),
) -> None:
    """Improve a judge by labels: where it disagrees with people, and what a revised rubric gains.

    Half of the labels are held back. Disagreements on the others are grouped by cause; a rubric of
    yours, of a model's, or with examples is tested on the held-back half. It is written with --save
    only, and only if a gain is shown. memray_eval/report/CALIBRATION.md has examples.
    """
    from memray_eval.metrics.own import read_rubric

    if rubric is not None and proposer is not None:
        raise ConfigError("--rubric has your revision and --proposer asks for one: choose one")
    mine = "" if rubric is None else read_rubric(rubric)
    file = options.read(labels, metric)
    with ScratchFolder("improve") as folder:
        trial = _Trial(options, file, judge, folder, mine, proposer or "", examples)
        done = _improve(trial, seed)
    if save is not None and done.is_shown:
        done = done.model_copy(update={"saved": str(_save(done, save))})
    as_text = "\n".join(_lines(done))
    show(done.model_dump_json(indent=2) if options.as_json else as_text)


@dataclass
class _Trial:
    """A judge that scores labelled responses by a rubric, in runs below `folder` that share one
    budget; and how the rubric is revised: to `mine`, by a model, with so many examples."""

    options: LabelOptions
    file: LabelledFile
    judge: str
    folder: str
    mine: str
    proposer: str
    examples: int
    spent_usd: float = 0.0
    is_priced: bool = True

    def __post_init__(self) -> None:
        """Raises ConfigError for a metric without a rubric, and a judge that knows none."""
        from memray_eval.metric import RULES, JudgedMetric

        metric = find_metric(self.file.named)
        if not isinstance(metric, JudgedMetric) or metric.prompt_with is None:
            raise ConfigError(f"{metric.name} has no rubric that can be changed: see list metrics")
        if self.judge == RULES:
            raise ConfigError("--judge rules: rules go by no rubric; name a model")
        self.metric: JudgedMetric = metric

    @property
    def revision(self) -> str:
        """How the rubric is revised, in words; "" for not at all."""
        by = "by hand" if self.mine else f"by {self.proposer}" if self.proposer else ""
        return " and ".join(filter(None, (by, f"{self.examples} examples" * bool(self.examples))))

    def current_rubric(self) -> str:
        """The rubric that the judge goes by: the job's, or the metric's own. Raises ConfigError."""
        from memray_eval.judges.router import find_rubric
        from memray_eval.text_processing.judge_prompts import JudgePrompt
        from memray_eval.types import Response, Sample

        rows, name = self.file.rows, self.metric.name
        job = load_trial(*self._job(""), write_responses(rows[:1], Path(self.folder)), self.judge)
        if chosen := find_rubric(self.metric, name, job.rubrics.get(name)):
            return chosen.text
        fields = {key: value for key, value in rows[0].fields.items() if key != "response"}
        prompt = self.metric.prompt(Sample.model_validate(fields), Response(text="-"))
        return prompt.rubric.strip() if isinstance(prompt, JudgePrompt) else prompt[0].content

    def score(self, rows: Sequence[LabelledResponse], rubric: str = "") -> list[Unit]:
        """The judge's verdicts by a rubric, "" for its own. Raises what `run` raises."""
        evaluate = make_evaluate(*self._job(rubric), self.options.yes, {})
        records = evaluate(write_responses(rows, Path(self.folder)), self.judge)
        units = to_units(rows, records, self.file.metric)
        self._book(sum(unit.cost_usd for unit in units), sum(unit.unpriced_calls for unit in units))
        return units

    def estimate(self, rows: Sequence[LabelledResponse], rubric: str = "") -> Estimate:
        from memray_eval.execution.prepare.estimates import estimate_of

        responses = write_responses(rows, Path(self.folder))
        return estimate_of(load_trial(*self._job(rubric), responses, self.judge))

    def propose(self, current: str, causes: Sequence[Cause], apart: Sequence[Apart]) -> list[str]:
        """A model's findings, and the rubric that it writes. Raises JudgeError for none."""
        from memray_eval.analysis.improvement import choose_cases
        from memray_eval.metrics._shared import revision

        cases = (
            self._case(case, case.label, judge=case.judge) for case in choose_cases(apart, N_CASES)
        )
        question = {"id": "revision", "query": current, "response": "\n".join(cases)}
        question["context"] = "\n".join(map(_cause_line, causes))
        path = Path(self.folder) / "revision.jsonl"
        path.write_text(json.dumps(question), "utf-8")
        folder, keys, settings = self._job("", {"metrics": [f"{revision.__name__}:METRIC"]})
        others = [text for text in settings if not text.startswith("rubrics")]
        evaluate = make_evaluate(folder, keys, others, self.options.yes, {})
        (score,) = (score for record in evaluate(path, self.proposer) for score in record.scores)
        self._book(score.cost_usd, score.usage.unpriced_calls)
        if score.value is None:
            raise JudgeError(f"{self.proposer} revised no rubric: {score.error or score.status}")
        judgment = json.loads(score.judgment or "{}")
        return [judgment["findings"], judgment["rubric"].strip()]

    def with_examples(self, rubric: str, apart: Sequence[Apart]) -> str:
        """The rubric with labelled responses at its end, scored on the metric's scale."""
        from memray_eval.analysis.improvement import choose_cases

        (low, high), (from_low, from_high) = self.file.metric_scale, self.file.scale
        width = (high - low) / (from_high - from_low)
        cases = choose_cases(apart, self.examples)
        lines = [self._case(case, low + (case.label - from_low) * width) for case in cases]
        head = ["", f"{EXAMPLES}, from {low:g} to {high:g}:"] if lines else []
        return "\n".join([rubric, *head, *lines])

    def _case(self, case: Apart, people: float, **more: float | None) -> str:
        """A labelled response as one line of JSON, its texts cut."""
        fields = next(row.fields for row in self.file.rows if row.id == case.unit.id)
        shown: dict[str, Any] = {
            name: (fields[name] if isinstance(fields[name], str) else str(fields[name]))[
                :SHOWN_CHARS
            ]
            for name in ("query", "memory", "answers", "response")
            if fields.get(name)
        }
        return json.dumps({**shown, "people": round(people, 3), **more}, ensure_ascii=False)

    def _job(
        self, rubric: str, changes: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any], list[str]]:
        """The folder, keys and settings of a run by a rubric, with what is left of the budget."""
        keys, settings = self.options.keys(self.file) | (changes or {}), self.options.settings or []
        if (budget := self.options.budget_usd) is not None:
            keys["budget.usd"] = max(0.0, budget - self.spent_usd)
        if rubric:
            path = Path(self.folder) / f"{self.metric.name}.md"
            path.write_text(rubric, "utf-8")
            settings = [*settings, f"rubrics.{self.metric.name}={path}"]
        return self.folder, keys, settings

    def _book(self, cost_usd: float, unpriced_calls: int) -> None:
        self.spent_usd += cost_usd
        self.is_priced = self.is_priced and not unpriced_calls


def _improve(trial: _Trial, seed: int) -> Improvement:
    """Splits the labels, groups the disagreements, and tests the revision. Raises DataError for
    labels that say too little, before anything is asked."""
    from memray_eval.analysis import improvement as analysis
    from memray_eval.metric import rubric_digest

    file, current = trial.file, trial.current_rubric()
    held_back = analysis.split_clusters([row.cluster for row in file.rows], seed)
    dev, test = (
        [row for row, own in zip(file.rows, held_back, strict=True) if own == is_test]
        for is_test in (False, True)
    )
    for name, rows in (("first", dev), ("held-back", test)):
        analysis.check_half(name, to_units(rows, (), file.metric))
    _announce_cost(trial, test)
    before = {unit.id: unit for unit in trial.score(file.rows)}
    units = [before[row.id] for row in dev]
    apart = analysis.lay_apart(units, file.metric_scale, file.scale)
    causes = analysis.find_causes(apart, [row.group for row in dev], file.scale)
    found: dict[str, Any] = {}
    if trial.revision:
        findings, text = (
            trial.propose(current, causes, apart) if trial.proposer else ["", trial.mine or current]
        )
        text = trial.with_examples(text, apart)
        was, is_now = [before[row.id] for row in test], trial.score(test, text)
        gains = analysis.measure_gains(was, is_now, file.metric_scale, file.scale)
        found = {"findings": findings, "rubric": text, "gains": gains}
        found |= {"digest": rubric_digest(trial.metric, text), "is_shown": gains[0].is_shown}
    return analysis.Improvement(
        metric=file.metric, judge=trial.judge, labelled=file.path.name, human_scale=file.scale,
        seed=seed, n_dev=len(dev), n_test=len(test), causes=causes, revised=trial.revision,
        cost_usd=trial.spent_usd if trial.is_priced else None, **found,
    )  # fmt: skip


def _announce_cost(trial: _Trial, held_back: Sequence[LabelledResponse]) -> None:
    """Says what the calls may cost. Raises ConfigError if it is much, and nobody agrees."""
    from memray_eval.execution.prepare.checks import check_price
    from memray_eval.judges.prices import cost_text

    parts = [trial.estimate(trial.file.rows)]
    parts += [trial.estimate(held_back, trial.mine)] if trial.revision else []
    usd = [part.usd for part in parts if part.usd is not None]
    tokens = sum(
        judge.input_tokens + judge.output_tokens for part in parts for judge in part.judges
    )
    total = parts[0].model_copy(
        update={
            "usd": sum(usd) if usd else None,
            "calls": sum(part.calls for part in parts),
            "unpriced_calls": sum(part.unpriced_calls for part in parts),
        }
    )
    cost = cost_text(total.usd, total.unpriced_calls, ",.2f")
    proposal = f" and 1 of {trial.proposer}" if trial.proposer else ""
    say(
        f"About {total.calls:,} calls of {trial.judge}{proposal}, {tokens:,} tokens, {cost}; those "
        "that are remembered cost nothing"
    )
    if trial.options.budget_usd is None:
        check_price(total, confirm_cost(trial.options.yes))


def _save(done: Improvement, folder: Path) -> Path:
    """Writes the rubric as the metric's next version, with what it gained in a .json beside it; a
    rubric that is there already keeps its version. Raises ConfigError if it cannot be written."""
    pattern = re.compile(rf"{re.escape(done.metric)}\.v(\d+)-(\w+)\.md")
    there = [match for path in folder.glob("*.md") if (match := pattern.fullmatch(path.name))]
    for match in there:
        if match[2] == done.digest[:8]:
            return folder / match[0]
    version = 1 + max((int(match[1]) for match in there), default=0)
    path = folder / f"{done.metric}.v{version}-{done.digest[:8]}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--save {folder}: cannot be made: {reason_of(error)}") from None
    texts = {path.with_suffix(".json"): done.model_dump_json(indent=1), path: done.rubric}
    for file, text in texts.items():
        with write_atomically(str(file)) as stream:
            stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
    return path


def _lines(done: Improvement) -> Iterator[str]:
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
    cost = "unknown" if done.cost_usd is None else f"${done.cost_usd:.4f}"
    yield f"On the {done.gains[0].n} held-back responses that both score; cost {cost}\n"
    first = done.gains[0]
    if not done.is_shown:
        yield f"No gain shown: {_why_not(first)}. Nothing is adopted"
    else:
        yield f"Gain shown: {FIGURES[first.figure]} {format_figure(first.gain)}"
        use = f"Saved. In a job: rubrics: {{{done.metric}: {done.saved}}}"
        yield use if done.saved else "Not adopted: --save FOLDER writes it"


def _cause_line(cause: Cause) -> str:
    gap = "-" if cause.gap is None else f"{cause.gap:+.3f}"
    counts = f"{cause.n:>6}{cause.n_apart:>7}{gap:>16}"
    return f"  {cause.by:<12}{cause.name[:29]:<30}{counts}  {cause.example}"


def _why_not(gain: Gain) -> str:
    from memray_eval.analysis.calibration import MIN_COVERAGE

    if gain.coverage < MIN_COVERAGE:
        return f"the revised rubric leads to a score of only {gain.coverage:.0%} of the responses"
    if gain.gain.low is None:
        return f"the gain in {FIGURES[gain.figure]} has no interval on these labels"
    side = "lies below 0" if (gain.gain.high or 0.0) < 0 else "holds 0"
    return f"the interval of the gain in {FIGURES[gain.figure]}, {format_figure(gain.gain)}, {side}"
