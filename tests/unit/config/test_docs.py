"""What pages and shipped jobs say is what the code has: keys, counts, messages, lengths."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import memray_eval.cli.inspect  # noqa: F401 (its commands join the app)
from memray_eval.cli.app import app
from memray_eval.config.loading import (
    find_job,
    job_keys,
    job_reference,
    job_schema,
    load_config,
    shipped_jobs,
)
from memray_eval.errors import ConfigError
from memray_eval.execution.prepare.resolve import resolve_reading
from tests.conftest import REPOSITORY
from tests.unit.config.test_schema import MINIMAL
from tests.unit.datasets.builders import read

MOST = 18  # the median of a page
_HIDDEN = {".venv", "node_modules", ".git", "data", "results"}
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2[^\n]*$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^|\n)\n(?: {4}[^\n]*\n|\n(?= {4}))+")
_NO_TEXT = re.compile(r"^(#|\||\[[^\]]+\]:|!\[|[-=|: ]+$)")
_ITEM = re.compile(r"^\s*([-*+]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[A-Z`\"'(*_\[0-9])")


def pages() -> list[Path]:
    """The pages of the repository for people, READMEs and others."""
    paths = REPOSITORY.rglob("*.md")
    return sorted(p for p in paths if not _HIDDEN & set(p.relative_to(REPOSITORY).parts))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown. Code, headings, tables, links' addresses and comments
    are none; a piece of code in a line counts as one word; an item of a list ends a sentence."""
    text = _FENCE.sub("\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))
    text = _INDENTED.sub("\n\n", f"\n{text}\n")
    for paragraph in _paragraphs(text):
        plain = re.sub(r"`[^`]*`", "code", paragraph)
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
        for sentence in _END.split(" ".join(plain.split())):
            if len(re.findall(r"\w+", sentence)) > 1:
                yield sentence


def median_words(page: Path) -> float | None:
    """Words a sentence, in the middle; None for a page with less than five sentences."""
    texts = sentences(page.read_text("utf-8"))
    counts = [sum(bool(re.search(r"\w", word)) for word in text.split()) for text in texts]
    return statistics.median(counts) if len(counts) >= 5 else None


def _paragraphs(text: str) -> Iterator[str]:
    """Lines that belong together: up to an empty one, an item of a list, or what is no text."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_item, is_other = _ITEM.match(line), not line.strip() or _NO_TEXT.match(line.strip())
        if (is_item or is_other) and lines:
            yield " ".join(lines)
            lines = []
        if not is_other:
            lines.append(_ITEM.sub("", line))


LISTS = {"CHANGELOG.md"}  # no page of sentences: an entry a line
READ = [page for page in pages() if page.name not in LISTS]


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_half_of_a_pages_sentences_have_at_most_18_words(page: Path) -> None:
    median = median_words(page)
    assert median is None or median <= MOST, median


def test_every_readme_is_counted() -> None:
    names = [page.relative_to(REPOSITORY).as_posix() for page in READ]
    assert sum(name.endswith("README.md") for name in names) > 15
    assert "memray_eval/report/READING.md" in names


def test_the_readme_of_a_newcomer_has_70_lines() -> None:
    assert len((REPOSITORY / "README.md").read_text("utf-8").splitlines()) <= 70


def test_every_key_is_described() -> None:
    texts = [key.description for key in job_keys()]
    assert all(texts)
    assert len(texts) > 200
    assert not [text for text in texts if len(text) >= 200 or "|" in text]  # a column of the page


def test_the_schema_has_every_description_and_default() -> None:
    schema = job_schema()
    replicas = schema["$defs"]["EngineConfig"]["properties"]["replicas"]
    assert (replicas["default"], replicas["description"]) == (1, "Engines of one model.")
    own = {key.owner.__name__ for key in job_keys()} & schema["$defs"].keys()
    assert len(own) > 10
    for home in (schema, *(schema["$defs"][name] for name in own)):
        assert all("description" in value for value in home["properties"].values()), home["title"]
    assert set(schema["required"]) == {"dataset", "candidates"}


def test_the_page_is_the_one_in_jobs() -> None:
    # memray-eval schema --markdown > jobs/keys.md
    assert (REPOSITORY / "jobs" / "keys.md").read_text("utf-8") == job_reference()


def test_commands_print_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    app(["schema"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["title"] == "Job"
    job = tmp_path / "job.yaml"
    job.write_text(f"{MINIMAL}judging: {{tries: 2}}\nlimit: 7\n")
    words = ["config", "show", str(job), "--set", "engine.replicas=3", "--set", "limit=4"]
    app(words, standalone_mode=False)
    text = capsys.readouterr().out
    assert "  replicas: 3    # --set\n" in text
    assert "  tries: 2    # job.yaml\n" in text
    assert "limit: 4    # --set\n" in text
    assert "\ntolerance: 0.05\n" in text
    shown = yaml.safe_load(text)
    assert shown["dataset"] == str(tmp_path / "data")
    assert (shown["engine"]["replicas"], shown["judging"]["tries"]) == (3, 2)


def test_a_name_is_a_shipped_job_if_no_file_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped_jobs()["quickstart"] == REPOSITORY / "jobs" / "quickstart.yaml"
    job = load_config(Path("quickstart"))
    assert job.dataset == str(REPOSITORY / "dataset" / "samples")
    assert job.out == str(tmp_path / "results")
    (tmp_path / "quickstart").write_text(MINIMAL)
    assert load_config(Path("quickstart")).dataset == str(tmp_path / "data")
    assert find_job(Path("jobs/quickstart")) == Path("jobs/quickstart")


@pytest.mark.parametrize(
    ("name", "advice"),
    [("quickstat", "did you mean 'quickstart'"), ("zzzz", "there are: .*quickstart.*names alone")],
)
def test_a_job_that_is_not_there_names_those_that_are(name: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=f"no file {name}; .*{advice}"):
        load_config(Path(name))


NEW_SUITES = ("mrcr", "graphwalks", "babilong", "helmet", "long-context-2026")


@pytest.mark.parametrize("name", NEW_SUITES)
def test_the_shipped_long_context_datasets_are_valid(name: str) -> None:
    spec = resolve_reading(load_config(Path(name)))
    result = read(spec.dataset, spec.reader)
    assert result.problems == []
    assert result.scan.n_samples > 1


def test_of_many_tasks_the_nearest_one_is_named() -> None:
    job = load_config(Path("long-context-2026"), {"tasks": ["mrcr:3needle"]})
    with pytest.raises(ConfigError, match=r"no task 'mrcr:3needle'; did you mean 'mrcr:.needle'\?"):
        resolve_reading(job)


PAGE = REPOSITORY / "jobs" / "TROUBLESHOOTING.md"


def test_every_quoted_message_is_in_the_sources() -> None:
    quoted = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(quoted) >= 20
    files = (REPOSITORY / "memray_eval").rglob("*.py")
    sources = "\n".join(path.read_text("utf-8") for path in files)
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)  # a message goes on in the next line
    assert [words for words in quoted if words not in joined] == []
