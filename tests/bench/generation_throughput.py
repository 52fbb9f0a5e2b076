"""Output tokens/s of the generation stage against bare vllm.LLM.generate: same model, prompts and
sampling, in one run.

    python -m tests.bench.generation_throughput [--samples 100] [--max-tokens 128] [--rounds 2]

Both sides answer the memory suite's prompts greedily, in one run of this process, timed after their
engines are up. Shared machines drift by ten percent within minutes, so the two alternate, and a
stage is compared with the bare run before and the bare run after it. The stage is timed from the
first prompt that its engine takes to the last answer folded into a record; the rest of the pipeline
(reading, chat template, progress) runs beside it."""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EMBEDDED
from tests.conftest import SAMPLES


def job(samples: int, max_tokens: int) -> RunConfig:
    sampling = {"temperature": 0.0, "max_tokens": max_tokens, "seed": 0}
    config = {
        "dataset": str(SAMPLES),
        "limit": samples,
        "candidates": [{"name": "embedded", "model": EMBEDDED, "sampling": sampling}],
    }
    return RunConfig.model_validate(config)


def stage(config: RunConfig) -> float:
    """Tokens/s of the pipeline's generation stage."""
    from memray_eval.execution.plan import fit_engine
    from memray_eval.execution.prepare.resolve import resolve
    from memray_eval.execution.prepare.scanning import RunSite
    from memray_eval.execution.ray.pipeline import (
        PipelineSetup,
        add_generation,
        add_prompts,
        set_up_data_context,
    )
    from memray_eval.execution.ray.reporting import ProgressCounter, RemoteCounter
    from memray_eval.execution.stages.context import StageContext
    from memray_eval.execution.waiting import no_waiting
    from memray_eval.results.run_folder import RunFolder

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        spec = resolve(config, generate_only=True)
        now, say = time.time(), lambda line: None
        site = RunSite(spec, RunFolder(folder), stack, no_waiting, say, now)
        plan = site.acquire(site.plan())
        engine = fit_engine(config.engine, 0.0, "cpu")
        set_up_data_context(config.cluster.no_progress_timeout_s)
        counter = RemoteCounter(ProgressCounter.remote())  # type: ignore[attr-defined]
        RunFolder(folder).create()
        context = StageContext(folder, counter)  # type: ignore[arg-type]
        setup = PipelineSetup(plan=plan, context=context, device="cpu", engine=engine)
        prompts = add_prompts(setup, config.candidates)
        with setup.placement(config.candidates[0].model, None) as placement:
            rows = add_generation(prompts, setup, config.candidates, placement).take_all()
        tokens = sum(row["output_tokens"] for row in rows)
        span_s = counter.telemetry().stages["generate"].span_s
        return float(tokens / span_s)


@contextmanager
def bare(config: RunConfig) -> Iterator[Callable[[], float]]:
    """A function that answers the same prompts with vllm.LLM and gives tokens/s; its engine is up
    and idle between calls, and ends with the context: a process waits for it at its own end."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": f"{config.engine.kv_cache_gib:.0f}",
        "HF_HUB_OFFLINE": "1",
    }
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR"}
    from vllm import LLM, SamplingParams

    from memray_eval.datasets.scan import read_samples
    from memray_eval.execution.plan import fit_engine
    from memray_eval.execution.prepare.resolve import resolve
    from memray_eval.execution.prepare.scanning import scan_dataset
    from memray_eval.execution.ray.engine import engine_kwargs
    from memray_eval.execution.stages.render import render
    from memray_eval.models.embedded_model import resolve_model
    from memray_eval.models.tokenizers import load_tokenizer

    candidate, spec = config.candidates[0], resolve(config)
    tokenizer = load_tokenizer(candidate.model)
    asked = [
        spec.suite.prompt(sample, candidate)
        for shard in scan_dataset(spec.read, []).shards
        for sample in read_samples(shard, spec.read.reader)
    ]
    prompts = [{"prompt_token_ids": render(one, tokenizer, None).tokens} for one in asked]
    engine = fit_engine(config.engine, 0.0, "cpu")
    llm = LLM(resolve_model(candidate.model), **engine_kwargs(engine, "cpu"))
    params = SamplingParams(**asked[0].sampling(candidate))

    def measure() -> float:
        llm.reset_prefix_cache()  # a second pass must not find its prompts already computed
        started = time.perf_counter()
        tokens = sum(
            len(output.outputs[0].token_ids)
            for output in llm.generate(prompts, params, use_tqdm=False)
        )
        return tokens / (time.perf_counter() - started)

    try:
        yield measure
    finally:
        llm.llm_engine.engine_core.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    config = job(options.samples, options.max_tokens)
    ratios = []
    with bare(config) as in_bare:
        before = in_bare()
        for number in range(1, options.rounds + 1):
            in_stage, after = stage(config), in_bare()
            ratios.append(in_stage / ((before + after) / 2))
            rates = f"bare {before:.1f} tokens/s before and {after:.1f} after, stage {in_stage:.1f}"
            print(f"round {number}: {rates}, ratio {ratios[-1]:.3f}", flush=True)
            before = after
    print(f"mean ratio {statistics.mean(ratios):.3f} (wanted: at least 0.9)")


if __name__ == "__main__":
    main()
