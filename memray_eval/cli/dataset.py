"""The command that makes datasets: dataset make TASKSET."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from memray_eval.cli.app import dataset_app, now_and_then, say, show
from memray_eval.cli.options import Options, argument, flag, option, takes
from memray_eval.errors import ConfigError, suggest
from memray_eval.types import Sample

if TYPE_CHECKING:
    from memray_eval.benchmarks.memory.generator import Case

MEMORY = "memory"  # splits of short questions, without a length
# Task set -> the options that it has, beside the common ones, and their defaults
TASKSETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "needles": {"lengths": "4k", "depths": 11, "samples": 1, "tasks": "all", "haystack": None},
        MEMORY: {"tasks": "all", "entries": "40,400,4000", "cases": None, "held_back": None},
    }
)


Made = tuple[Iterable[Sample], int | None]  # and how many, if that is known


@dataclass(frozen=True, kw_only=True)
class MakeOptions(Options):
    """The data to generate, and how much. An option of None has its task set's default."""

    out: str = option(
        "The .parquet file to write; memory: a .jsonl.", default=..., show_default=False
    )
    lengths: str = option(
        "needles: lengths in tokens, comma-separated: 4k,32k,128k,1M (k = 1024).  [default: 4k]"
    )
    depths: int = option(
        "needles: number of needle depths, in even steps from 0 to 100 percent.  [default: 11]"
    )
    samples: int = option(
        "needles: samples per task and length, and per depth if there are depths.  [default: 1]"
    )
    tasks: str = option(
        "Tasks, comma-separated, or `all`; a wrong name lists them.  [default: all]"
    )
    seed: int = option("Random seed.", default=0)
    tokenizer: str = option(
        "Tokenizer that counts: `embedded`, a Hugging Face name, or a folder.", default="embedded"
    )
    haystack: str | None = option("needles: a text file to use as filler.")
    entries: str | None = option(
        "memory: entries of the `large` split's memories, comma-separated.  [default: 40,400,4000]"
    )
    cases: str | None = option("memory: a file of cases of your own, in the form of cases.yaml.")
    held_back: str | None = option(
        "memory: write questions without labels, and the whole samples to this .jsonl."
    )
    limit: int | None = option("Write only the first N samples.", min=1)
    force: bool = flag("Overwrite an existing file.", None, "--force")


@dataset_app.command(
    "make",
    no_args_is_help=True,
    epilog="Example: memray-eval dataset make needles --out needles.parquet",
)
@takes(
    "taskset out lengths depths samples tasks seed tokenizer haystack entries cases "
    "held_back limit force"
)
def make(options: MakeOptions, taskset: str = argument(f"{', '.join(TASKSETS)}.")) -> None:
    """Generate a dataset, its lengths counted by a model's own tokenizer.

    needles: InfiniteBench's and RULER's kinds of tasks. memory: the memory suite's splits, as
    .jsonl.

    The length counts the context, an empty line and the question. Tokens of a chat template come on
    top."""
    from memray_eval.benchmarks.needles.parquet import check_writable

    options = _complete(taskset, options)
    suffix = ".jsonl" if taskset == MEMORY else ".parquet"
    check_writable(options.out, options.force, suffix)
    samples, total = _make_memory(options) if taskset == MEMORY else _make_needles(options)
    total = min(filter(None, (total, options.limit)), default=None)
    rows = _report_progress(islice(samples, options.limit), total)
    if options.held_back is None:
        _write(rows, options.out)
        return
    from memray_eval.benchmarks.memory.generator import hold_back

    if options.held_back == options.out:
        raise ConfigError(f"--held-back {options.held_back}: is --out too; name another file")
    check_writable(options.held_back, options.force, suffix, "--held-back")
    questions, keys = zip(*hold_back(rows), strict=True)
    _write(questions, options.out)
    _write(keys, options.held_back)


def _complete(taskset: str, options: MakeOptions) -> MakeOptions:
    """The options with the task set's defaults. Raises ConfigError for a task set that does not
    exist, and for an option that it does not have."""
    _check_known("no task set", taskset, TASKSETS)
    defaults = TASKSETS[taskset]
    special = {name for names in TASKSETS.values() for name in names}
    for name in sorted(special - defaults.keys()):
        if getattr(options, name) is not None:
            usage = f"has no --{name}; it has --{', --'.join(defaults)}".replace("_", "-")
            raise ConfigError(f"dataset make {taskset} {usage}")
    missing = {name: defaults[name] for name in defaults if getattr(options, name) is None}
    return replace(options, **missing)


def _make_memory(options: MakeOptions) -> Made:
    """The memory suite's splits; your own cases have none in other languages."""
    from memray_eval.benchmarks.memory.generator import TASKS, samples

    tasks = TASKS if options.cases is None else [task for task in TASKS if task != "languages"]
    names = tasks if options.tasks == "all" else options.tasks.split(",")
    for name in names:
        _check_known("--tasks: no task", name, tasks)
    sizes = (options.entries or "").split(",")
    if not all(size.isdecimal() and int(size) for size in sizes):
        raise ConfigError(f"--entries {options.entries}: whole numbers above 0, comma-separated")
    cases = _read_cases(options.cases) if options.cases else None
    return samples(names, [int(size) for size in sizes], options.seed, cases), None


def _check_known(problem: str, name: str, choices: Collection[str]) -> None:
    if name not in choices:
        raise ConfigError(f"{problem} {name!r}; {suggest(name, choices)}")


def _read_cases(path: str) -> tuple[Case, ...]:
    import yaml

    from memray_eval.benchmarks.memory.generator import parse_cases

    try:
        return parse_cases(yaml.safe_load(Path(path).read_text("utf-8")))
    except OSError as error:
        raise ConfigError(f"--cases {path}: {error.strerror}") from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"--cases {path}: {error}") from None


def _make_needles(options: MakeOptions) -> Made:
    from memray_eval.benchmarks.needles import generate
    from memray_eval.benchmarks.needles.plan import plan_of
    from memray_eval.benchmarks.needles.prose import length_label
    from memray_eval.benchmarks.needles.resources import Resources, read_haystack
    from memray_eval.benchmarks.needles.tasks import TASKS
    from memray_eval.models.tokenizers import load_tokenizer

    chosen = options.tasks, options.lengths, options.depths, options.samples
    plan = plan_of(TASKS, *chosen, options.seed)
    haystack = read_haystack(options.haystack) if options.haystack else ()
    resources = Resources(load_tokenizer(options.tokenizer), plan.seed, haystack)

    def report(task: str, length: int, by_parts: bool) -> None:
        slow = "this tokenizer joins words across lines: each sample is tokenised in full, slowly"
        why = "" if by_parts else f" ({slow})"
        say(f"{task} {length_label(length)}{why}")

    return generate.samples(plan, resources, report), plan.n_samples


def _write(samples: Iterable[Sample], out: str) -> None:
    from memray_eval.benchmarks.needles import parquet

    started = time.monotonic()
    written = parquet.write(samples, out)
    seconds, megabytes = time.monotonic() - started, written.context_bytes / 1e6
    speed = f", {megabytes:,.1f} MB of context, {megabytes / seconds:,.1f} MB/s"
    show(f"{out}: {written.samples:,} samples{speed if written.context_bytes else ''}")


def _report_progress(samples: Iterable[Sample], total: int | None) -> Iterator[Sample]:
    """Yields the same samples, and prints how many it has yielded."""
    of = "" if total is None else f" of {total:,}"
    report = now_and_then(lambda n: say(f"  {n:,}{of} samples"))
    for n, sample in enumerate(samples):
        report(n)
        yield sample
