"""What judges cost with the rubric first, and with what calls share first, on a local provider that
caches prompts by Anthropic's published rules.

    python -m tests.bench.prompt_cache [--samples 5] [--memory-tokens 10000] [--drift 40]

Four candidates answer samples of long memories, and the metrics that see MEMORY judge each answer
three times, in a whole run per layout. Tokens and dollars are what the provider counted, at the
prices of judges.yaml; the run's own figures must be the same. Then the same with short memories,
where `auto` must cost what the rubric first does. `--drift`: how many verdicts of the embedded
judge on so many labelled answers differ between the layouts, and between two equal runs."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import JudgingConfig
from memray_eval.execution.prepare import run
from memray_eval.judges.prices import Price
from memray_eval.judges.router import load_table, price_of
from memray_eval.results.run_folder import RunFolder
from memray_eval.results.schema import from_table
from memray_eval.types import EXISTING, Summary, Usage
from tests.conftest import REPOSITORY
from tests.servers.judgments import judgment_reply, prose_reply, schema_of
from tests.servers.prompt_cache import CHARACTERS_A_TOKEN, PromptCache
from tests.servers.provider import Provider, serving

JUDGE, FLOOR = "anthropic/claude-opus-4-5", 4096
METRICS = ("groundedness", "memory_utilization", "overall_quality")
CANDIDATES, REPEATS = 4, 3
FACT = "On day {} the user walked {} km, slept {} hours and noted how lunch agreed with them."


def samples(folder: Path, count: int, memory_tokens: int) -> Path:
    """A JSONL file of samples, each with a memory of its own of about so many tokens."""
    path = folder / f"samples-{memory_tokens}.jsonl"
    with path.open("w") as lines:
        for number in range(count):
            memory, size = {"condition": "mild anemia", "city": f"town {number}"}, 0
            while size < memory_tokens * CHARACTERS_A_TOKEN:
                day = len(memory)
                memory[f"day_{day}"] = FACT.format(day, (day + number) % 9 + 1, day % 5 + 4)
                size += len(memory[f"day_{day}"]) + 9
            row = {
                "id": f"B{number:04d}",
                "query": "Should I run today?",
                "memory": memory,
                "required_keys": ["condition"],
                "history": [{"role": "user", "content": "I take iron."}],
            }
            lines.write(json.dumps(row) + "\n")
    return path


def job(dataset: Path, out: Path, answers: Provider, judge: Provider, layout: str) -> RunConfig:
    served = {"model": "m", "backend": "openai", "base_url": answers.base_url}
    sampling = [{"temperature": step / 10, "max_tokens": 64} for step in range(CANDIDATES)]
    return RunConfig.model_validate(
        {
            "dataset": str(dataset),
            "out": str(out),
            "candidates": [
                {"name": f"c{number}", **served, "sampling": one}
                for number, one in enumerate(sampling)
            ],
            "metrics": METRICS,
            "judge": JUDGE,
            "judging": {
                "base_urls": {"anthropic": judge.root},
                "cache": str(out / f"calls-{layout}.sqlite"),
                "repeats": REPEATS,
                "layout": layout,
                "limits": {JUDGE: {"requests_per_min": 1_000_000}},
            },
            "executor": "local",
        }
    )


def reply(body: dict[str, Any]) -> str:
    """A verdict, or an answer: each candidate has its own."""
    if schema_of(body):
        return judgment_reply(body)
    return f"{prose_reply(body, 40)} Take {body['temperature']} as my mark."


def judge_in(layout: str, dataset: Path, out: Path, latency_s: float) -> tuple[Usage, float]:
    """What one run's judge calls took by the provider's count, and cost; the run must say the
    same."""
    cache = PromptCache(floor=FLOOR)
    with (
        serving(reply, 0.0, keep_requests=False) as answers,
        serving(reply, latency_s, cache=cache, keep_requests=False) as judge,
    ):
        finished = run(job(dataset, out, answers, judge, layout), lambda line: None, quiet=True)
    assert finished.summary.n_failed_units == 0, finished.summary.causes
    used = Usage(
        input_tokens=judge.input_tokens,
        output_tokens=judge.output_tokens,
        cached_input_tokens=judge.cached_tokens,
        cache_write_tokens=judge.written_tokens,
    )
    price = price_of(JUDGE, JudgingConfig(), load_table(None))
    assert price is not None
    check_told(finished.summary, RunFolder(finished.folder.path), used, price)
    return used, cost_of(used, price)


def cost_of(used: Usage, price: Price) -> float:
    usd = price.of(used)
    assert usd is not None, "the judge's price is known, whatever the length"
    return usd


def check_told(summary: Summary, folder: RunFolder, used: Usage, price: Price) -> None:
    """The records, the summary and the provider agree on what was used."""
    scores = [
        score for record in from_table(folder.records().to_table()) for score in record.scores
    ]
    told = sum((score.usage for score in scores), Usage())
    assert told == used, (told, used)
    assert abs(sum(score.cost_usd for score in scores) - cost_of(used, price)) < 1e-6
    if used.cached_input_tokens:
        assert summary.prompt_cache is not None
        assert summary.prompt_cache.cached_input_tokens == used.cached_input_tokens
        assert abs(summary.prompt_cache.saved_usd - price.saved_on(used)) < 1e-6


def compare_layouts(
    count: int, memory_tokens: int, latency_s: float, layouts: tuple[str, str]
) -> tuple[float, float]:
    """The share of input that the second layout reads from the cache, and its cost as a share of
    the first one's."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        dataset = samples(out, count, memory_tokens)
        (old, old_usd), (new, new_usd) = (
            judge_in(layout, dataset, out, latency_s) for layout in layouts
        )
    for layout, used, usd in zip(layouts, (old, new), (old_usd, new_usd), strict=True):
        print(
            f"  {layout:12}: {used.input_tokens:>11,} tokens in, {used.cached_input_tokens:>11,} "
            f"read from the cache, {used.cache_write_tokens:>9,} written, "
            f"{used.output_tokens:>8,} out: ${usd:.4f}"
        )
    return new.cached_input_tokens / new.input_tokens, new_usd / old_usd


