"""Suites of users': templates, functions, and what is wrong with them."""

from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pydantic import ValidationError

from memray_eval.benchmarks.own import find_suite, suite, suite_name
from memray_eval.config.sections import SuiteTemplate
from memray_eval.errors import ConfigError
from memray_eval.types import Candidate, Message, Prompt, Sample
from tests.build import build_sample

CANDIDATE = Candidate(name="a", model="m")
TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SAMPLE = build_sample(query="And now?", memory={"size": 42}, history=TALK)


def template(prompt: str, **more: Any) -> SuiteTemplate:
    fields = {"name": "shop", "prompt": prompt, "metrics": ["politeness"], **more}
    return SuiteTemplate.model_validate(fields)


def sent(suite: SuiteTemplate, sample: Sample = SAMPLE) -> list[tuple[str, str]]:
    created = find_suite(suite).load().prompt(sample, CANDIDATE)
    return [(message.role, message.content) for message in created.messages]


def test_the_history_goes_before_unless_the_template_writes_it() -> None:
    talk = [("user", "Hi"), ("assistant", "Hello"), ("user", "And now?")]
    before = template("{{ query }}", system="Size {{ memory.size }}.")
    assert sent(before) == [("system", "Size 42."), *talk]
    turns = "{% for turn in history %}{{ turn.role }}: {{ turn.content }}\n{% endfor %}"
    written = template(turns + "{{ query }}")
    assert sent(written) == [("user", "user: Hi\nassistant: Hello\nAnd now?")]


def test_a_long_context_may_lose_its_middle() -> None:
    created = find_suite(template("{{ context }}\n{{ query }}")).load()
    assert created.has_contexts
    assert created.prompt(SAMPLE.model_copy(update={"context": "long"}), CANDIDATE).is_cut
    assert not find_suite(template("{{ query }}")).load().has_contexts


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{{ quary }}", r"suite\.prompt: a sample has no field 'quary'; did you mean 'query'\?"),
        ("{{ metrics }}", "has no field 'metrics'; there are: id, task, query"),
        ("a\n{% if %}", r"suite\.prompt, line 2: Expected an expression"),
        ("nowhere.md", r"suite\.prompt: cannot read nowhere\.md"),
    ],
)
def test_a_template_that_is_wrong_says_where(prompt: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_suite(template(prompt))


@pytest.mark.parametrize(
    "prompt", ["{{ query.__class__.__mro__ }}", "{{ ''.__class__.__base__.__subclasses__() }}"]
)
def test_a_template_reaches_nothing_but_the_sample(prompt: str) -> None:
    from jinja2.exceptions import SecurityError, UndefinedError

    with pytest.raises((SecurityError, UndefinedError)):
        sent(template(prompt))


def test_an_empty_prompt_is_an_error_of_its_sample() -> None:
    with pytest.raises(ValueError, match="the prompt is empty"):
        sent(template("{% if context %}x{% endif %}"), SAMPLE.model_copy(update={"history": ()}))


def test_a_template_needs_metrics() -> None:
    with pytest.raises(ValidationError, match="metrics"):
        template("{{ query }}", metrics=[])


@pytest.mark.parametrize(
    "returned",
    [
        "And now?",
        [{"role": "user", "content": "And now?"}],
        [Message(role="user", content="And now?")],
        Prompt(messages=(Message(role="user", content="And now?"),)),
    ],
)
def test_a_function_returns_a_text_messages_or_a_prompt(returned: Any) -> None:
    created = suite(lambda sample: returned, metrics=["politeness"]).suite
    (message,) = created.prompt(SAMPLE, CANDIDATE).messages
    assert message.content == "And now?"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (7, "prompt returned int, not a text or a list of messages"),
        ({"role": "user"}, "prompt returned dict"),
        ([{"role": "boss", "content": "x"}], "none: role: must be 'system', 'user' or 'assistant'"),
        (["x"], "a message that is none"),
    ],
)
def test_what_is_no_prompt_says_so(returned: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        suite(lambda sample: returned, metrics=[]).suite.prompt(SAMPLE, CANDIDATE)


def test_names() -> None:
    assert suite_name("memory") == "memory"
    assert suite_name("some/My_Suite.py:DESK") == "desk"
    assert suite_name("some/My_Suite.py") == "my_suite"
    assert suite_name(template("{{ query }}")) == "shop"


def test_a_file_alone_has_one_suite_and_a_worker_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "my_suite.py"
    text = "import memray_eval as me\nfirst = me.suite('{{ query }}', metrics=['politeness'])\n"
    path.write_text(text)
    source = find_suite(str(path))
    assert source.load().metrics == ("politeness",)
    assert source.load().name == "my_suite"
    path.unlink()
    carried = cloudpickle.loads(cloudpickle.dumps(source))
    assert carried == source
    assert carried.load().prompt(SAMPLE, CANDIDATE).messages[-1].content == "And now?"
    path.write_text(text + "second = first\n")
    with pytest.raises(ConfigError, match=r"defines 2 suites; name one: my_suite\.py:NAME"):
        find_suite(str(path))
    with pytest.raises(ConfigError, match="templates: suite 'first' takes none"):
        find_suite(f"{path}:first", templates="somewhere")


def test_a_metric_without_a_name_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "my_suite.py"
    path.write_text("import memray_eval as me\ns = me.suite('x', metrics=[lambda s, r: 1])\n")
    with pytest.raises(ConfigError, match="a metric of the suite has no name in the file"):
        find_suite(f"{path}:s")
