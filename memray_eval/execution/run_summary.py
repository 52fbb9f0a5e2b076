"""A run's summary: reduced from the records in its folder, with notes on how to read it."""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from memray_eval.affect.enriching import EMOTION_NEEDS, UNAVAILABLE
from memray_eval.analysis.breakdown import (
    DIFFERING,
    Breakdown,
    break_down,
    compares,
    temperature_sweeps,
)
from memray_eval.analysis.conversations import ANSWERS, summarise_arms
from memray_eval.analysis.epochs import summarise_epochs, twin_differences
from memray_eval.analysis.marks import digits_of, metric_undecided
from memray_eval.analysis.recommendation import (
    cut_quality,
    differences_from_best,
    measure_speed,
    paired_qualities,
    recommend,
    speed_ratios,
)
from memray_eval.analysis.reduce import Reduced, reduce_records
from memray_eval.analysis.score_table import TABLE, VERDICTS, Reader, RunTable, holds, read_parts
from memray_eval.analysis.scores import add_intervals, count_epochs, find_cluster, metadata_keys
from memray_eval.analysis.served_models import (
    NAMED,
    count_unknown_marks,
    find_served_models,
    split_names,
)
from memray_eval.analysis.turns import (
    SESSION_COLUMNS,
    count_unplaced,
    summarise_sessions,
    summarise_turns,
)
from memray_eval.config.sections import EMBEDDED
from memray_eval.config.servers import is_baseline
from memray_eval.errors import Declined
from memray_eval.execution.run_counter import RunTelemetry, StageCount
from memray_eval.execution.run_manifest import rubrics_of, temperatures_of
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.execution.stages.affect import DEGRADED_TRAITS
from memray_eval.execution.waiting import killed_sessions, resume_command, spending_so_far
from memray_eval.judges.accounts import is_embedded
from memray_eval.judges.batches.journal import BatchJournal
from memray_eval.judges.limits.budget import NOTHING
from memray_eval.judges.prices import cost_text
from memray_eval.judges.router import JudgeAssignment
from memray_eval.metric import EVIDENCE, NEEDS_JUDGE, RULES, SHOWN_CHARS, UNVERIFIED, JudgedMetric
from memray_eval.results.run_folder import RunFolder
from memray_eval.text_processing.values import quoted
from memray_eval.types import (
    WITHOUT_CALL,
    BatchFigures,
    GenerationSummary,
    MetricSummary,
    Performance,
    QualityPair,
    Recommendation,
    ServedModel,
    SessionSummary,
    Summary,
    is_estimate,
    session_turn,
    split_jurors,
)

UNREAD = 0.1  # of a metric's verdicts: above it a report tells how many could not be used


def summarise_run(
    plan: RunPlan, folder: RunFolder, telemetry: RunTelemetry, stopped: str | None
) -> tuple[Summary, tuple[str, ...]]:
    """A run's summary, of the records in its folder, and what in it fails the run, in words."""
    with folder.local_records() as records:
        try:
            return _summarise_records(plan, folder, records, telemetry, stopped)
        finally:
            find_cluster.cache_clear()  # each keeps the table that it was last asked of
            count_epochs.cache_clear()
            metadata_keys.cache_clear()


