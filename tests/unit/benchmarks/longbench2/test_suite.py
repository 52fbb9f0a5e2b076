from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.benchmarks.longbench2.suite import adapt, prompt
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Sample
from tests.conftest import REPOSITORY

REAL = REPOSITORY.parent / "shared" / "data" / "longbench-v2" / "sample.jsonl"
AT_ONCE, THINKING = Candidate(name="a", model="m"), Candidate(name="a", model="m", prompt="cot")


def record(**changes: Any) -> dict[str, Any]:
    return {
        "_id": "66ec",
        "domain": "Long-dialogue History Understanding",
        "sub_domain": "Agent history QA",
        "difficulty": "hard",
        "length": "short",
        "question": "Who won?",
        "choice_A": "Ann",
        "choice_B": "Ben $Q$",
        "choice_C": "Cy {context}",
        "choice_D": "Di",
        "answer": "B",
        "context": "  Ben won. $C_A$ ",
    } | changes


def sample(**changes: Any) -> Sample:
    return Sample.model_validate(adapt(record(**changes), "data.json"))


def test_a_published_record_becomes_a_sample() -> None:
    assert sample() == Sample(
        id="long_dialogue_history_understanding:66ec",
        task="long_dialogue_history_understanding",
        query="Who won?",
        context="  Ben won. $C_A$ ",
        answers=("B", "B. Ben $Q$"),
        metadata={
            "domain": "Long-dialogue History Understanding",
            "sub_domain": "Agent history QA",
            "difficulty": "hard",
            "length": "short",
            "bucket": "short",
            "choices": {"A": "Ann", "B": "Ben $Q$", "C": "Cy {context}", "D": "Di"},
            "label": "B",
        },
    )


def test_what_a_record_lacks_is_named() -> None:
    with pytest.raises(
        ValueError, match="not a record of LongBench v2: it lacks choice_C, answer;"
    ):
        adapt(
            {name: value for name, value in record().items() if name not in ("choice_C", "answer")},
            "x",
        )
    with pytest.raises(ValueError, match="answer: must be A, B, C or D, not 'E'"):
        adapt(record(answer="E"), "x")
    with pytest.raises(
        ValueError, match="no task 'poetry'; there are: single_document_qa, multi_document_qa"
    ):
        adapt(record(domain="Poetry"), "x")


def test_our_own_format_passes_where_it_has_the_choices() -> None:
    own = {"id": "1", "query": "Who?", "metadata": {"choices": dict.fromkeys("ABCD", "x")}}
    assert adapt(own, "x") is own
    with pytest.raises(
        ValueError, match=r"metadata.choices: must give the text of each of A, B, C and D"
    ):
        adapt({"id": "1", "query": "Who?"}, "x")


def test_both_variants_share_all_up_to_the_question() -> None:
    at_once, thinking = prompt(sample(), AT_ONCE), prompt(sample(), THINKING)
    assert (at_once.max_tokens, thinking.max_tokens) == (128, 1024)
    assert at_once.is_cut
    assert thinking.is_cut
    first, second = at_once.messages[0].content, thinking.messages[0].content
    before, after = first.split("  Ben won. $C_A$ ")
    assert second.startswith(f"{before}  Ben won. $C_A$ ")
    assert "Who won?\n\n(A) Ann\n(B) Ben $Q$\n(C) Cy {context}\n(D) Di" in after
    assert "The correct answer is (X)" in after
    assert "step by step" in second
    assert "step by step" not in first


def test_the_users_templates_make_the_variants(tmp_path: Path) -> None:
    (tmp_path / "0shot.txt").write_text("Costs $5.\n$DOC$\n$Q$ $C_A$/$C_B$/$C_C$/$C_D$", "utf-8")
    suite = get_suite("longbench2", str(tmp_path))
    asked = suite.prompt(sample(), AT_ONCE)
    assert (
        asked.messages[0].content
        == "Costs $5.\nBen won. $C_A$\nWho won? Ann/Ben $Q$/Cy {context}/Di"
    )
    assert asked.max_tokens == 128
    assert pickle.loads(pickle.dumps(suite.prompt))(sample(), AT_ONCE) == asked
    with pytest.raises(
        ConfigError, match="suite 'longbench2' has no prompt 'cot'; it has: default"
    ):
        check_prompts(suite, (THINKING,))
    (tmp_path / "0shot_cot.txt").write_text("$DOC$ Think.", "utf-8")
    both = get_suite("longbench2", str(tmp_path))
    assert both.prompts == ("default", "cot")
    assert both.prompt(sample(), THINKING).messages[0].content == "Ben won. $C_A$ Think."
    assert get_suite("longbench2", str(tmp_path / "0shot_cot.txt")).prompts == ("cot",)


def test_broken_templates_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has neither of 0shot.txt, 0shot_cot.txt"):
        get_suite("longbench2", str(tmp_path))
    (tmp_path / "0shot.txt").write_text("$Q$", "utf-8")
    with pytest.raises(ConfigError, match=r"0shot.txt: has no place DOC"):
        get_suite("longbench2", str(tmp_path))
    (tmp_path / "0shot.txt").write_bytes(b"$DOC$ \xff")
    with pytest.raises(ConfigError, match=r"cannot read .*0shot.txt"):
        get_suite("longbench2", str(tmp_path))


@pytest.mark.skipif(not REAL.is_file(), reason=f"no slice of LongBench v2 at {REAL}")
def test_every_real_record_is_a_sample_and_is_asked_whole() -> None:
    raws = [json.loads(line) for line in REAL.read_text("utf-8").splitlines()]
    found = [Sample.model_validate(adapt(raw, str(REAL))) for raw in raws]
    assert len({each.id for each in found}) == 6
    for each, raw in zip(found, raws, strict=True):
        assert each.answers == (raw["answer"], f"{raw['answer']}. {raw['choice_' + raw['answer']]}")
        said = prompt(each, AT_ONCE).messages[0].content
        assert said.count(raw["context"]) == 1
        assert f"(D) {raw['choice_D']}" in said.split(raw["context"])[1]
