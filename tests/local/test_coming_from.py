"""What a reader of other benchmarks' documents types works, or leads to what does
(jobs/COMING_FROM.md)."""

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import memray_eval as me
from memray_eval.benchmarks.companion import SCENARIOS
from memray_eval.benchmarks.instruction.checks import score_response
from memray_eval.config.loading import load_config
from tests.conftest import REPOSITORY, Call

PRED = {"pred": "It is Paris", "answers": ["Paris"], "all_classes": None, "length": 3000}
FOUR = "有两人叫阿四。"
ROWS = (
    {"response": FOUR, "ground_truth": "['2', '两个', '二']", "task": "longbook_qa_chn"},
    {"response": "The passkey is 42", "ground_truth": "42", "task": "passkey"},
    {"response": "1", "ground_truth": "[1, 2, 3]", "task": "kv_retrieval"},
)
FILES = {
    "responses_gemma3_4b_20260101_123456.json": {
        "model": "gemma3:4b",
        "results": [{"id": "H001", "query": "Why?", "response": "Sleep. However, rest."}],
    },
    "companion.json": [
        {"id": name, "scenario": name, "query": "Hello!", "response": "Hi, how are you?",
         **({"history": [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]})}
        for name in SCENARIOS
    ],
    "poem.json": [{"id": "p", "task": "poem", "query": "Write.", "response": "The rose is red."}],
    "ifeval.json": [{"prompt": "No commas.", "instruction_id_list": ["punctuation:no_comma"],
                     "kwargs": [{}], "response": "Tea is warm."}],
    "judge.py": "async def ask(messages, judgment):\n"
    "    return 'Score: 0.8 | Reasoning: warm and honest.'\n",
}  # fmt: skip
F = "responses_gemma3_4b_20260101_123456.json"
TEXT = "--metrics readability_score,overall_score --judge rules"


class Typed(NamedTuple):
    """What is typed, the exit code, and words of what is printed or written for it."""

    words: str
    code: int
    shows: tuple[str, ...]


ONE_RESPONSE = ["score", "simple", "Say hello in exactly 3 words", "Hello there friend"]
TYPED = {
    "1 no job": Typed("generate --limit 10", 2, ("`memray-eval generate server --model MODEL`",)),
    "2 an Ollama name": Typed(
        "generate memory --model gemma3:4b", 2, ("ollama/gemma3:4b", "run server --model gemma3:4b")
    ),
    "3 test.py --data": Typed("generate server --data no.json --limit 3", 2, ("no.json",)),
    "4 weights, no speech": Typed(
        "generate server --affect on --speech-weight 0.7 --text-weight 0.3 --disable-openai-tts "
        "--dataset no.json",
        2,
        ("no dataset at", "no.json"),
    ),
    "5 doctor": Typed(
        "doctor server --set candidates.0.base_url=http://127.0.0.1:9",
        3,
        ("http://127.0.0.1:9 cannot be reached",),
    ),
    "6 evaluate.py --results": Typed(f"evaluate --results {F} {TEXT}", 0, ("readability_score",)),
    "7 --judge-model": Typed(
        f"evaluate {F} --judge-model rules --metrics overall_score", 0, ("overall_score",)
    ),
    "8 a judge of Ollama's": Typed(
        f"evaluate --results {F} --judge-model gemma3:7b", 2, ("did you mean ollama/gemma3:7b?",)
    ),
    "9 eval_F.json": Typed(f"evaluate {F} --json {TEXT}", 0, (f"eval_{F}",)),
    "10 --data of evaluate": Typed(f"evaluate {F} --data no.json", 2, ("no.json",)),
    "11 no question": Typed(
        "evaluate rows.jsonl --judge rules", 0, ("Suite qa", "no question, so only", "semantic_cor")
    ),
    "12 LongBench's pred": Typed(
        "evaluate pred/m --judge rules", 0, ("Suite longbench", "rule_score             0.167")
    ),
    "13 Score: X.X": Typed(
        "evaluate companion.json --suite companion --judge judge.py:ask --full",
        0,
        ("by the overall score alone", "0.8000"),
    ),
    "14 a rubric": Typed("list metrics trust_boundaries", 0, ("weighs 0.10", "What a judge is")),
    "15 a formula": Typed("list metrics qa_f1", 0, ("F1 of bags of lower-case English words",)),
    "16 weights by genre": Typed(
        "evaluate poem.json --suite text --full --set text_weights.poem.lexical_diversity=1",
        0,
        ("weights lexical_diversity=1",),
    ),
    "17 weights of a text": Typed(
        "score text --response Rest. --weight structure_score=1", 0, ('"overall_score": 0.0',)
    ),
    "18 reading level": Typed("score text --response Rest.", 0, ('"reading_level": "difficult',)),
    "19 expected": Typed("list metrics coherence_score", 0, ("0.60-0.75 at 0.7", "English")),
    "20 another language": Typed(
        "score text --response Der.Hund.und.die.Katze", 0, ('"overall_score": null', "not measured")
    ),
    "29 a record of IFEval": Typed("evaluate ifeval.json", 2, ("leave instruction_id_list out",)),
    "21 two words too few": Typed("score simple P", 2, ("no response: give --response",)),
}