def _summarise_records(
    plan: RunPlan,
    folder: RunFolder,
    records: pads.Dataset,
    telemetry: RunTelemetry,
    stopped: str | None,
) -> tuple[Summary, tuple[str, ...]]:
    spec, stages, earlier = plan.spec, telemetry.stages, plan.before.get("sessions", ())
    names, tasks = [metric.name for metric in spec.metrics], spec.suite.tasks
    reduced, table, taken = _read_records(spec, records)
    candidates = [candidate.candidate for candidate in reduced.generation]
    headline, performance, pairs = _compare_qualities(spec, table)
    broken = break_down(table, spec.metrics) if _is_by_task(spec) else Breakdown()
    spent = spending_so_far(folder, plan.n_before + 1) if spec.calls_judges else None
    by_name = dict(zip(names, spec.metrics, strict=True))
    differences = differences_from_best(table, reduced.metrics, by_name)
    summary = Summary(
        run_id=folder.run_id,
        name=spec.config.name,
        suite=spec.suite.name,
        n_samples=_count_samples(plan, table, len(candidates)),
        n_invalid=plan.scan.n_invalid,
        n_units=reduced.n_units,
        n_failed_units=reduced.n_failed_units,
        # A session that only did a part cannot say how fast the whole was done
        generation_s=None if plan.before else _seconds_of(stages["generate"], reduced.generation),
        evaluation_s=stages["judge"].beside(stages["embed"]).span_s
        if spec.metrics and not plan.before
        else None,
        total_s=0.0,
        candidates=reduced.generation,
        metrics=tuple(_with_reasons(spec, reduced.metrics)),
        tasks=tuple(sorted(broken.tasks, key=lambda row: _task_order(row.task, tasks))),
        macro=broken.macro,
        heat_maps=broken.heat_maps,
        twins=twin_differences(table, candidates, names),
        n_disagreements=folder.write_disagreements(chain.from_iterable(taken[DIFFERING]))
        if DIFFERING in taken
        else None,
        headline=headline,
        leads=headline if spec.named_metrics else "",
        performance=tuple(map(cut_quality, performance)),
        recommendation=_recommend(
            spec, table, performance, pairs, differences, reduced.metrics, headline
        ),
        differences=differences,
        sweeps=temperature_sweeps(spec.config.candidates, reduced.metrics),
        arms=summarise_arms(
            chain.from_iterable(taken[ANSWERS]), spec.suite, names, spec.errata, folder.path
        )
        if ANSWERS in taken
        else (),
        turns=summarise_turns(table, spec.metrics),
        batches=_batch_figures(folder, table) if spec.calls_judges else None,
        temperatures=temperatures_of(spec, telemetry.parameters) if spec.calls_judges else {},
        causes=reduced.causes,
        replaced=reduced.replaced,
        epochs=summarise_epochs(table, spec.metrics, spec.suite.right_from),
        cost_usd=None if spent is None else spent.known_usd,
        unpriced_calls=0 if spent is None else spent.unpriced_calls,
        killed_sessions=0 if spent is None else killed_sessions(folder, plan.n_before + 1),
        prompt_cache=reduced.prompt_cache,
        served_models=find_served_models(table),
        unknown_marks=count_unknown_marks(table),
        sessions=summarise_sessions([table.to_table(SESSION_COLUMNS)]) if plan.has_sessions else (),
    )
    notes, warnings = _list_notes(plan, folder, table, telemetry, stopped, summary, pairs)
    summary = add_intervals(summary.model_copy(update={"notes": tuple(notes)}), table)
    total_s = time.time() - plan.started + sum(session["total_s"] for session in earlier)
    return summary.model_copy(update={"total_s": total_s}), warnings


def _read_records(
    spec: RunSpec, records: pads.Dataset
) -> tuple[Reduced, RunTable, Mapping[Reader, list[Any]]]:
    """What one pass over the records brings: the metrics' own figures, the columns of all others
    (if there may be any), and what else was taken, by reader."""
    has_others = (
        _is_by_task(spec)
        or spec.suite.reports_speed
        or len(spec.config.candidates) > 1
        or count_epochs(records) > 1
        or metadata_keys(records)
        or holds(records, "unknown_mark", *NAMED)
    )
    has_costs = spec.calls_judges or _is_by_task(spec)
    table = TABLE if has_costs else TABLE._replace(scores=VERDICTS)
    wanted = {
        table: has_others,
        DIFFERING: compares(spec.metrics),
        ANSWERS: spec.suite.has_arms and spec.metrics,
    }
    readers = [reader for reader, is_wanted in wanted.items() if is_wanted]
    reduced = reduce_records(records, spec.metrics, *readers)
    taken = dict(zip(readers, reduced.taken, strict=True))
    return reduced, RunTable(records, taken.pop(table, ())), taken