def verdicts(layout: str, dataset: Path, out: Path) -> dict[tuple[str, str], float | str]:
    """What the embedded judge says of each response by each metric: a value, or why not."""
    config = RunConfig.model_validate(
        {
            "dataset": str(dataset),
            "out": str(out),
            "candidates": [{"name": EXISTING, "model": EXISTING, "backend": EXISTING}],
            "metrics": ("safety", "helpfulness", "overall_quality"),
            "judge": "embedded",
            "judging": {"cache": "off", "layout": layout},
            "cluster": {"num_cpus": 2},
        }
    )
    finished = run(config, lambda line: None, quiet=True)
    return {
        (record.unit_id, score.metric): score.status if score.value is None else score.value
        for record in from_table(finished.folder.records().to_table())
        for score in record.scores
    }


def labelled_answers(folder: Path, count: int) -> Path:
    """So many of the answers that people labelled, spread over the file."""
    lines = (REPOSITORY / "tests" / "data" / "safety_answers.jsonl").read_text("utf-8").splitlines()
    path = folder / "answers.jsonl"
    with path.open("w") as out:
        for line in lines[:: max(1, len(lines) // count)][:count]:
            row = json.loads(line)
            kept = {name: row[name] for name in ("id", "query", "memory", "response")}
            out.write(json.dumps(kept) + "\n")
    return path


def measure_drift(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        dataset = labelled_answers(Path(folder), count)
        first, again, shared = (
            verdicts(layout, dataset, Path(folder))
            for layout in ("rubric_first", "rubric_first", "shared_first")
        )
    for what, other in (("two equal runs", again), ("the layouts", shared)):
        differ = sum(first[key] != other[key] for key in first)
        apart = [
            abs(float(first[key]) - float(other[key]))
            for key in first
            if not isinstance(first[key], str) and not isinstance(other[key], str)
        ]
        mean = sum(apart) / len(apart) if apart else float("nan")
        print(
            f"  {what}: {differ} of {len(first)} verdicts differ ({differ / len(first):.1%}); of "
            f"{len(apart)} with a value in both, by {mean:.3f} on average"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--memory-tokens", type=int, default=10_000)
    parser.add_argument("--latency-s", type=float, default=0.2)
    parser.add_argument("--drift", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("ANTHROPIC_API_KEY", "none")  # the provider is here
    calls = options.samples * CANDIDATES * REPEATS * len(METRICS)
    print(f"memories of {options.memory_tokens:,} tokens, {calls} calls a layout:")
    share, cost = compare_layouts(
        options.samples, options.memory_tokens, options.latency_s, ("rubric_first", "auto")
    )
    print(f"  {share:.1%} of the input read from the cache; {cost:.3f} of the cost")
    print(f"memories of 30 tokens, {calls} calls a layout:")
    _, cost = compare_layouts(options.samples, 30, options.latency_s, ("rubric_first", "auto"))
    print(f"  {cost:.3f} of the cost")
    if options.drift:
        print(f"verdicts of the embedded judge on {options.drift} answers:")
        measure_drift(options.drift)


if __name__ == "__main__":
    main()
