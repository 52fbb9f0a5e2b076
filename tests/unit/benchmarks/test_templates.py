"""The benchmarks' own templates, in files that the user has of them."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate
from tests.unit.benchmarks.records import PLAIN, sample_of, sent

PROMPTS, LENGTHS = "dataset2prompt.json", "dataset2maxlen.json"
FILES = {
    "prompts": PROMPTS,
    "lengths": LENGTHS,
    "at_once": "0shot.txt",
    "thinking": "0shot_cot.txt",
}
RECORD = {"_id": "a", "input": "q", "context": "c", "answers": ["a"], "length": 1}
THINKING = Candidate(name="a", model="m", prompt="cot")


def write(folder: Path, **files: Any) -> str:
    """A folder with these of the FILES."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / FILES[name]).write_text(text, "utf-8")
    return str(folder)


def test_longbenchs_templates_and_lengths_replace_ours(tmp_path: Path) -> None:
    prompts = {"gov_report": "Report:{context}\nSummary:", "samsum": "{context}\n{input}"}
    path = write(tmp_path, prompts=prompts, lengths={"samsum": 7})
    suite = get_suite("longbench", path)
    assert set(suite.tasks) == set(prompts)
    report = sample_of("longbench", dataset="gov_report", input="")
    prompt = suite.prompt(report, PLAIN)
    assert sent(report, templates=path) == "Report:The Harkers built it.\nSummary:"
    assert prompt.max_tokens == 512
    dialogue = sample_of("longbench", dataset="samsum", input="Dialogue: hi {context}")
    assert sent(dialogue, templates=path) == "The Harkers built it.\nDialogue: hi {context}"
    plain = suite.prompt(dialogue, PLAIN)
    assert (plain.max_tokens, plain.is_chat, plain.stop) == (7, False, ("\n",))
    assert pickle.loads(pickle.dumps(suite.prompt))(report, PLAIN) == prompt
    assert get_suite("longbench", f"{path}/{PROMPTS}").prompt(report, PLAIN) == prompt
    with pytest.raises(ValueError, match=rf"{PROMPTS} has no template for task 'hotpotqa'; it has"):
        suite.adapt({"dataset": "hotpotqa"} | RECORD, "x")


def test_longbench2s_templates_make_the_variants(tmp_path: Path) -> None:
    path = write(tmp_path, at_once="Costs $5.\n$DOC$\n$Q$ $C_A$/$C_B$/$C_C$/$C_D$")
    suite, sample = get_suite("longbench2", path), sample_of("longbench2")
    text = "Costs $5.\nBen won. $C_A$\nWho won? Ann/Ben $Q$/Cy {context}/Di"
    assert sent(sample, templates=path) == text
    prompt = suite.prompt(sample, PLAIN)
    assert prompt.max_tokens == 128
    assert pickle.loads(pickle.dumps(suite.prompt))(sample, PLAIN) == prompt
    with pytest.raises(ConfigError, match="'longbench2' has no prompt 'cot'; it has: default"):
        check_prompts(suite, (THINKING,))
    write(tmp_path, thinking="$DOC$ Think.")
    assert get_suite("longbench2", path).prompts == ("default", "cot")
    assert sent(sample, THINKING, path) == "Ben won. $C_A$ Think."
    assert get_suite("longbench2", f"{path}/0shot_cot.txt").prompts == ("cot",)


@pytest.mark.parametrize(
    ("suite", "files", "message"),
    [
        ("longbench", {"prompts": {"qasper": "{input}"}}, f"{PROMPTS}: qasper: has no place cont"),
        ("longbench", {"prompts": {"qasper": "{context} {question}"}},
         "qasper: has a place question that nothing fills; there are: context, input"),
        ("longbench", {"prompts": {"qasper": '{context} {"a": 1}'}}, "a brace that is text is"),
        ("longbench", {"prompts": {"qasper": "{context} }"}}, f"{PROMPTS}: qasper: "),
        ("longbench", {"prompts": {"qasper": 128}}, "qasper: must be text, not int"),
        ("longbench", {"prompts": {"poetry": "{context}"}}, "no task 'poetry'; there are: "),
        ("longbench", {"prompts": '{"qasper": '}, f"{PROMPTS} is broken: Expecting value: line 1"),
        ("longbench", {"prompts": "[]"}, f"{PROMPTS} must map each task to its value"),
        ("longbench", {"prompts": {"qasper": "{context}"}, "lengths": {"qasper": 0}},
         f"{LENGTHS}: qasper: must be a number of tokens above 0, not 0"),
        ("longbench", {}, "has no dataset2prompt.json; LongBench keeps it in its folder config"),
        ("infinitebench", {}, "templates: suite 'infinitebench' takes none; leave the key out"),
        ("longbench2", {}, "has neither of 0shot.txt, 0shot_cot.txt"),
        ("longbench2", {"at_once": "$Q$"}, "0shot.txt: has no place DOC"),
    ],
)  # fmt: skip
def test_broken_templates_are_named_with_file_and_task(
    tmp_path: Path, suite: str, files: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        get_suite(suite, write(tmp_path, **files))
    assert message in str(raised.value)


def test_absent_files_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing at .*none"):
        get_suite("longbench", str(tmp_path / "none"))
    (tmp_path / "0shot.txt").write_bytes(b"$DOC$ \xff")
    with pytest.raises(ConfigError, match=r"cannot read .*0shot.txt"):
        get_suite("longbench2", str(tmp_path))