def _count_samples(plan: RunPlan, table: RunTable, n_candidates: int) -> int:
    """The samples, not the answers to them: a row of responses is one of several of both."""
    if not plan.spec.has_responses or (n_candidates == 1 and count_epochs(table) == 1):
        return plan.scan.n_samples
    return int(pc.count_distinct(table.to_table(["sample_id"])["sample_id"]).as_py())


def _is_by_task(spec: RunSpec) -> bool:
    by_task = (metric.by_task for metric in spec.metrics)
    return bool(spec.suite.tasks) or compares(spec.metrics) or any(by_task)


def _seconds_of(stage: StageCount, candidates: Iterable[GenerationSummary]) -> float | None:
    """The seconds of the stage, or in which an earlier command's requests were under way."""
    rates = ((of.output_tokens, of.output_tokens_per_s) for of in candidates)
    return stage.span_s or sum(tokens / per_s for tokens, per_s in rates if per_s) or None


def _with_reasons(spec: RunSpec, metrics: Iterable[MetricSummary]) -> Iterator[MetricSummary]:
    """The metrics, with the reason of those that had no judge to score them."""
    unasked = {name for name, choice in spec.judges.items() if choice.needs_judge}
    for row in metrics:
        needs_judge = row.metric in unasked and not row.n_scored
        yield row.model_copy(update={"reason": NEEDS_JUDGE}) if needs_judge else row


def _list_notes(
    plan: RunPlan,
    folder: RunFolder,
    table: RunTable,
    telemetry: RunTelemetry,
    stopped: str | None,
    summary: Summary,
    pairs: Sequence[QualityPair],
) -> tuple[list[str], tuple[str, ...]]:
    """Sentences on how to read the summary, what is not there first: a screen shows few; and those
    that fail the run."""
    spec, n_done = plan.spec, summary.n_units + n_unasked(plan, summary.sessions)
    unread = list(_unread_verdicts(spec, table, summary.metrics))
    named, others = list[str](), list[str]()
    for name, n, why in _inapplicable(table, summary.metrics):
        if name in spec.named_metrics:
            how = "; --map answers=COLUMN names a column of them" if "no answers" in why else ""
            named.append(f"{name} applied to none of {n:,} responses ({why}{how})")
        else:
            others.append(f"{name} ({why})")
    small = [name for name, of in spec.judges.items() if any(map(is_embedded, of.judges))]
    plumbing = "judged by a small local model, which proves the plumbing, not the scores."
    notes = [
        *([f"{', '.join(small)}: {plumbing}"] if small else ()),
        *_affect_notes(telemetry.counts),
        *(note for note, _ in unread),
        *_unfound_quotes(table, summary.metrics),
        *_baseline_notes(spec, summary.headline, summary.performance, pairs),
        *_served_notes(summary.served_models, summary.unknown_marks),
        *([_batch_note(summary.batches)] if summary.batches is not None else ()),
        *map(_session_note, summary.sessions),
        *_reading_notes(plan, folder, n_done, stopped, telemetry),
        *_call_notes(telemetry.calls),
        *_juror_notes(spec.judges, summary.metrics),
    ]
    if n := count_unplaced(table):
        notes.append(
            f"{n:,} rows name a session in their metadata and no turn (a whole number from 1): "
            "they are in no figure over turns, and metrics of sessions score each; add `turn` and "
            "`turns`."
        )
    notes += named
    if others:
        notes.append(f"not applicable: {', '.join(others)}.")
    return notes, (*named, *(note for note, fails in unread if fails))


def _compare_qualities(
    spec: RunSpec, table: RunTable
) -> tuple[str, tuple[Performance, ...], tuple[QualityPair, ...]]:
    """The metric of quality and, if candidates are compared or the suite asks, speed beside it and
    the differences of candidates in it on common prompts."""
    names, suite = {metric.name: metric for metric in spec.metrics}, spec.suite
    headline = suite.quality_metric(list(names))
    if len(spec.config.candidates) == 1 and not suite.reports_speed:
        return headline, (), ()
    metric = names.get(headline)
    rows = measure_speed(table, metric)
    rated = sorted(row.candidate for row in rows if row.task is None and row.quality is not None)
    pairs = paired_qualities(table, metric, rated) if metric is not None else ()
    return headline, tuple(sorted(rows, key=lambda row: _task_order(row.task, suite.tasks))), pairs


