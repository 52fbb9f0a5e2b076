"""Made-up finished runs for tests of reports: every part that a summary may have, and records with
hostile texts."""

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from memray_eval.analysis.breakdown import break_down, temperature_sweeps
from memray_eval.analysis.recommendation import (
    cut_quality,
    differences_from_best,
    measure_speed,
    paired_qualities,
    recommend,
    speed_ratios,
)
from memray_eval.analysis.reduce import reduce_records
from memray_eval.analysis.scores import add_intervals
from memray_eval.metric import JudgedMetric, rubric_digest
from memray_eval.metrics import pick
from memray_eval.results.run_folder import RunFolder
from memray_eval.types import (
    Agreement,
    Candidate,
    GenerationSummary,
    HeatMap,
    MacroSummary,
    MetricSummary,
    Performance,
    Record,
    Response,
    Sample,
    Sampling,
    Score,
    Summary,
    Sweep,
    TaskMetric,
    TaskSummary,
    Usage,
)
from tests.build import build_folder, build_record, build_score

ATTACK = (
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'></script><!--<script> {{ "
    "7*7 }} {% raw %} & \"'"
)
RTL = "\u202eمرحبا بالعالم\u202c שלום"
METRICS = {
    "memory_utilization": (0.0, 1.0),
    "coherence": (1.0, 5.0),
    "groundedness": (0.0, 1.0),
    "empathy": (1.0, 5.0),
}
TASKS = ("sleep_and_energy", "family", "money")
STAGE = {"rows": 300, "busy_s": 9.0, "started": 100.0, "ended": 130.0, "span_s": 30.0}


def candidates(n: int = 3) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(
            name=f"small-t{k / 2:g}", model="small-model", sampling=Sampling(temperature=k / 2)
        )
        for k in range(n)
    )


def full_summary(n_units: int, named: tuple[Candidate, ...]) -> Summary:
    """A summary with every section."""
    metrics = tuple(_metric(name, side.name, n) for name in METRICS for n, side in enumerate(named))
    performance = tuple(_performance(candidate.name, n) for n, candidate in enumerate(named))
    return Summary(
        run_id="memory-small-20261122-000000-abcd", suite="memory",
        n_samples=n_units // max(1, len(named)), n_invalid=2, n_units=n_units, n_failed_units=3,
        generation_s=30.0, evaluation_s=12.0, total_s=61.5,
        candidates=tuple(_generation(candidate, n_units) for candidate in named), metrics=metrics,
        tasks=tuple(_task(candidate.name, task) for candidate in named for task in TASKS),
        macro=tuple(MacroSummary(candidate=candidate.name, n=90, means={}, n_tasks={},
        agreement=_agreement()) for candidate in named),
        heat_maps=(_heat(named[0].name),), n_disagreements=5, headline="memory_utilization",
        performance=performance, recommendation=recommend(performance),
        sweeps=tuple(_sweep(name, named) for name in METRICS),
        notes=(f"a note with {ATTACK}",),
    )  # fmt: skip


def _metric(name: str, candidate: str, number: int) -> MetricSummary:
    low, high = METRICS[name]
    share = 0.62 - 0.08 * number + 0.05 * len(name) / 20
    tenths = [f"{k / 10:.1f}-{(k + 1) / 10:.1f}" for k in range(9, -1, -1)]
    bins = ["5", "4", "3", "2", "1"] if high > 1 else tenths
    counts = dict(zip(bins, [30, 25, 20, 10, 5, 4, 3, 1, 0, 2], strict=False))
    return MetricSummary(
        metric=name, candidate=candidate, title=name.upper(), scale=(low, high),
        judges={"openai/gpt-4o": 88, "rules": 2}, n=100, n_scored=90, n_abstained=3,
        n_not_applicable=4, n_failed=3, coverage=90 / 96, mean=low + share * (high - low),
        stderr=0.02 * (high - low), distribution=counts, extras={"disagreement": 0.4},
    )  # fmt: skip


def _generation(candidate: Candidate, n: int) -> GenerationSummary:
    return GenerationSummary(
        candidate=candidate.name, model=candidate.model, n=n, n_failed=1, prompt_tokens=91_234,
        output_tokens=20_100, output_tokens_per_s=670.0, ttft_s_mean=0.21, ttft_s_p95=0.4,
        duration_s_mean=1.9, finish_reasons={"stop": 90, "length": 9}, cached_tokens=4000,
        cache_hit_rate=0.0438, truncated=2, thinking=1,
    )  # fmt: skip


def _performance(name: str, number: int) -> Performance:
    return Performance(
        candidate=name, task=None, n=100, duration_s_total=190.0, duration_s_mean=1.9,
        output_tokens=20_100, tokens_per_s=90.0 + 14 * number, ttft_s_mean=0.2, ttft_s_p95=0.4,
        n_scored=90, quality=62.0 - 8 * number, quality_stderr=2.0,
    )  # fmt: skip


