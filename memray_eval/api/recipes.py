"""The same answers judged by several recipes: a run of the answers and one of planted wrong answers
for each."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from memray_eval.analysis.recipes import (
    KINDS,
    RecipeScores,
    RecipeSpan,
    compare_recipes,
    plant_answers,
    scores_of,
)
from memray_eval.benchmarks.own import find_suite, suite_name
from memray_eval.config.schema import RunConfig
from memray_eval.datasets.reading import write_rows
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.origins import existing_candidate
from memray_eval.execution.session import RunResult
from memray_eval.metric import JudgedMetric
from memray_eval.metrics import all_metrics
from memray_eval.types import Sample

OWN = "own"  # the recipe of the suite's benchmark
CORRECTNESS = "semantic_correctness"
PLANTED = "planted"  # the candidate of wrong answers
_OF_THE_DATA = set("dataset reader samples columns limit tasks ids epochs".split())
_OF_THE_TALK = {"context", "turns", "user"}
_SEPARATOR = "@"  # behind the id of a planted answer's sample, before its kind


class Recipe(NamedTuple):
    """A metric, and the name or the path of the rubric that it is asked by."""

    name: str
    metric: str
    rubric: str | None

    def over(self, job: RunConfig, **keys: Any) -> RunConfig:
        """The job by this recipe."""
        rubrics = {self.metric: self.rubric} if self.rubric else {}
        return job.model_copy(update={"metrics": (self.metric,), "rubrics": rubrics, **keys})


def to_recipes(names: Sequence[str], job: RunConfig) -> list[Recipe]:
    """The recipes of these names. Raises ConfigError for fewer than two, and for `own` if the suite
    has no judge of its benchmark."""
    if len(set(names)) < 2:
        raise ConfigError("--recipes: name two or more of strict, lenient, own or a rubric's file")
    return [_to_recipe(name, job) for name in dict.fromkeys(names)]


def _to_recipe(name: str, job: RunConfig) -> Recipe:
    if name != OWN:
        return Recipe(name, CORRECTNESS, name)
    metrics = all_metrics()
    for listed in find_suite(job.suite).metrics:
        metric = metrics.get(listed) if isinstance(listed, str) else None
        if isinstance(metric, JudgedMetric) and metric.name != CORRECTNESS and metric.rubrics:
            return Recipe(name, metric.name, None)
    raise ConfigError(
        f"--recipes own: no judge of the benchmark's in suite {suite_name(job.suite)}"
    )


def judge_by_recipes(
    job: RunConfig, names: Sequence[str], execute: Callable[[RunConfig], RunResult]
) -> tuple[RecipeSpan, list[RunResult]]:
    """Judges a job's answers by each recipe, and the wrong answers that are planted beside them.
    Returns the differences, and the runs. Raises what `execute` raises, which runs a job."""
    judged, runs = list[RecipeScores](), list[RunResult]()
    planted: RunConfig | None = None
    for recipe in to_recipes(names, job):
        done = execute(recipe.over(job))
        if planted is None:
            samples = {record.sample.id: record.sample for record in done.folder.each()}
            planted = _planted_job(job, samples.values())
        wrong = execute(recipe.over(planted)) if planted else None
        scores = scores_of(wrong.folder.each(), recipe.metric) if wrong else {}
        digest = done.folder.read_manifest().get("rubrics", {}).get(recipe.metric, "")
        by_kind = {
            kind: [
                value for unit, value in scores.items() if unit.sample.endswith(_SEPARATOR + kind)
            ]
            for kind in KINDS
        }
        answers = scores_of(done.folder.each(), recipe.metric)
        short = digest.partition(", ")[0]
        judged.append(RecipeScores(recipe.name, recipe.metric, short, answers, by_kind))
        runs += [done, *([wrong] if wrong else [])]
    return compare_recipes(judged), runs


def _planted_job(job: RunConfig, samples: Iterable[Sample]) -> RunConfig | None:
    """A job of planted wrong answers; None if no sample has a right one to make them of."""
    rows = []
    for kind, sample, text in plant_answers(samples):
        fields = sample.model_dump(mode="json", exclude_defaults=True, exclude=_OF_THE_TALK)
        rows.append({**fields, "id": f"{sample.id}{_SEPARATOR}{kind}", "response": text})
    if not rows:
        return None
    kept = job.model_dump(exclude_unset=True, exclude=_OF_THE_DATA)
    planted = {"dataset": write_rows(rows, job.out), "candidates": [existing_candidate(PLANTED)]}
    return RunConfig.model_validate({**kept, "suite": job.suite, **planted})
