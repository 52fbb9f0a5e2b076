"""Output tokens/s of the generation stage against bare vllm.LLM.generate: same model, prompts and sampling, in one run.

    python -m tests.benchmarks.generation_throughput [--samples 100] [--max-tokens 128]

Both sides answer the memory suite's prompts greedily, in one run of this process, timed after their engines are up. The
stage is timed from the first prompt that its engine takes to the last answer folded into a record; the rest of the pipeline
(reading, chat template, progress) runs beside it. Machines are noisy: read the ratio of one run, not the rates.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from memray_eval.config import EMBEDDED, RunConfig
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
    import ray

    from memray_eval.runtime import cluster
    from memray_eval.runtime.pipeline import generated, prompted, set_up_data_context
    from memray_eval.runtime.progress import ProgressCounter
    from memray_eval.runtime.run import scan_dataset

    with cluster.connected(config.cluster):
        set_up_data_context(config)
        counter = ProgressCounter.remote()  # type: ignore[attr-defined]
        shards = scan_dataset(config, []).shards
        rows = generated(
            prompted(config, config.candidates, shards, counter), config, config.candidates[0], "cpu", counter
        ).take_all()
        tokens = sum(row["output_tokens"] for row in rows)
        span_s = ray.get(counter.stages.remote())["generate"].span_s
        print(json.dumps({"stage": {"rows": len(rows), "tokens": tokens, "seconds": span_s}}), file=sys.stderr)
        return float(tokens / span_s)


def bare(config: RunConfig) -> float:
    """Tokens/s of vllm.LLM on the same prompts."""
    import time

    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": f"{config.engine.kv_cache_gib:.0f}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    from vllm import LLM, SamplingParams

    from memray_eval.clients.embedded_model import resolve_model
    from memray_eval.datasets.scan import read_shard
    from memray_eval.runtime.engine import engine_kwargs, sampling_params
    from memray_eval.runtime.run import scan_dataset
    from memray_eval.suites import get_suite

    candidate, suite = config.candidates[0], get_suite(config.suite)
    samples = [sample for shard in scan_dataset(config, []).shards for sample in read_shard(shard, config.suite)]
    chats = [[message.model_dump() for message in suite.prompt(sample, candidate)] for sample in samples]
    llm = LLM(resolve_model(candidate.model), **engine_kwargs(config.engine, "cpu"))
    template = llm.get_tokenizer().apply_chat_template
    prompts = [template(chat, tokenize=False, add_generation_prompt=True) for chat in chats]
    params = SamplingParams(**sampling_params(candidate.sampling))
    started = time.perf_counter()
    tokens = sum(len(output.outputs[0].token_ids) for output in llm.generate(prompts, params, use_tqdm=False))
    seconds = time.perf_counter() - started
    print(json.dumps({"bare": {"rows": len(prompts), "tokens": tokens, "seconds": seconds}}), file=sys.stderr)
    return tokens / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=128)
    options = parser.parse_args()
    config = job(options.samples, options.max_tokens)
    in_stage = stage(config)  # first: its Ray is shut down again, while vllm.LLM keeps its engine until the process ends
    in_bare = bare(config)
    print(f"bare {in_bare:.1f} tokens/s, stage {in_stage:.1f} tokens/s, ratio {in_stage / in_bare:.3f} (wanted: at least 0.9)")


if __name__ == "__main__":
    main()
