"""Responses a second that one core scores by the text family: its seven metrics together, and each
alone.

    python -m tests.bench.text_family [--responses 200] [--rounds 40]

Responses of 30, 100 and 300 words are put together from sentences that people wrote (tests/data),
in two paragraphs, one in three with a list, every one another text; those marked "typographic" have
curly quotes and dashes. What is timed is the metric's own `measure`, its outcome (`Measure`)
included, on texts that were not read before; each alone therefore pays for the reading that the
seven together share. Seconds are the process's CPU time. The best of many short rounds counts,
because what else a shared machine does only ever makes it slower; beside it stands the median."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from memray_eval.metric import ComputedMetric
from memray_eval.metrics import all_metrics
from memray_eval.metrics.text._features import assess, words_of
from memray_eval.text_processing import matching
from memray_eval.types import Response, Sample

TARGET_PER_S = 20_000  # of responses of some 100 words, the seven metrics together
ASKED = Sample(id="1", query="How do I start to exercise?")
FAMILY = [m for m in all_metrics().values() if m.family == "text" and isinstance(m, ComputedMetric)]
LABELLED = Path(__file__).parent.parent / "data" / "memory_labels.jsonl"


def corpus() -> list[str]:
    """The sentences of responses that people wrote for the memory suite."""
    responses = [json.loads(line)["response"] for line in LABELLED.read_text("utf-8").splitlines()]
    return [sentence for response in responses for sentence in matching.sentences(response)]


def response(sentences: Sequence[str], start: int, words: int) -> str:
    """Sentences from `start` on, of some `words` words together: two paragraphs, of which one in
    three texts has the second as a numbered list."""
    taken = []
    while (left := words - sum(len(words_of(sentence)) for sentence in taken)) > 0:
        following = sentences[(start + len(taken)) % len(sentences)]
        if taken and len(words_of(following)) > 2 * left:
            break
        taken.append(following)
    first, second = taken[: len(taken) // 2], taken[len(taken) // 2 :]
    if start % 3 == 0 and first:
        return f"{' '.join(first)}\n\n" + "\n".join(
            f"{number}. {item}" for number, item in enumerate(second, 1)
        )
    return f"{' '.join(first)}\n\n{' '.join(second)}"


def typographic(text: str) -> str:
    return text.replace("'", "’").replace(",", " —", 1)


def speeds(texts: Sequence[str], metrics: Sequence[ComputedMetric], rounds: int) -> list[float]:
    """Responses a second in each round, fastest first."""
    found = []
    for _ in range(rounds):
        assess.cache_clear()
        responses = [Response(text=text) for text in texts]
        started = time.process_time()
        for one in responses:
            for metric in metrics:
                metric.measure(ASKED, one)
        found.append(len(texts) / (time.process_time() - started))
    return sorted(found, reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--responses", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    sentences = corpus()
    for words in (30, 100, 300):
        plain = [response(sentences, start, words) for start in range(asked.responses)]
        for kind, texts in (("", plain), (", typographic", [typographic(text) for text in plain])):
            mean_words = statistics.mean(len(words_of(text)) for text in texts)
            together = speeds(texts, FAMILY, asked.rounds)
            verdict = f", target {TARGET_PER_S:,}" if words == 100 else ""
            median = statistics.median(together)
            print(f"{mean_words:.1f} words/response{kind}")
            print(
                f"  the {len(FAMILY)} together       {together[0]:>9,.0f} responses/s a core "
                f"(median {median:,.0f}{verdict})"
            )
            if not kind:
                for metric in FAMILY:
                    print(
                        f"  {metric.name:<22} {speeds(texts, [metric], asked.rounds)[0]:>9,.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