def _recommend(
    spec: RunSpec, table: RunTable, performance: Sequence[Performance],
    pairs: Sequence[QualityPair], differences: Sequence[QualityPair],
    metrics: Sequence[MetricSummary], headline: str,
) -> Recommendation | None:  # fmt: skip
    """Recommends one of the candidates that one may use: no baseline."""
    baselines = _baselines_of(spec)
    rows = [row for row in performance if row.candidate not in baselines]
    timed = sorted(row.candidate for row in rows if row.task is None and row.tokens_per_s)
    return recommend(
        rows,
        [pair for pair in pairs if not {pair.a, pair.b} & baselines],
        speed_ratios(table, timed),
        [pair for pair in differences if pair.metric == headline],
        "; ".join(
            f"{row.candidate} is {why}"
            for row in metrics
            if row.metric == headline
            and row.candidate not in baselines
            and (why := metric_undecided(row))
        ),
    )


def _baselines_of(spec: RunSpec) -> set[str]:
    return {candidate.name for candidate in spec.config.candidates if is_baseline(candidate)}


def _baseline_notes(
    spec: RunSpec, headline: str, performance: Sequence[Performance], pairs: Sequence[QualityPair]
) -> Iterator[str]:
    """A sentence on each candidate that is not shown to be above the best baseline."""
    baselines, scale = _baselines_of(spec), {metric.name: metric.scale for metric in spec.metrics}
    rows = {row.candidate: row for row in performance if row.task is None}
    quality = {name: row.quality for name, row in rows.items() if row.quality is not None}
    if not (rated := sorted(baselines & quality.keys(), key=lambda name: -quality[name])):
        return
    best = rated[0]
    (low, high), digits = scale[headline], digits_of(scale[headline])
    for name in sorted(quality.keys() - baselines):
        gains = [
            (pair.difference or 0.0) * (1 if pair.b == name else -1)
            for pair in pairs
            if pair.is_shown and {pair.a, pair.b} == {name, best}
        ]
        if gains and gains[0] > 0:
            continue
        own, its = (
            f"{low + quality[side] / 100 * (high - low):.{digits}f}"
            + " est." * bool(rows[side].estimates)
            for side in (name, best)
        )
        what = "below" if gains else "not shown to be above"
        yield f"{name} is {what} the best baseline, {best}: {own} and {its} in {headline}."


def _reading_notes(
    plan: RunPlan, folder: RunFolder, n_done: int, stopped: str | None, telemetry: RunTelemetry
) -> Iterator[str]:
    spec, go_on = plan.spec, resume_command(folder, plan.spec.config.budget, stopped)
    if stopped:
        yield f"stopped early ({stopped}): {n_done} of {plan.n_units} answers. `{go_on}` goes on."
    elif n_done < plan.n_units:
        missing = plan.n_units - n_done
        yield (
            f"{missing} of {plan.n_units} answers are missing: they broke a stage; `{go_on}` tries "
            "them."
        )
    yield from spec.equal_draws()
    if spec.unscored:
        yield f"not scored: {', '.join(spec.unscored)}; each {NEEDS_JUDGE}."
    by_rules = {key: choice for key, choice in spec.judges.items() if choice.judge == RULES}
    if estimated := [key for key, choice in by_rules.items() if not choice.needs_judge]:
        yield (
            f"{', '.join(estimated)}: offline estimates by rules, not the verdicts of a judge "
            "model."
        )
    digests = rubrics_of(spec)
    if rubrics := [
        f"{key} by {choice.asked_by} ({digests[key].partition(', ')[0]})"
        for key, choice in spec.judges.items()
        if choice.asked_by
    ]:
        yield f"rubrics: {', '.join(rubrics)}."
    if any(candidate.model == EMBEDDED for candidate in spec.config.candidates):
        yield (
            "the embedded 135M model shows that every stage works; it hardly uses memory, so "
            "expect low scores."
        )


