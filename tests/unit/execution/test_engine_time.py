"""What engines take for prompts and answers: each part of the work, and what a run's estimate makes
of it."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EngineConfig, EngineTimes
from memray_eval.execution.engine_time import AskedPrompt, engine_work, shared_length
from memray_eval.execution.estimate import Estimate
from memray_eval.execution.estimate_text import estimate_lines
from memray_eval.execution.plan import blocks_in_flight
from memray_eval.execution.prepare.estimates import estimate_of
from tests.bench.simulated_engine import Asked, SimulatedEngine, SimulatedPool

TIMES = EngineTimes(prefill_tokens_per_s=1000, step_s=0.1)
ENGINE = EngineConfig(
    max_num_seqs=4, concurrent_batches=2, engine_kwargs={"max_num_batched_tokens": 500}
)


def work(prompts: list[AskedPrompt], n: float = 100, engines: int = 1, **times: Any) -> float:
    changed = TIMES.model_copy(update=times)
    return engine_work(prompts, changed, ENGINE, engines, n).seconds


def test_prompts_take_their_tokens_and_answers_their_steps() -> None:
    # Four at once: a prompt is in 2 steps of 500 tokens and 40 of its answer, a quarter of each
    alone = [AskedPrompt(1000, 40)]
    assert work(alone) == pytest.approx(100 * 1.0 + 100 * (2 + 40) / 4 * 0.1)
    # Answers so short that each step computes prompts: the last is answered when all are computed
    assert work([AskedPrompt(1000, 1)]) == pytest.approx(100 * 1.0 + (100 * 2 + 1) * 0.1)


def test_a_token_far_into_a_prompt_takes_longer_and_each_answer_reads_its_context() -> None:
    prompts = [AskedPrompt(1000, 40)]
    plain = work(prompts)
    assert work(prompts, doubles_at=1000) == pytest.approx(plain + 100 * 0.5)
    assert work(prompts, context_tokens_per_s=1e4) == pytest.approx(
        plain + 100 * 40 * (1000 + 20) / 1e4
    )


def test_a_small_kv_cache_lets_fewer_prompts_be_answered_at_once() -> None:
    prompts = [AskedPrompt(1000, 40)]
    tight = engine_work(
        prompts, TIMES.model_copy(update={"kv_tokens": 2100}), ENGINE, engines=1, n_prompts=100
    )
    assert tight.at_once == 2
    assert tight.seconds == pytest.approx(100 * 1.0 + 100 * (2 + 40) / 2 * 0.1)
    # No prompt is left out for being longer than it
    assert (
        engine_work(prompts, TIMES.model_copy(update={"kv_tokens": 5}), ENGINE, 1, 9).at_once == 1
    )


def test_what_a_prompt_shares_with_the_one_before_is_computed_once() -> None:
    first = AskedPrompt(1000, 1, shared_tokens=900, opens_block=True)
    prompts = [first, *[AskedPrompt(1000, 1, shared_tokens=900)] * 3]
    # Of many engines another one had the block before; a single one had them all
    many, single = (engine_work(prompts, TIMES, ENGINE, engines, 100) for engines in (10**9, 1))
    assert many.cached_share == pytest.approx(3 / 4 * 0.9)
    assert single.cached_share == pytest.approx(0.9)
    assert many.seconds > 2 * single.seconds
    # Of the first prompt that was built nobody knows the one before: it is like other first ones
    unknown = first._replace(shared_tokens=None)
    assert engine_work([unknown, *prompts], TIMES, ENGINE, 1, 100).cached_share == pytest.approx(
        0.9
    )


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize(("tokens", "answer"), [(2000, 60), (300, 60), (2000, 2)])
def test_the_closed_form_is_that_of_an_engine_step_by_step(
    n: int, tokens: int, answer: int
) -> None:
    times = TIMES.model_copy(update={"doubles_at": 3000, "context_tokens_per_s": 1e5})
    simulated = SimulatedEngine(times, ENGINE)
    simulated.add(0, [Asked(number, 0, tokens, answer) for number in range(n)])
    assert simulated.run(math.inf) == [0]
    assert simulated.is_idle
    estimated_s = engine_work([AskedPrompt(tokens, answer)], times, ENGINE, 1, n).seconds
    assert estimated_s == pytest.approx(simulated.now, rel=0.1)


def test_a_pool_gives_the_next_block_to_the_engine_that_has_the_fewest() -> None:
    engines = [SimulatedEngine(TIMES, ENGINE) for _ in range(3)]
    blocks = [[Asked(number, 0, 1000, 10)] * 2 for number in range(30)]
    ends = SimulatedPool(engines, [0.0, 5.0, 9.0], 1, 2).answer(blocks, [0.0] * len(blocks))
    assert sum(rows for _, rows in ends) == 60
    assert ends == sorted(ends)
    # Who comes up later is done at the same time, but for a block
    assert max(engine.now for engine in engines) - min(engine.now for engine in engines) < 8


def test_texts_share_their_beginning() -> None:
    draw = random.Random(0)
    for _ in range(200):
        first, second = ("".join(draw.choices("ab", k=draw.randrange(12))) for _ in range(2))
        shared = shared_length(first, second)
        assert first[:shared] == second[:shared]
        assert first[shared : shared + 1] != second[shared : shared + 1] or shared == min(
            len(first), len(second)
        )


def rows(contexts: int, questions: int, chars: int) -> list[dict[str, Any]]:
    samples = [
        {
            "id": f"{context}-{question}",
            "task": "qasper",
            "query": f"What is fact {question}?",
            "context": f"Text {context}. " + "x" * chars,
            "answers": ["x"],
        }
        for context in range(contexts)
        for question in range(questions)
    ]
    random.Random(0).shuffle(samples)
    return samples


def estimated(
    folder: Path, raw_samples: list[dict[str, Any]], samples: int | None = None, **changes: Any
) -> Estimate:
    data = folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, raw_samples)))
    times = {"prefill_tokens_per_s": 1000, "step_s": 0.01, "start_s": 50}
    config = {
        "suite": "longbench",
        "dataset": str(data),
        "candidates": [{"name": "a", "model": "org/a", "sampling": {"max_tokens": 16}}],
        "metrics": ["rule_score"],
        "judge": "rules",
        "engine": {"device": "gpu", "replicas": 2, "max_model_len": 9000},
        "assumptions": {"engine": times},
    }
    return estimate_of(RunConfig.model_validate(config | changes), samples=samples)


def test_an_estimate_says_that_it_is_one_and_what_it_assumes(tmp_path: Path) -> None:
    estimate = estimated(tmp_path, rows(32, 1, 8000))
    lines = list(estimate_lines(estimate))
    assert lines[0].endswith("(an estimate: by what is assumed below)")
    assert (
        "  assumed: an engine computes 1,000 tokens of prompts/s, takes 0.01 s a step, and is up "
        "after 50 s (assumptions.engine)"
    ) in lines
    # 32 prompts of some 2,000 tokens, by two engines
    generate_s = next(stage.seconds for stage in estimate.stages if stage.stage == "generate")
    assert generate_s == pytest.approx(32 * estimate.prompt_tokens / 32 / 1000 / 2, rel=0.1)
    assert estimate.wall_s == pytest.approx(50 + generate_s)
    assert "2 engines that answer" in estimate.bottleneck


def test_questions_on_one_context_are_estimated_as_blocks_have_them(tmp_path: Path) -> None:
    apart, together = (estimated(tmp_path, rows(*many, 8000)) for many in ((64, 1), (8, 8)))
    assert "1% of them from the prefix cache" in apart.bottleneck
    assert together.prompt_tokens == pytest.approx(apart.prompt_tokens, rel=0.01)
    assert together.bounds[0].seconds < apart.bounds[0].seconds / 4
    # Of 40 questions on a context 16 are a block, unless there are so many that all 40 may be
    few = estimated(tmp_path, rows(4, 40, 8000))
    many = estimated(tmp_path, rows(4, 40, 8000), samples=160_000)
    assert "93% of them from the prefix cache" in few.bottleneck
    assert "95% of them from the prefix cache" in many.bottleneck


def test_prompts_are_as_long_as_the_window_lets_them_be(tmp_path: Path) -> None:
    estimate = estimated(tmp_path, rows(16, 1, 80_000))
    assert estimate.prompt_tokens == 16 * (9000 - 16)


def test_few_blocks_keep_engines_idle(tmp_path: Path) -> None:
    estimate = estimated(
        tmp_path, rows(20, 1, 100), engine={"device": "gpu", "replicas": 64, "max_model_len": 9000}
    )
    assert "62 of them without a block (rows_per_block)" in estimate.bottleneck


def test_engines_that_come_up_late_find_their_share_of_few_blocks() -> None:
    engine = ENGINE.model_copy(update={"concurrent_batches": 32})
    blocks = [[Asked(number, 0, 1000, 10)] * 2 for number in range(16)]

    def last_end(in_flight: int) -> float:
        engines = [SimulatedEngine(TIMES, engine) for _ in range(8)]
        pool = SimulatedPool(engines, [0.0, *[3.0] * 7], min(32, in_flight), in_flight)
        return pool.answer(blocks, [0.0] * len(blocks))[-1][0]

    assert blocks_in_flight(engine, len(blocks), 8) == 2
    assert last_end(2) < 3.0 + last_end(64) / 8 * 1.5
    for many in (100_000, math.inf):
        assert blocks_in_flight(engine, many, 8) == 64  # twice what an engine works on
    assert blocks_in_flight(engine, 3, 8) == 1


def test_long_prompts_without_the_times_of_an_engine_are_warned_of(tmp_path: Path) -> None:
    engine = {"device": "gpu", "replicas": 2, "max_model_len": 20_000}
    for chars, is_warned in ((100, False), (40_000, True)):
        estimate = estimated(tmp_path, rows(8, 1, chars), assumptions={}, engine=engine)
        text = "\n".join(estimate.assumptions)
        assert ("give assumptions.engine instead" in text) is is_warned


def test_a_tokenizer_that_is_here_counts_the_prompts_of_its_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memray_eval.execution import estimate_sample

    class EachCharacter:
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [ord(character) for character in text]

    by_four = estimated(tmp_path, rows(8, 1, 8000))
    monkeypatch.setattr(estimate_sample, "_local_tokenizer", lambda model: EachCharacter())
    counted = estimated(tmp_path, rows(8, 1, 8000))
    assert counted.prompt_tokens == pytest.approx(4 * by_four.prompt_tokens, rel=0.001)
    assert "  of prompts to org/a 1.00 characters, by its own tokenizer" in counted.assumptions