def test_25_the_cost_of_a_sample(
    cli: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none is asked")
    code, out, err = cli("estimate", "memory", "--limit", "2", "--judge", "openai/gpt-4o")
    assert code == 0, err
    dollars = re.search(r"judge calls, about \$([\d.]+)", out + err)
    assert dollars is not None
    assert float(dollars[1]) > 0


def test_26_the_scorers_fields() -> None:
    """As seed 004's API returns them."""
    fields = score_response("simple", *ONE_RESPONSE[2:]).model_dump()
    assert set(fields) == {"overall_score", "subscores", "issues", "passed_checks"}
    assert (fields["overall_score"], fields["subscores"]["word_count"]) == (100.0, 100)


def test_27_affect_that_finds_nothing_says_so_and_personality_is_read(
    cli: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _write("rows.jsonl", {"id": "a", "query": "Why?", "memory": {"sleep": "5 h"},
                          "personality": {"openness": 0.9}})  # fmt: skip
    job = {"suite": "memory", "dataset": "rows.jsonl", "metrics": ["lexical_diversity", "empathy"],
           "candidates": [{"name": "none", "baseline": "none"}], "executor": "local"}  # fmt: skip
    Path("job.yaml").write_text(yaml.safe_dump(job))
    weights = ("--affect", "on", "--speech-weight", "0.7", "--text-weight", "0.3")
    code, out, err = cli("run", "job.yaml", *weights)
    assert code == 0, err
    assert "the emotion of 100% of samples is not available: it needs" in " ".join(out.split())
    (row,) = me.open_run("latest").folder.each()
    assert row.sample.traits == {"openness": 0.9}


def test_28_not_read_counts_as_half_and_decides_so(cli: Call, folder: Path) -> None:
    """Seed 002: 'Default to 0.5 if parsing fails'; one of six is not read."""
    unread = "    if 'worthless' in str(messages):\n        return 'I cannot say.'\n"
    head, body = Path("judge.py").read_text("utf-8").splitlines(keepends=True)
    Path("judge.py").write_text(head + unread + body)
    rows = json.loads(Path("companion.json").read_text("utf-8"))
    rows[0]["response"] = "worthless"
    Path("companion.json").write_text(json.dumps(rows))
    words = "evaluate companion.json --suite companion --judge judge.py:ask --full"
    code, out, err = cli(*words.split(), "--set", "judging.on_judge_failure=default")
    assert code == 0, out + err
    decided = out[out.index("DECISIONS") :]
    assert [line.split()[1:5] for line in decided.splitlines()[3:9:5]] == [
        ["basic", "0.5000", "adequate", "needs"],
        ["demographics", "0.8000", "good", "deploy"],
    ]
    assert "all scenarios: A/B candidate" in decided
    assert "undecided" not in decided


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, "utf-8")
    _write("rows.jsonl", *ROWS)
    _write("pred/m/hotpotqa.jsonl", PRED, {**PRED, "answers": ["Rome"]})
    _write("pred/m/trec.jsonl", {**PRED, "all_classes": ["Paris", "Rome"], "answers": ["Rome"]})
    return tmp_path


def _write(name: str, *rows: dict[str, Any]) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


@pytest.mark.parametrize("typed", TYPED.values(), ids=TYPED)
def test_what_is_typed_works_or_leads_to_what_does(typed: Typed, cli: Call, folder: Path) -> None:
    code, out, err = cli(*typed.words.split())
    assert code == typed.code, out + err
    assert [words for words in typed.shows if words not in out + err] == []


def test_22_the_scorer_of_one_response(cli: Call) -> None:
    code, out, _ = cli(*ONE_RESPONSE)
    assert (code, json.loads(out)["overall_score"]) == (0, 100.0)
    assert cli(*ONE_RESPONSE, "more")[0] == 2


def test_23_rows_without_a_question_in_python(folder: Path) -> None:
    done = me.evaluate(ROWS, ["semantic_correctness", "exact_match"], judge="rules", quiet=True)
    by_task = {row["task"]: row["semantic_correctness"] for row in done.samples().to_pylist()}
    assert by_task == {"longbook_qa_chn": 1.0, "passkey": 1.0, "kv_retrieval": 0.0}


def test_24_the_evaluate_script_of_jobs_takes_results(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("memray_eval.cli.program", lambda: started.append(sys.argv[1:]))
    for words in (["--results", F], ["job.yaml", "--limit", "3"]):
        monkeypatch.setattr(sys, "argv", ["evaluate.py", *words])
        runpy.run_path(str(REPOSITORY / "jobs" / "evaluate.py"), run_name="__main__")
    assert started == [
        ["evaluate", "--results", F],
        ["run", "--set", "cluster.address=auto", "job.yaml", "--limit", "3"],
    ]


def test_a_companions_weights_go_by_scenario(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    weights = {"small_talk": {"conversational_quality": 1.0}}
    job = {"suite": "companion", "dataset": "d", "candidates": [{"name": "a", "model": "m"}]}
    path.write_text(yaml.safe_dump({**job, "companion_weights": weights}))
    assert load_config(path).metric_options.companion_weights == weights