def n_unasked(plan: RunPlan, sessions: Iterable[SessionSummary]) -> int:
    """The planned turns that ended sessions left, but for those that the plan leaves out."""
    n = sum(summary.n_unasked for summary in sessions)
    return max(0, n - plan.resume_state.n_unasked)


def _session_note(sessions: SessionSummary) -> str:
    n, turns = sessions.n_sessions, sessions.n_turns
    parts = [
        f"{n:,} {'session' if n == 1 else 'sessions'} of {sessions.candidate}, {turns:,} "
        f"{'turn' if turns == 1 else 'turns'}"
    ]
    if sessions.ends:
        ends = ", ".join(f"{why} {count:,}" for why, count in sessions.ends.items())
        parts.append(f"simulated ones ended: {ends}")
    if (cached := sessions.later_cached_tokens) is not None:
        share = cached / max(1, sessions.later_prompt_tokens)
        parts.append(
            f"from the second turn on {share:.0%} of the prompt tokens were in the prefix cache"
        )
    if sessions.user_models:
        tokens = sessions.user_input_tokens + sessions.user_output_tokens
        parts.append(
            f"the users' messages are by {', '.join(sessions.user_models)}: "
            f"{sessions.user_calls:,} calls, {tokens:,} tokens, "
            f"{cost_text(sessions.user_cost_usd, sessions.user_unpriced_calls)}"
        )
    return f"{'; '.join(parts)}."


def _affect_notes(counts: Mapping[str, int]) -> Iterator[str]:
    if unread := counts.get(DEGRADED_TRAITS):
        yield f"the traits of {unread} samples count as unknown: they could not be read."
    if unheard := counts.get("degraded"):
        yield (
            f"the emotion of {unheard} samples is uniform, wholly or as far as it was to be read "
            "or heard."
        )
    if n_unavailable := counts.get(f"emotion {UNAVAILABLE}"):
        share = n_unavailable / counts["samples"]  # both count a sample again in each stage
        yield (
            f"the emotion of {share:.0%} of samples is not available: it needs {EMOTION_NEEDS}. "
            "Metrics that need it do not apply."
        )


def _inapplicable(
    table: RunTable, metrics: Sequence[MetricSummary]
) -> Iterator[tuple[str, int, str]]:
    """The metrics that applied to no response, of how many, with a reason."""
    for name in dict.fromkeys(metric.metric for metric in metrics if not metric.reason):
        rows = [metric for metric in metrics if metric.metric == name]
        n = sum(metric.n for metric in rows)
        if n and sum(metric.n_not_applicable for metric in rows) == n:
            yield name, n, _why_inapplicable(table, name)


def _unread_verdicts(
    spec: RunSpec, table: RunTable, metrics: Sequence[MetricSummary]
) -> Iterator[tuple[str, bool]]:
    """A sentence on each metric with more verdicts unusable than UNREAD, or than the run tolerates,
    and if they fail the run: what a content filter declined does only if no verdict is left, as no
    run can mend it."""
    counts = list(_count_unread(spec, metrics))
    cost, reasons, declined = defaultdict[str, float](float), dict[str, str](), Counter[str]()
    for block in table.blocks if counts else ():
        is_lost = block.map_names("status", "abstained".__eq__, np.False_)
        columns = (block.column(name).filter(pa.array(is_lost)).to_pylist()
                   for name in ("metric", "error", "cost_usd"))  # fmt: skip
        for metric, error, usd in zip(*columns, strict=True):
            declined[metric] += (error or "").startswith(Declined.__name__)
            cost[metric] += usd or 0.0
            reasons.setdefault(metric, error or "")
    for name, n, n_given in counts:
        paid = f", ${cost[name]:.4g} paid" if cost[name] else ""
        note = f"{name}: {n:,} of {n_given:,} verdicts ({n / n_given:.0%}) could not be used{paid}"
        n_failing = n if n == n_given else n - declined[name]
        fails = n_failing > spec.tolerated(n_given)
        yield f"{note}; the first: {reasons.get(name) or 'unknown'}", fails


