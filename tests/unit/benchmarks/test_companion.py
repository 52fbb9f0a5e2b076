"""The companion suite: its prompts, its scenarios, and what its scenario files may not hold."""

from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks import check_prompts, get_suite
from memray_eval.benchmarks.companion import PROMPTS, SPOKEN_TOKENS, adapt
from memray_eval.datasets.parsing import InvalidSample
from memray_eval.datasets.reading import SampleReader
from memray_eval.datasets.sources import Entry
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate
from tests.build import build_sample
from tests.unit.datasets.builders import broken_rows

SUITE = get_suite("companion")
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


def candidate(prompt: str) -> Candidate:
    return Candidate(name="a", model="m", prompt=prompt)


def broken(**fields: Any) -> str:
    entry = Entry(0, 1, "f", "line 1", {"id": "x", "query": "q", "scenario": "basic", **fields}, 1)
    with pytest.raises(InvalidSample) as raised:
        SampleReader(suite="companion", adapt=adapt).sample(entry)
    return "; ".join(f"{fault.field} {fault.message}".strip() for fault in raised.value.faults)


def test_the_system_prompt_then_what_is_known_the_history_and_the_query() -> None:
    sample = build_sample(query="And now?", memory={"age": 22}, history=TALK)
    prompted = SUITE.prompt(sample, candidate("default"))
    system, *turns, query = prompted.messages
    assert system.content.startswith(PROMPTS["default"])
    assert system.content.endswith("What you know of the person:\nage: 22")
    assert [turn.model_dump() for turn in turns] == TALK
    assert (query.role, query.content, prompted.max_tokens) == ("user", "And now?", SPOKEN_TOKENS)
    unknown = SUITE.prompt(sample.model_copy(update={"memory": {}}), candidate("plain"))
    assert unknown.messages[0].content == PROMPTS["plain"]


def test_a_prompt_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("\ufeffSpeak like a sailor.\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    for path in ("mine.txt", "./mine.txt", str(tmp_path / "mine.txt")):
        check_prompts(SUITE, (candidate(path), candidate("default")))
        system, _ = SUITE.prompt(build_sample(), candidate(path)).messages
        assert system.content == "Speak like a sailor."


def test_prompts_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n", "utf-8")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    none = r"candidate 'a': prompt: no file prompts/none\.txt; suite 'companion' has: default"
    for prompt, message in (
        ("terse", "has no prompt 'terse'; it has: default, plain, or the path of a text file"),
        ("prompts/none.txt", none),
        (f"{tmp_path}/empty.txt", r"empty\.txt is empty"),
        (f"{tmp_path}/latin.txt", r"cannot read .*latin\.txt"),
        (f"{tmp_path}/", "cannot read"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_prompts(SUITE, (candidate(prompt),))


@pytest.mark.parametrize(("fields", "_", "message"), broken_rows("companion"))
def test_a_broken_scenario_names_its_field(fields: dict[str, Any], _: str, message: str) -> None:
    assert message in broken(**fields)


def test_a_sample_without_a_scenario_is_read_as_it_is() -> None:
    raw = {"id": "x", "query": "q"}
    assert adapt(raw, "f") is raw