def _task(candidate: str, task: str) -> TaskSummary:
    counts = {"n": 30, "n_scored": 28, "n_failed": 1, "calls": 28, "cached": 3, "fallbacks": 0}
    spent = {"cost_usd": 0.04, "input_tokens": 900, "output_tokens": 90, "latency_s_mean": 0.8}
    shares = {"stderr": 0.03, "coverage": 0.97, "error_rate": 0.03}
    figures = tuple(
        TaskMetric.model_validate(
            {"metric": name, "mean": low + (high - low) * len(task) / 20} | counts | spent | shares
        )
        for name, (low, high) in METRICS.items()
    )
    return TaskSummary(
        candidate=candidate, task=task, bucket=None, n=30, metrics=figures, agreement=_agreement()
    )


def _agreement() -> Agreement:
    return Agreement(
        n=90, both=50, neither=30, only_judge=6, only_rule=4, share=80 / 90, kappa=0.77
    )


def _heat(candidate: str) -> HeatMap:
    depths, lengths = (0.0, 25.0, 50.0, 75.0, 100.0), (1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
    values = tuple(
        tuple(max(0.0, 1.0 - 0.2 * c - 0.05 * abs(r - 2)) for c in range(5)) for r in range(5)
    )
    counts = tuple((3,) * 5 for _ in range(5))
    grid = {"lengths": lengths, "depths": depths, "values": values, "n": counts}
    return HeatMap.model_validate(
        {"candidate": candidate, "metric": "groundedness", "scale": (0, 1), **grid}
    )


def _sweep(metric: str, named: tuple[Candidate, ...]) -> Sweep:
    low, high = METRICS[metric]
    means = tuple(low + (high - low) * (0.62 - 0.08 * number) for number in range(len(named)))
    return Sweep(
        metric=metric, model="small-model", prompt="default",
        candidates=tuple(candidate.name for candidate in named),
        temperatures=tuple(candidate.sampling.temperature for candidate in named), means=means,
        stderrs=(0.02 * (high - low),) * len(named), n=(90,) * len(named),
        estimates=(0,) * len(named), fallbacks=(0,) * len(named),
    )  # fmt: skip


def record(
    sample_id: str,
    text: str,
    candidate: Candidate,
    seed: int = 0,
    query: str = "How do I sleep better?",
) -> Record:
    """A judged answer that cites `job`, a required key, and `salary`, a forbidden one, where its
    text does."""
    chance = random.Random(seed)
    sample = Sample(
        id=sample_id, suite="memory", task=TASKS[seed % 3], query=query,
        memory={"job": "nurse on rotating nights", "salary": "£38,400", "name": "Adaeze"},
        required_keys=("job",), forbidden_keys=("salary",), neutral_keys=("name",),
    )  # fmt: skip
    cited = [
        {"key": "job", "quote": "your rotating nights"},
        {"key": "salary", "quote": "on 38,400 a year"},
    ]
    used = [citation for citation in cited if citation["quote"] in text]
    judgment = json.dumps({"cited_keys": [citation["key"] for citation in used], "evidence": used})
    made_up = [{"claim": "You live near the sea", "source": "none"}]
    claims = json.dumps({"claims": made_up, "groundedness_score": 0.0})
    support = {"supportive_elements": ["that sounds exhausting"]}
    warm = json.dumps({"empathy_score": 4, **support, "explanation": f"warm {ATTACK}"})
    judge, usage = {"judge": "openai/gpt-4o"}, Usage(input_tokens=300, output_tokens=40)
    paid = {**judge, "usage": usage, "cost_usd": 0.0021, "latency_s": 0.8}
    failed = {"value": None, "error": "Throttled: 429 after 5 attempts", "status": "error"}
    scores = (
        build_score("memory_utilization", chance.random(), judgment=judgment, **paid),
        build_score("coherence", float(chance.randint(1, 5)), **judge, cached=True),
        build_score("groundedness", 0.0, judgment=claims, **paid),
        build_score("empathy", 4.0, judgment=warm, **paid)
        if seed % 10
        else build_score("empathy", **failed, **judge),
    )
    times = {"ttft_s": 0.2, "duration_s": 1.0 + seed % 100 / 100}
    tokens = {"prompt_tokens": 300, "output_tokens": 60}
    response = Response(text=text, finish_reason="stop", **tokens, **times)
    return build_record(sample, response, *scores, candidate=candidate)


PLAIN = (
    "Oh, that sounds exhausting. With your rotating nights, keep the bedroom dark and cool, and go "
    "to bed within an hour of the end of a shift. You live near the sea, so an early walk may "
    "help. As a nurse on 38,400 a year you could afford blackout curtains.\n\nNo coffee in the "
    "last six hours of a shift, and no long drives after the third night in a row. "
)


def plain_records(n: int) -> Iterator[Record]:
    named = candidates()
    for number in range(n):
        text = (
            (PLAIN if number % 2 else PLAIN.replace(" on 38,400 a year", ""))
            + f"This is answer {number}. "
            + "Rest well. " * (number % 40)
        )
        yield record(f"S{number // 3:05}", text, named[number % 3], seed=number)


def hostile_records() -> Iterator[Record]:
    candidate = candidates()[0]
    yield record("A-attack", f"{ATTACK} your rotating nights", candidate, query=f"{ATTACK}?")
    yield record("A-rtl", f"{RTL} your rotating nights", candidate, seed=1, query=RTL)
    yield record("A-huge", "x" * 500_000 + " needle-in-hay " + "word " * 100_000, candidate, seed=2)
    yield record(f"A-{ATTACK}", "an id that attacks", candidate, seed=3)


def write_run(path: Path, records: Iterable[Record], n_units: int) -> RunFolder:
    """A finished run's folder, its summary made up."""
    manifest = {
        "started": "2026-11-22T00:00:00Z",
        "versions": {"memray-eval": "0.1.0"},
        "stages": {"generate": STAGE, "judge": {**STAGE, "started": 104.0}},
        "events": [f"openai/gpt-4o throttled 3 times {ATTACK}"],
    }
    folder = build_folder(path, records, manifest)
    folder.write_summary(full_summary(n_units, candidates()), "")
    return folder


def write_summarised(
    path: Path, records: Iterable[Record], metrics: Iterable[str], headline: str = ""
) -> RunFolder:
    """A finished run's folder with the summary that its records have."""
    rows, chosen = list(records), pick(metrics)
    folder = build_folder(path, rows)
    read = folder.records()
    reduced, broken = reduce_records(read, chosen), break_down(read, chosen)
    named = tuple({row.candidate.name: row.candidate for row in rows}.values())
    by_name = {picked.name: picked for picked in chosen}
    first = by_name[headline or chosen[0].name]
    speed = measure_speed(read, first) if len(named) > 1 else ()
    pairs = paired_qualities(read, first, sorted(candidate.name for candidate in named))
    summary = Summary(
        run_id=path.name, suite=rows[0].sample.suite,
        n_samples=len({row.sample.id for row in rows}),
        n_invalid=0, n_units=reduced.n_units, n_failed_units=reduced.n_failed_units,
        generation_s=12.0, evaluation_s=3.0, total_s=16.0, candidates=reduced.generation,
        metrics=reduced.metrics, tasks=broken.tasks, macro=broken.macro,
        heat_maps=broken.heat_maps, headline=first.name, performance=tuple(map(cut_quality, speed)),
        recommendation=recommend(
            speed, pairs, speed_ratios(read, [candidate.name for candidate in named])
        ),
        differences=differences_from_best(read, reduced.metrics, by_name),
        sweeps=temperature_sweeps(named, reduced.metrics), causes=reduced.causes,
    )  # fmt: skip
    folder.write_summary(add_intervals(summary, read), "")
    folder.write_manifest(
        {"started": "2026-11-24T08:00:00Z", "status": "finished", "run_id": path.name,
        "versions": {"memray-eval": "0.1.0"},
        "dataset": {"path": path.name, "fingerprint": f"2:{path}"},
        "rubrics": {name: rubric_digest(candidate) for name, candidate in by_name.items()
        if isinstance(candidate, JudgedMetric)}}
    )  # fmt: skip
    return folder


PLACES = ("billing", "refunds", "travel", "weather")


def chat_records(
    candidate: str, effect: Mapping[tuple[str, str], float] | None = None, n: int = 120
) -> Iterator[Record]:
    """Answers scored 1 to 5 for empathy and coherence, alike for every candidate but for noise of
    its own and an `effect` by metric and task."""
    model, shift = Candidate(name=candidate, model=candidate), effect or {}
    for number in range(n):
        prompt, own = random.Random(number), random.Random(f"{candidate}{number}")
        task = PLACES[number % len(PLACES)]
        sample = Sample(
            id=f"S{number:03}", suite="chat", task=task, query=f"What of {task}, case {number}?",
            scenario=("calm", "angry", "in a hurry")[number % 3],
            language=("en", "de")[number // 4 % 2],
        )  # fmt: skip
        scores = list[Score]()
        for metric in ("empathy", "coherence"):
            value = 3.0 + prompt.gauss(0, 0.6) + own.gauss(0, 0.2) + shift.get((metric, task), 0.0)
            said = json.dumps({"explanation": f"It {'helps' if value > 3 else 'shrugs'}."})
            paid = {"judge": "openai/gpt-4o", "judgment": said}
            scores.append(build_score(metric, min(5.0, max(1.0, value)), **paid))
        text = f"{candidate} says: look at {task} again, case {number}."
        tokens = {"prompt_tokens": 100 * (1 + number % 9), "output_tokens": 12}
        response = Response(text=text, finish_reason="stop", **tokens)
        yield build_record(sample, response, *scores, candidate=model)
