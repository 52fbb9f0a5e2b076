"""evaluate --recipes: the same answers by several recipes, and wrong ones planted beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from memray_eval.analysis.recipes import plant_answers
from memray_eval.api.recipes import judge_by_recipes, to_recipes
from memray_eval.config.schema import RunConfig
from memray_eval.errors import ConfigError
from memray_eval.report.console import recipe_parts
from memray_eval.report.sections import lines_of
from memray_eval.types import Sample
from tests.build import GIVEN, Job, finish, write_lines
from tests.servers.provider import Answer, Fault, serving

ANSWERS = {  # by candidate, to two questions: right, near enough, or of the subject alone
    "exact": ["In 1874.", "It was a mill."],
    "chatty": ["Around 1870.", "The mill, as far as I know."],
}
GOLD = ["1874", "the mill"]


def by_severity(body: dict[str, Any]) -> str | Answer | Fault:
    """Lenient, all but a wrong number is right; strict, a right answer must stand in it; a rubric
    that says "unsure" has no verdict on what is hedged."""
    system, question = (message["content"] for message in body["messages"])
    response = question.rpartition("<RESPONSE")[2]
    right = question.partition("<ACCEPTED_ANSWERS")[2].partition("\n")[2].partition("\n")[0]
    is_right = right.split()[-1] in response
    if "unsure" in system and "as far as I know" in response:
        return Answer("No.", "refused")
    if "Be lenient." in system:
        is_right = "1877" not in response
    verdict = "CORRECT" if is_right else "INCORRECT"
    return json.dumps({"answer": "", "reasoning": "r", "verdict": verdict, "confidence": 0.9})


def make(job: Job, tmp_path: Path, server: Any, suite: str = "needles", **fields: str) -> RunConfig:
    rows = [
        {"id": f"q{n}", "query": "When did it burn?", "answers": [GOLD[n]], "candidate": name,
         "response": text, "context": "A long text.", **fields}
        for name, texts in ANSWERS.items()
        for n, text in enumerate(texts)
    ]  # fmt: skip
    dataset = str(write_lines(tmp_path / "responses.jsonl", rows))
    own = {"candidates": [GIVEN], "judge": "openai/judge", "judging": {"tries": 1}}
    return job(server, dataset=dataset, suite=suite, **own)


def test_recipes_differ_in_figures_flips_places_and_false_accepts(job: Job, tmp_path: Path) -> None:
    unsure = tmp_path / "unsure.md"
    unsure.write_text("Give no verdict if unsure.")
    with serving(by_severity) as server:
        config = make(job, tmp_path, server)
        span, runs = judge_by_recipes(config, ["strict", "lenient", str(unsure)], finish)
    strict, lenient, own = span.recipes
    assert (strict.n_scored, lenient.n_scored, own.n_scored) == (4, 4, 3)
    assert (span.n_answers, span.n_compared, span.n_flipped) == (4, 3, 1)
    assert span.spans == {"chatty": (0.0, 1.0), "exact": (1.0, 1.0)}
    assert strict.false_accepts == {"vague": 0.0, "detail": 0.0}
    assert lenient.false_accepts == {"vague": 1.0, "detail": 0.5}
    assert lenient.n_planted == {"vague": 2, "detail": 2}
    assert len({of.digest for of in span.recipes}) == 3
    text = "\n".join(lines_of(recipe_parts(span)))
    assert all(of.digest in text for of in span.recipes)
    assert "flips: 1 of 3 answers (33.3 %)" in text
    assert "1 more have no verdict by some recipe" in text
    assert "chatty: 0.0000 to 1.0000, a span of 1.0000" in text
    for of, done in zip(span.recipes, runs[::2], strict=True):
        digests = done.folder.read_manifest()["rubrics"]
        assert digests["semantic_correctness"].startswith(f"{of.digest}, ")
        assert of.digest in " ".join(done.summary.notes)


def test_places_are_told_to_change(job: Job, tmp_path: Path) -> None:
    def turned(body: dict[str, Any]) -> str | Answer | Fault:
        system, question = (message["content"] for message in body["messages"])
        is_exact = any(text in question for text in ANSWERS["exact"])
        verdict = "CORRECT" if is_exact != ("Be lenient." in system) else "INCORRECT"
        return json.dumps({"answer": "", "reasoning": "", "verdict": verdict, "confidence": 1})

    with serving(turned) as server:
        span, _ = judge_by_recipes(make(job, tmp_path, server), ["strict", "lenient"], finish)
    assert span.swaps == (("chatty", "exact"),)
    assert "candidates that change places: chatty and exact" in lines_of(recipe_parts(span))


def test_a_benchmarks_own_judge_is_a_recipe_beside_strict(job: Job, tmp_path: Path) -> None:
    def by_year(body: dict[str, Any]) -> str | Answer | Fault:
        if "`reply`" not in body["messages"][0]["content"]:
            return by_severity(body)
        response = body["messages"][1]["content"].rpartition("<RESPONSE")[2]
        return json.dumps({"reply": "Yes." if "18" in response else "No."})

    with serving(by_year) as server:
        config = make(job, tmp_path, server, "longmemeval", task="multi-session")
        span, _ = judge_by_recipes(config, ["own", "strict"], finish)
    own, strict = span.recipes
    assert (own.metric, strict.metric) == ("longmemeval_judge", "semantic_correctness")
    assert own.means == {"chatty": 0.5, "exact": 0.5}
    assert strict.means == {"chatty": 0.5, "exact": 1.0}
    assert (span.n_compared, span.n_flipped) == (4, 3)
    assert own.false_accepts == {"vague": 0.0, "detail": 1.0}
    assert len({own.digest, strict.digest, ""}) == 3


@pytest.mark.parametrize(
    ("answers", "detail"),
    [
        (["in 1874"], "in 1877"),
        (["more than 60"], "more than 91"),
        (["Yes."], "No"),
        (["the mill"], "a barn"),
        (["barn"], None),  # the other sample's answer is right here too
    ],
)
def test_planted_answers_are_wrong(answers: list[str], detail: str | None) -> None:
    sample = Sample(id="a", query="What burned?", answers=tuple(answers))
    other = Sample(id="b", query="What stood?", answers=("a barn",))
    none = Sample(id="c", query="Who?", answers=("?",), metadata={"unanswerable": True})
    planted = plant_answers([sample, other, none])
    vague, *rest = [(kind, text) for kind, of, text in planted if of == sample]
    assert vague == ("vague", 'On "What burned?": that came up, and went much as one would expect.')
    assert [text for _, text in rest] == ([detail] if detail else [])


def test_a_recipe_is_a_rubric_or_the_benchmarks_own_judge(job: Job) -> None:
    with serving(by_severity) as server:
        config = job(server, suite="longmemeval")
        assert to_recipes(["own", "strict"], config)[0].metric == "longmemeval_judge"
        with pytest.raises(ConfigError, match="no judge of the benchmark's in suite needles"):
            to_recipes(["own", "strict"], config.model_copy(update={"suite": "needles"}))
        with pytest.raises(ConfigError, match="two or more"):
            to_recipes(["strict", "strict"], config)