def _unfound_quotes(table: RunTable, metrics: Sequence[MetricSummary]) -> Iterator[str]:
    """A sentence on each metric of whose quotes more than UNREAD are not in their texts, though
    another one of the verdict is: with what such verdicts cost, and the first quote."""
    pieces, unfound = Counter[str](), Counter[str]()
    for metric in metrics:
        pieces[metric.metric] += int(metric.extras.get(EVIDENCE) or 0)
        unfound[metric.metric] += int(metric.extras.get(UNVERIFIED) or 0)
    if not (flagged := [name for name, n in unfound.items() if n > UNREAD * pieces[name]]):
        return
    cost, first = defaultdict[str, float](float), dict[str, str]()  # the first's unit
    for block in table.blocks:
        parts, _ = read_parts(block.column("parts"))
        has_some = parts.get(UNVERIFIED, np.zeros(block.unit.size)) != 0
        metric_of, usd = block.codes(flagged), block.column("cost_usd").to_pylist()
        for row in np.flatnonzero(has_some & (metric_of >= 0) & ~np.isnan(block.values)):
            name = flagged[metric_of[row]]
            cost[name] += usd[row] or 0.0
            first.setdefault(name, block.units["unit_id"][block.unit[row]].as_py())
    judgments = {
        (row["unit_id"], score["metric"]): score["judgment"]
        for row in table.to_table(
            ["unit_id", "scores"], pc.field("unit_id").isin(list(first.values()))
        ).to_pylist()
        for score in row["scores"]
    }
    for name in flagged:
        n, n_all, paid = unfound[name], pieces[name], cost[name]
        judgment = json.loads(judgments.get((first.get(name), name)) or "{}")
        yield (
            f"{name}: {n:,} of {n_all:,} quotes ({n / n_all:.0%}) of its judge are not in the "
            f"texts and decide nothing{f', ${paid:.4g} paid' if paid else ''}; the first: "
            f"{quoted((judgment.get(UNVERIFIED) or [''])[0], SHOWN_CHARS)}"
        )


def _count_unread(
    spec: RunSpec, metrics: Sequence[MetricSummary]
) -> Iterator[tuple[str, int, int]]:
    """The metrics with too many verdicts that abstained, with their number and that of all. If
    replies that all gave a score of one metric never gave another's, they were read: a companion's
    judge may give an overall score alone."""
    read = {
        metric.judgment
        for metric in spec.metrics
        if isinstance(metric, JudgedMetric)
        and (rows := [row for row in metrics if row.metric == metric.name])
        and all(row.n_scored and not row.n_abstained for row in rows)
    }
    for metric in spec.metrics:
        name = metric.name
        rows = [row for row in metrics if row.metric == name]
        n = sum(row.n_abstained for row in rows)
        n_given = n + sum(row.n_scored for row in rows)
        is_read = isinstance(metric, JudgedMetric) and metric.judgment in read
        most = min(UNREAD * n_given, spec.tolerated(n_given))
        n_replaced = sum(row.n_fallbacks for row in rows)
        if n > most and not (is_read and n == n_given - n_replaced):
            yield name, n, n_given


def _why_inapplicable(table: RunTable, metric: str) -> str:
    """The first reason of a single answer or a last turn, else that of another turn."""
    other = ""
    for block in table.blocks:
        errors = block.column("error").filter(pa.array(block.codes([metric]) == 0)).to_pylist()
        units = block.unit[block.codes([metric]) == 0]
        for unit, why in zip(units, errors, strict=True):
            turn = session_turn(json.loads(block.units["metadata"][unit].as_py() or "{}"))
            if why and (turn is None or turn.is_last):
                return str(why)
            other = other or why or ""
    return other or "it does not fit"


