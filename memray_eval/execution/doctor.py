"""`memray-eval doctor`: what of a run would hang or fail on this machine, and how to fix it."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import partial
from typing import Literal

from memray_eval.config.environment import MEND, api_key, cache_dir, is_installed, keys_set
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import EMBEDDED, ClusterConfig, EngineConfig
from memray_eval.config.servers import check_served
from memray_eval.datasets.sources import sources_of
from memray_eval.errors import ConfigError, EvalError
from memray_eval.execution.plan import Capacity, check_room, engine_device, local_capacity
from memray_eval.execution.prepare.checks import proxied, servers_asked, spec_checks
from memray_eval.execution.prepare.resolve import resolve
from memray_eval.execution.ray import cluster
from memray_eval.execution.ray.engine import COMPILED, find_nvcc
from memray_eval.execution.ray.engine_check import check_engine, check_engine_over_ray
from memray_eval.execution.ray.placement_groups import PendingGroup, is_over_ray, pending_groups
from memray_eval.execution.run_manifest import installed_versions
from memray_eval.execution.run_plan import RunSpec
from memray_eval.execution.schedule import schedule, wave_pools
from memray_eval.metrics import all_metrics
from memray_eval.models.adapters import with_adapters
from memray_eval.models.embedded_model import model_dir
from memray_eval.models.embeddings import LOCAL_PACKAGE
from memray_eval.types import Candidate, Frozen

MIN_DISK_GIB = 2.0
MIN_SHM_GIB = 1.0
_GIB = 1 << 30


class Check(Frozen):
    """One thing looked at. `fail` stops a run, `warn` may; `mend` says what to do."""

    state: Literal["ok", "warn", "fail"]
    what: str
    mend: str = ""


def examine(job: RunConfig | None, today: date | None = None) -> Iterator[Check]:
    """Checks of the machine, then of what a job needs `today`, where there is one."""
    yield _check_platform()
    yield from _check_packages(job)
    yield from _check_compiler()
    if (model_dir() / "model.safetensors").exists():
        yield Check(state="ok", what=f"embedded model in {model_dir()}")
    else:
        mend = "`make setup` fetches it; a run that needs it does too"
        yield Check(state="warn", what="the embedded model is not fetched yet", mend=mend)
    yield from _check_disk()
    for variable, is_set in keys_set().items():
        state = "set" if is_set else "not set (only needed for its provider)"
        yield Check(state="ok", what=f"{variable} is {state}")
    yield Check(state="ok", what=f"{len(all_metrics())} metrics: {', '.join(all_metrics())}")
    if job is not None:
        yield from _check_job(job, today or date.today())


def examine_engine(
    model: str, config: EngineConfig, on: ClusterConfig, sharing: Sequence[Candidate] = ()
) -> Iterator[Check]:
    """Starts one engine of `model` as a run of the candidates `sharing` it would; it generates."""
    has_gpu = local_capacity(ClusterConfig()).gpus > 0
    device = config.device if config.device != "auto" else "gpu" if has_gpu else "cpu"
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    yield Check(state="ok", what=f"versions: {versions}")
    try:
        config = with_adapters(config, sharing, device == "cpu")
        if is_over_ray(config):
            report = check_engine_over_ray(config, model, device, on)
        else:
            report = check_engine(config, model, device)
    except EvalError as error:
        yield Check(state="fail", what=str(error))
        return
    came = f" ({report.download_s:.1f} s of them downloading)" if report.download_s else ""
    cuda = f" with CUDA {report.cuda}" if report.cuda else ""
    yield Check(
        state="ok",
        what=f"engine of {model} on {report.device}{cuda}: up in {report.start_s:.1f} s{came}, "
        f"{report.n_tokens} tokens in {report.answer_s:.2f} s: {report.text!r}",
    )


def _try(work: Callable[[], object], what: str, mend: str = "") -> Check:
    """Fine if the work is done; else how it failed, and what mends that."""
    try:
        work()
    except EvalError as error:
        return Check(state="fail", what=str(error), mend=mend)
    return Check(state="ok", what=what)


def _check_compiler() -> Iterator[Check]:
    """The compiler of what vLLM would compile as an engine starts, where it is built for CUDA."""
    off = ", ".join(f"{name}=0" for name in COMPILED)
    if not is_installed("flashinfer"):
        return
    if nvcc := find_nvcc():
        yield Check(state="ok", what=f"{nvcc} compiles kernels for vLLM as engines start")
    elif wanted := [name for name in COMPILED if os.environ.get(name, "0") != "0"]:
        what = f"{' and '.join(wanted)}: vLLM would compile kernels, and there is no nvcc"
        mend = f"set {off}, or put nvcc of torch's CUDA version on PATH"
        yield Check(state="warn", what=what, mend=mend)
    else:
        yield Check(state="ok", what=f"no nvcc: engines start with {off}")


def _check_platform() -> Check:
    version = platform.python_version()
    where = f"{platform.system()} {platform.machine()}, Python {version}"
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        mend = (
            "vLLM does not run here: start any OpenAI-compatible server and use backend: openai "
            "with its base_url"
        )
        return Check(state="warn", what=where, mend=mend)
    return Check(state="ok", what=where)


def _check_packages(job: RunConfig | None) -> Iterator[Check]:
    embeds = job is None or not job.embedding.model.startswith("openai/")
    has_vllm = job is None or any(candidate.backend == "vllm" for candidate in job.candidates)
    wanted = {"vllm": has_vllm, "sentence_transformers": embeds, LOCAL_PACKAGE: embeds}
    for package, is_wanted in wanted.items():
        if is_installed(package):
            yield Check(state="ok", what=f"package {package}")
        else:
            what = f"package {package} is not installed"
            yield Check(state="fail" if is_wanted else "warn", what=what, mend=MEND[package])


def _check_disk() -> Iterator[Check]:
    places = [(str(cache_dir()), MIN_DISK_GIB, "set MEMRAY_EVAL_CACHE to a roomier disk")]
    if os.path.isdir("/dev/shm"):
        more = "give the container more shared memory (docker --shm-size); Ray falls back to disk"
        places.append(("/dev/shm", MIN_SHM_GIB, more))
    for path, least, mend in places:
        folder = path
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        free = shutil.disk_usage(folder).free / _GIB
        what, is_enough = f"{free:.1f} GiB free in {path}", free >= least
        yield Check(state="ok" if is_enough else "warn", what=what, mend="" if is_enough else mend)


def _check_job(job: RunConfig, today: date) -> Iterator[Check]:
    formats = "see dataset/README.md for the formats"
    yield _try(partial(sources_of, job.dataset), f"dataset {job.dataset}", formats)
    capacity = spec = None
    pending: list[PendingGroup] = []
    try:
        if job.cluster.address is None:
            capacity = local_capacity(job.cluster)
        else:
            with cluster.connected(job.cluster) as capacity:
                pending = pending_groups()
    except EvalError as error:
        yield Check(state="fail", what=str(error))
    for group in pending:
        wants = ", ".join(f"{amount:g} {name}" for name, amount in group.resources.items())
        lasts = time.time() - group.since
        what = f"{group.owner} of a run is PENDING for {lasts:.0f} s: no node has room for {wants}"
        yield Check(state="warn", what=what, mend="it takes the nodes that come before this job's")
    try:
        spec = resolve(job, today=today)
    except EvalError as error:
        yield Check(state="fail", what=str(error))
    if spec is not None:
        notes = list[str]()
        tried = [_try(check, "") for check in spec_checks(spec, "", notes.append)]
        yield from (check for check in tried if check.state == "fail")
        yield from (Check(state="warn", what=line) for line in notes)
        for gone in spec.successions:
            mend = "name the judge to be rid of this line; judges/README.md says what is kept apart"
            yield Check(state="warn", what=str(gone), mend=mend)
        for line in spec.retiring(today):
            yield Check(state="warn", what=line, mend="name another model, or end the run before")
        yield from _check_servers(spec)
    if spec is not None and capacity is not None:
        yield from _check_plan(spec, capacity)


def _check_servers(spec: RunSpec) -> Iterator[Check]:
    """Asks each server of the job for its models: those of judges, candidates and embeddings."""
    for line in proxied(spec):
        yield Check(state="ok", what=line)
    for model, url, variable, _ in servers_asked(spec):
        if url is None:
            continue
        try:
            check_served(model, url, api_key(variable) if variable else None)
            yield Check(state="ok", what=f"{url} has the model {model}")
        except EvalError as error:
            state: Literal["fail", "warn"] = "fail" if isinstance(error, ConfigError) else "warn"
            yield Check(state=state, what=str(error))


def _check_plan(spec: RunSpec, capacity: Capacity) -> Iterator[Check]:
    for metric, choice in spec.judges.items():
        yield Check(state="ok", what=f"{metric} is judged by {choice}")
    device = engine_device(spec, capacity.all_gpus)
    has = (
        f"{capacity.where}: {capacity.cpus:g} CPUs, {capacity.gpus:g} GPUs, "
        f"{capacity.memory_gib:.1f} GiB of memory"
    )
    for wave in schedule(spec, capacity, device):
        names = ", ".join(candidate.name for group in wave for candidate in group)
        models = " beside ".join(
            "the embedded model" if group[0].model == EMBEDDED else group[0].model for group in wave
        )
        pools = wave_pools(spec, wave, capacity, device)
        what = f"the plan for {names} ({models}, {device}) fits {has}"
        yield _try(partial(check_room, pools, capacity), what)
