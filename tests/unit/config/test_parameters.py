"""Further parameters of candidates and judges, and contexts: what an engine and a judge are told,
and what identifies a unit."""

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.config.schema import JobFile
from memray_eval.config.sections import ENGINE_FIELDS, STRUCTURED_FIELDS, JudgingConfig
from memray_eval.errors import ConfigError
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.prices import JudgeTable, ModelEntry, load_table
from memray_eval.types import Candidate, Retrieval, Sampling, unit_id
from tests.build import build_config

SERVER = {"lab": {"url": "http://127.0.0.1:8000/v1"}}


def test_the_names_of_an_engine_are_vllms() -> None:
    """Its source is read, not imported: that takes 15 s."""
    if (spec := importlib.util.find_spec("vllm")) is None or spec.origin is None:
        pytest.skip("vLLM is not installed")
    tree = ast.parse((Path(spec.origin).parent / "sampling_params.py").read_text("utf-8"))
    classes = {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
    sampling, structured = (
        {ast.unparse(field.target) for field in classes[name] if isinstance(field, ast.AnnAssign)}
        for name in ("SamplingParams", "StructuredOutputsParams")
    )
    assert sampling >= ENGINE_FIELDS - {"chat_template_kwargs"}
    assert sampling >= Sampling.model_fields.keys()
    assert structured >= STRUCTURED_FIELDS


def test_only_what_changes_what_is_asked_changes_a_unit() -> None:
    """The first two are those of version b710d4b; the last of before there were arms."""
    of_old = ({}, {"sampling": Sampling(max_tokens=256)}, {"extra": {}})
    samplings = (Sampling(max_tokens=None), Sampling(temperature=None))
    changes = [*({"extra": {"top_k": k}} for k in (1, 2)), *({"sampling": s} for s in samplings)]
    changes += [{"context": arm} for arm in ("full", "oracle", "none", "retrieved")]
    candidates = (Candidate(name="c", model="m", **keys) for keys in (*of_old, *changes))
    ids = [unit_id("s", candidate, "memory") for candidate in candidates]
    assert ids[:3] == ["e28d623d6618b161"] * 3
    assert len(set(ids)) == 9
    assert unit_id("s", Candidate(name="a", model="m"), "memory") == "e6acc0335591b8b0"


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("openai/gpt-4o", {"temperature": 0, "seed": 0}),
        ("openai/gpt-6-luna-unknown", {"temperature": 0, "seed": 0}),
        ("openai/gpt-5.2", {"seed": 0}),  # its table says that it takes none
        ("anthropic/claude-unknown", {"temperature": 0}),
        ("google/gemini-unknown", {"temperature": 0}),
        ("lab/m", {"temperature": 0, "seed": 0}),
    ],
)
def test_temperature_is_0_if_a_judges_model_takes_one(name: str, sent: dict[str, Any]) -> None:
    config = build_config(servers=SERVER).judging
    assert JudgeAccount(name, config, load_table(None)).parameters == sent


def test_a_jobs_parameters_win_over_the_tables_and_a_judges_own_over_all() -> None:
    table = JudgeTable(models={"openai/m": ModelEntry(parameters={"temperature": 0.2, "seed": 1})})
    judging = JudgingConfig(
        parameters={"temperature": 0.5, "top_p": 0.9, "openai/m": {"top_p": None, "seed": 7}}
    )
    assert JudgeAccount("openai/m", judging, table).parameters == {"temperature": 0.5, "seed": 7}
    expected = {"temperature": 0.5, "top_p": 0.9}
    assert JudgeAccount("anthropic/m", judging, table).parameters == expected


def arms(**candidate: object) -> JobFile:
    entry = {"name": "a", "model": "m", **candidate}
    return JobFile.model_validate({"suite": "locomo", "dataset": "d", "candidates": [entry]})


def test_contexts_stand_for_a_candidate_each() -> None:
    expanded = arms(contexts=["full", "retrieved"], retrieved={"k": 5}).expand().candidates
    assert [entry.name for entry in expanded] == ["a-full", "a-retrieved"]
    assert [entry.context for entry in expanded] == ["full", "retrieved"]
    assert (expanded[0].retrieved, expanded[1].retrieved) == (None, Retrieval(k=5))
    assert expanded[1].arm == "retrieved: 5 turns by bm25"
    several = arms(contexts=["none"], temperatures=[0.0, 1.0]).expand().candidates
    assert [entry.name for entry in several] == ["a-t0.0-none", "a-t1.0-none"]


def test_a_suite_without_conversations_takes_no_arm() -> None:
    shown = Candidate(name="a", model="m", context="oracle")
    with pytest.raises(ConfigError, match="has no conversations of which context: oracle"):
        check_prompts(get_suite("longbench"), (shown,))
    check_prompts(get_suite("locomo"), (shown,))