def _call_notes(calls: Mapping[str, Any]) -> Iterator[str]:
    """Notes on judge calls without token counts, and on those that are paid twice."""
    if n := calls.get("uncounted", 0):
        yield (
            f"{n} of {calls['sent']} judge calls came back without usable token counts: tokens, "
            "costs and what is left of a budget leave them out or estimate them."
        )
    if n := calls.get("repeated", 0):
        yield (
            f"{n:,} judge calls were under way when an earlier session ended, and were asked "
            "again: up to so many were paid twice, unless the provider takes an Idempotency-Key."
        )
    if n := calls.get("unkept", 0):
        yield f"{n:,} verdicts could not be remembered: asked for again, they are paid again."


def _juror_notes(
    judges: Mapping[str, JudgeAssignment], metrics: Sequence[MetricSummary]
) -> Iterator[str]:
    """A sentence on each juror without whom a jury decided."""
    for metric in metrics:
        jurors = judges[metric.metric].judges if metric.metric in judges else ()
        verdicts = [
            (split_jurors(jury), n)
            for jury, n in metric.judges.items()
            if not is_estimate(jury) and jury not in WITHOUT_CALL
        ]
        n_verdicts = sum(n for _, n in verdicts)
        for juror in jurors if len(jurors) > 1 else ():
            if n_missing := sum(n for present, n in verdicts if juror not in present):
                yield (
                    f"{metric.metric} of {metric.candidate}: {juror} gave no verdict on "
                    f"{n_missing:,} of {n_verdicts:,} answers; the other jurors decided."
                )


def _served_notes(served: Sequence[ServedModel], marks: Mapping[str, int]) -> Iterator[str]:
    """A sentence for each name that answered as several models, and one on unknown marks."""
    for models in split_names(served):
        counts = ", ".join(f"{model.model} ({model.n:,})" for model in models)
        yield (
            f"{models[0].of} {models[0].name} answered as {len(models)} models: {counts}. "
            "`memray-eval report --full RUN` prints the figures of each."
        )
    if marks:
        yield (
            f"Scored whole, for they begin with a mark that looks like thinking and is not known "
            f"({', '.join(list(marks)[:5])}): {sum(marks.values()):,} of the answers."
        )


def _batch_figures(folder: RunFolder, table: RunTable) -> BatchFigures | None:
    """The judge calls that went in batches, and those that did not; None if all were live."""
    entries = [entry for entry in BatchJournal(folder).load() if entry.state == "collected"]
    if not entries:
        return None
    outcomes = sum((Counter(entry.outcomes) for entry in entries), Counter[str]())
    n_verdicts = outcomes["verdict"] + outcomes["refused"]
    sums = {"calls": 0.0, "cost_usd": 0.0, "unpriced_calls": 0.0}
    for block in table.blocks:
        for name in sums:
            sums[name] += pc.sum(block.column(name)).as_py() or 0.0
    spent = sum((entry.spent for entry in entries), NOTHING)
    lost = sum((entry.lost for entry in entries), NOTHING)
    in_batches = spent.less(lost)
    return BatchFigures(
        n_batches=len(entries),
        n_calls=sum(entry.n_calls for entry in entries),
        n_verdicts=n_verdicts,
        cost_usd=spent.usd,
        unpriced_calls=spent.unpriced_calls,
        lost_usd=lost.usd,
        n_live=max(0, int(sums["calls"]) - n_verdicts),
        live_usd=max(0.0, sums["cost_usd"] - in_batches.usd),
        live_unpriced_calls=max(0, int(sums["unpriced_calls"]) - in_batches.unpriced_calls),
    )


def _batch_note(figures: BatchFigures) -> str:
    lost = f" (${figures.lost_usd:,.4g} of it brought no verdict)" if figures.lost_usd else ""
    return (
        f"judge calls: {figures.n_calls:,} in batches for "
        f"{cost_text(figures.cost_usd, figures.unpriced_calls)}{lost}, {figures.n_live:,} live for "
        f"{cost_text(figures.live_usd, figures.live_unpriced_calls)}."
    )


def _task_order(task: str | None, tasks: Sequence[str]) -> int:
    """The place of a task in its suite's order; all tasks together first, unknown ones last."""
    return -1 if task is None else tasks.index(task) if task in tasks else len(tasks)
