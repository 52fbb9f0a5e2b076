"""Which judge scores which metric: never silently."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from memray_eval.benchmarks import all_suites
from memray_eval.config.environment import environment_url
from memray_eval.config.loading import load_config
from memray_eval.config.schema import RunConfig
from memray_eval.config.sections import JudgingConfig, NamedServer, RateLimits
from memray_eval.errors import (
    ConfigError,
    JudgeError,
    JudgeStalled,
    QuotaExhausted,
    Refused,
    Throttled,
    Unavailable,
    UnknownModel,
)
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.prices import FREE, Price, family, load_table
from memray_eval.judges.router import (
    FallbackJudge,
    JudgeAssignment,
    Roster,
    assign_judges,
    calls_a_record,
    unpriced,
)
from memray_eval.metric import NEEDS_JUDGE, JudgedMetric, Metric
from memray_eval.metrics import all_metrics, pick
from memray_eval.ports import VOTERS, Verdict
from memray_eval.types import Usage
from tests.fake_judges import FakeJudge

OPUS, GPT4O, FLASH = "anthropic/claude-opus-4-5", "openai/gpt-4o", "google/gemini-2.0-flash"
OPUS_5 = "anthropic/claude-opus-5-5"
METRICS = pick(["memory_utilization", "empathy", "relevance"])
CORRECTNESS = pick(["semantic_correctness", "empathy"])
EVERYWHERE = {"base_urls": {"openai": "http://x/v1", "anthropic": "http://x", "google": "http://x"}}


def assign(
    judge: Any,
    metrics: Sequence[Metric] = METRICS,
    tasks: Sequence[str] = (),
    table: Path | None = None,
    model: str = "m",
    day: date | None = None,
    kept: Mapping[str, list[str]] = MappingProxyType({}),
    **fields: Any,
) -> dict[str, JudgeAssignment]:
    candidates = [{"name": "a", "model": model}]
    raw = {"dataset": "d", "candidates": candidates, "judge": judge, **fields}
    request, judges = RunConfig.model_validate(raw).judge_request, str(table) if table else None
    return assign_judges(metrics, request, load_table(judges), tasks, day, kept)


def chosen(judge: Any, **judging: Any) -> dict[str, tuple[str, str]]:
    choices = assign(judge, judging=judging)
    return {metric: (choice.judge, choice.why) for metric, choice in choices.items()}


def test_every_preferred_judge_is_in_the_table() -> None:
    judged = [metric for metric in all_metrics().values() if isinstance(metric, JudgedMetric)]
    assert {metric.preferred_judge for metric in judged} <= set(load_table(None).models)


def test_auto_takes_the_preferred_judge_else_a_fallback_with_a_key_else_the_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judges = chosen("auto")
    assert judges["empathy"] == ("rules", f"offline estimate: no key for {GPT4O} or any fallback")
    assert "relevance" not in judges
    own = chosen({"empathy": "openai/mine"}, base_urls={"openai": "http://x/v1"})
    assert own["empathy"] == ("openai/mine", "as configured")
    assert own["memory_utilization"] == (GPT4O, f"fallback: no key for {OPUS}")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    judges = chosen("auto")
    assert judges["empathy"] == (GPT4O, "preferred")
    assert judges["memory_utilization"] == (GPT4O, f"fallback: no key for {OPUS}")
    assert {judge for judge, _ in chosen("rules").values()} == {"rules"}


def test_without_a_judge_metrics_with_an_estimate_alone_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metrics = pick(all_suites()["memory"].metrics)

    def unscored(judge: Any) -> set[str]:
        return {name for name, choice in assign(judge, metrics).items() if choice.needs_judge}

    judged = {metric.name for metric in metrics if isinstance(metric, JudgedMetric)}
    assert unscored("rules") == unscored("auto") == judged - {"memory_utilization"}
    assert NEEDS_JUDGE in str(assign("rules", metrics)["empathy"])
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert unscored("auto") == unscored(GPT4O) == set()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"judge": "gpt-4o"}, "no judge 'gpt-4o'.*PROVIDER/MODEL"),
        ({"judge": "mistral/large"}, "no judge 'mistral/large'"),
        ({"judge": "questions"}, "no judge 'questions'; questions was withdrawn: .*PROVIDER/MODEL"),
        ({"judge": OPUS, "judging": {}}, f"judge {OPUS} needs a key .*ANTHROPIC_API_KEY"),
        ({"judge": {"relevance": GPT4O}}, "'relevance'.* empathy, semantic_correctness"),
        ({"judge": {"empathy": ["rules", GPT4O]}}, "'rules' cannot sit on a jury"),
        ({"judge": {"semantic_correctness/": "rules"}}, "'semantic_correctness/' names no task"),
        ({"judge": "rules", "judging": {"fallbacks": ["gpt"]}}, "no judge 'gpt'"),
        ({"rubrics": {"semantic_correctnes": "strict"}}, "did you mean 'semantic_correctness'"),
        ({"rubrics": {"semantic_correctness/pasky": "strict"}}, "'semantic_.*pasky'.*'passkey'"),
        ({"rubrics": {"semantic_correctness": "kind"}}, "'kind'; write strict, lenient, or"),
        ({"rubrics": {"empathy": "strict"}}, "empathy has no rubric 'strict'; write the path"),
        (
            {"judge": "openai/mine", "judging": {"parameters": {"openai/mime": {"top_p": 1}}}},
            "'openai/mime'.* openai/mine",
        ),
    ],
)
def test_a_wrong_name_is_refused_with_those_that_there_are(
    fields: dict[str, Any], problem: str
) -> None:
    judging = {**EVERYWHERE, **fields["judging"]} if fields.get("judging") else EVERYWHERE
    judging = {} if fields.get("judging") == {} else judging
    wrong = {"judge": "openai/m", **fields, "judging": judging}
    with pytest.raises(ConfigError, match=problem):
        assign(metrics=CORRECTNESS, tasks=("passkey", "vt"), **wrong)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot read"), (b" \n", "is empty"), (b"\xff\xfe\x00", "cannot read")],
)
def test_a_rubric_that_cannot_be_read_is_refused(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    path = tmp_path / "rubric.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as raised:
        assign(
            "openai/m", CORRECTNESS, judging=EVERYWHERE, rubrics={"semantic_correctness": str(path)}
        )
    assert str(path) in str(raised.value)


def test_parameters_of_judges_that_are_asked_or_known_are_taken() -> None:
    parameters = {"openai/mine": {"top_p": 1}, GPT4O: {"top_p": 1}}
    assert chosen("openai/mine", parameters=parameters, **EVERYWHERE)


def test_a_jury_is_named_whole_and_may_leave_out_the_candidates_family() -> None:
    jury = [GPT4O, OPUS, FLASH]
    assert chosen({"empathy": jury}, **EVERYWHERE)["empathy"] == (GPT4O, "jury, median")
    judging = {**EVERYWHERE, "exclude_own_family": True, "vote": "majority"}
    choice = assign({"empathy": jury}, model="gpt-4o-mini", judging=judging)["empathy"]
    assert choice.judges == (OPUS, FLASH)
    why = f"jury, majority; without {GPT4O}, of a candidate's family"
    assert str(choice) == f"{OPUS} + {FLASH} ({why})"
    with pytest.raises(ConfigError, match="no juror is left for empathy"):
        assign({"empathy": [GPT4O]}, model="gpt-4o-mini", judging=judging)


@pytest.mark.parametrize(
    ("model", "its_family"),
    [
        ("BioMistral/BioMistral-7B", "mistral"),
        ("medllama2", "meta"),
        ("deepseekv3", "deepseek"),
        ("google/embeddinggemma-300m", "google"),
        ("ollama/phi3", ""),
        ("AIDC-AI/Marco-o1", ""),
        ("openai/o3-mini", "openai"),
        ("openai/Qwen3-8B", "qwen"),
        ("meta-llama/Llama-3.1-8B", "meta"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen"),
        ("some/omnigpteron", ""),
        ("acme/llama-o1", "meta"),
    ],
)
def test_a_family_goes_by_whole_words(model: str, its_family: str) -> None:
    assert family(model) == its_family


def test_the_judge_table_has_a_family_that_the_name_does_not_show(tmp_path: Path) -> None:
    table = tmp_path / "judges.yaml"
    table.write_text("models: {openai/house-7b: {family: openai}}")
    jury, judging = ["openai/house-7b", OPUS], {**EVERYWHERE, "exclude_own_family": True}
    choices = assign({"empathy": jury}, table=table, model="gpt-4o-mini", judging=judging)
    assert choices["empathy"].judges == (OPUS,)


def routed(judge: Any = "openai/m", **fields: Any) -> dict[str, JudgeAssignment]:
    judging = {**EVERYWHERE, **fields.pop("judging", {})}
    tasks = fields.pop("tasks", ("passkey", "vt"))
    return assign(judge, CORRECTNESS, tasks, judging=judging, **fields)


def test_a_metric_with_rubrics_goes_by_its_first_unless_another_is_named() -> None:
    assert {key: str(choice) for key, choice in routed().items()} == {
        "semantic_correctness": "openai/m (as configured; rubric strict)",
        "empathy": "openai/m (as configured)",
    }
    lenient = routed(rubrics={"semantic_correctness": "lenient"})["semantic_correctness"]
    assert str(lenient) == "openai/m (as configured; rubric lenient)"
    assert lenient.rubric is not None
    assert lenient.rubric.text.startswith("Be lenient.")


def test_a_task_has_a_judge_and_a_rubric_of_its_own() -> None:
    judge = {
        "semantic_correctness": "openai/big",
        "semantic_correctness/passkey": "rules",
        "empathy": "rules",
    }
    choices = routed(judge, rubrics={"semantic_correctness/vt": "lenient"})
    assert {
        key: (choice.judge, choice.task, choice.asked_by) for key, choice in choices.items()
    } == {
        "semantic_correctness": ("openai/big", "", "strict"),
        "semantic_correctness/passkey": ("rules", "passkey", ""),
        "semantic_correctness/vt": ("openai/big", "vt", "lenient"),
        "empathy": ("rules", "", ""),
    }
    assert calls_a_record(choices, repeats=2) == 2
    # No suite names its tasks
    assert "semantic_correctness/other" in routed({"semantic_correctness/other": "rules"}, tasks=())


def test_metrics_that_share_a_judgment_make_one_call_a_record() -> None:
    metrics = pick([*all_suites()["companion"].metrics, "empathy"])
    choices = assign(["openai/a", "openai/b"], metrics, judging=EVERYWHERE)
    n_judged = sum(choice.shares_call_of == metric for metric, choice in choices.items())
    assert (len(choices), n_judged, calls_a_record(choices, repeats=3)) == (8, 2, 2 * 2 * 3)


def test_a_rubric_of_ones_own_is_a_file_beside_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "law.txt").write_text("Mind the paragraph's number.\n")
    (tmp_path / "job.yaml").write_text(
        "dataset: d\njudge: openai/m\njudging: {base_urls: {openai: http://x/v1}}\ncandidates: "
        "[{name: a, model: m}]\n"
        "rubrics: {semantic_correctness: law.txt, semantic_correctness/vt: lenient}\n"
    )
    monkeypatch.chdir("/")
    config = load_config(tmp_path / "job.yaml")
    expected = {"semantic_correctness": f"{tmp_path}/law.txt", "semantic_correctness/vt": "lenient"}
    assert config.rubrics == expected
    choice = assign_judges(CORRECTNESS, config.judge_request, load_table(None))[
        "semantic_correctness"
    ]
    assert choice.rubric is not None
    assert (choice.rubric.name, choice.rubric.text) == ("law.txt", "Mind the paragraph's number.")
    monkeypatch.chdir(tmp_path)
    changed = load_config(
        tmp_path / "job.yaml", settings=["rubrics.semantic_correctness/vt=./law.txt"]
    )
    assert changed.rubrics["semantic_correctness/vt"] == f"{tmp_path}/law.txt"


def test_a_run_that_only_generates_does_not_mind_rubrics() -> None:
    assert assign("rules", (), rubrics={"semantic_correctness": "lenient"}) == {}


def test_rules_that_need_embeddings_cannot_be_mixed_with_a_judge() -> None:
    judge = {"memory_utilization": "openai/m", "memory_utilization/x": "rules"}
    with pytest.raises(ConfigError, match="memory_utilization cannot go by rules for some tasks"):
        assign(judge, judging=EVERYWHERE)


def test_a_substitute_of_a_verdict_is_named_beforehand() -> None:
    choices = routed(judging={"on_judge_failure": "string_match"})
    assert str(choices["semantic_correctness"]).endswith("without a verdict string_match)")
    # It has no such way: its failures are errors
    assert str(choices["empathy"]) == "openai/m (as configured)"
    with pytest.raises(ConfigError, match="zero means nothing for memory_utilization, empathy"):
        chosen("rules", on_judge_failure="zero")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models: {a/b: {price: 1}}", r"models\.a/b\.price: no such key"),
        (
            "models: {openai/a: {successor: openai/b}, openai/b: {successor: openai/a}}",
            "openai/a -> openai/b -> openai/a: the line has no end",
        ),
        (
            "models: {openai/a: {successor: b}}",
            "the successor 'b' of openai/a is no PROVIDER/MODEL",
        ),
        (None, "cannot read the judge table"),
    ],
)
def test_a_table_of_ones_own_that_is_wrong_is_refused(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    if text is not None:
        (tmp_path / "judges.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        load_table(str(tmp_path / "judges.yaml"))


class Nothing(BaseModel):
    """A judgment without a field."""


def fallback(*outcomes: BaseModel | JudgeError) -> Awaitable[Verdict]:
    """The verdict of judges a, b, each of which is asked if the one before gives none."""
    paid = {"usage": Usage(input_tokens=5), "cost_usd": 1.0}
    first, *others = [
        FakeJudge(outcome, name, **paid) for outcome, name in zip(outcomes, "ab", strict=False)
    ]
    return FallbackJudge([first.name], lambda name: first, others).judge([], Nothing)


def failing(error: JudgeError) -> JudgeError:
    error.input_tokens, error.cost_usd, error.calls = 3, 0.25, 2
    return error


async def test_a_fallback_judges_when_the_first_cannot_and_both_are_paid_for() -> None:
    verdict = await fallback(failing(Unavailable("down")), Nothing())
    assert (verdict.judge, verdict.usage.input_tokens, verdict.cost_usd) == ("b", 8, 1.25)
    assert verdict.calls == 2 + 1  # those of the first were answered too


async def test_a_refusal_is_final_and_the_last_error_is_told() -> None:
    with pytest.raises(Refused):
        await fallback(Refused("no"), Nothing())
    with pytest.raises(Unavailable, match="down too") as raised:
        await fallback(failing(Unavailable("down")), failing(Unavailable("down too")))
    assert (raised.value.input_tokens, raised.value.cost_usd) == (6, 0.5)
    assert raised.value.calls == 2 + 2


@pytest.mark.parametrize("kind", [QuotaExhausted, Throttled])
async def test_a_stalled_judge_ends_the_run_unless_another_can_be_asked(
    kind: type[JudgeError],
) -> None:
    stalled = kind("no call")
    with pytest.raises(kind, match="no call"):
        await fallback(stalled)
    stalled.is_stalled = True
    with pytest.raises(JudgeStalled, match="a: no call"):
        await fallback(stalled)
    with pytest.raises(JudgeError, match="else"):
        await fallback(stalled, JudgeError("else"))


GONE, DOWN, STALLED = UnknownModel("404: no such model"), Unavailable("down"), Throttled("no call")
STALLED.is_stalled = True


@pytest.mark.parametrize(
    ("lines", "bad", "asked", "votes", "fallbacks"),
    [
        # Two that are gone have one successor: it votes once, in the row of the 404s and later
        (["a h", "b h a"], {"a": GONE, "b": GONE}, ["a b h", "h"], ["h", "h votes already; n"], ""),
        (["a h", "b h i"], {"a": GONE, "b": GONE}, ["a b h i", "h i"], ["h", "i"], ""),
        (["a b h", "b h"], {"a": GONE}, ["a b h", "h b"], ["h", "b"], ""),
        (["a h", "b h", "h"], {"a": GONE}, ["a b h", "b h"], ["h votes already; n", "b", "h"], ""),
        (["a h"], {"a": GONE, "h": GONE}, ["a h", ""], ["no model is left of a, h; n"], ""),
        # A fallback is no second vote of a juror, nor the vote of two
        (["a", "b"], {"a": DOWN}, ["a b"] * 2, ["down", "b"], "b"),
        (["a", "b", "h"], {"a": DOWN, "b": DOWN}, ["a b h"], ["down", "down", "h"], "h"),
        (["a", "b"], {"a": DOWN, "b": DOWN}, ["a b h"] * 2, ["h", "down"], "h"),
        (["a", "b"], {"a": DOWN, "b": DOWN}, ["a b h i"], ["h", "i"], "h i"),
        (["a", "a"], {"a": DOWN}, ["a a h h"], ["h", "h"], "h"),
        (["a", "b"], {"a": STALLED}, ["a b"], ["no call", "b"], "b"),
        # One that has judged in the place of a model that is gone is not asked twice
        (["a h i"], {"a": GONE, "h": DOWN}, ["a h", "h"], ["down"], "h"),
        (["a h"], {"a": GONE, "h": STALLED}, ["a h"], ["h: no call"], "h"),
    ],
)
async def test_each_model_votes_for_one_juror(
    lines: list[str], bad: dict[str, JudgeError], asked: list[str], votes: list[str], fallbacks: str
) -> None:
    judges = {name: FakeJudge(bad.get(name, Nothing()), name) for name in "abhi"}
    rest = [judges[name] for name in fallbacks.split()]
    gone, jurors, ask = set[str](), [line[0] for line in lines], judges.__getitem__

    async def vote(line: str) -> str:
        judge = FallbackJudge(line.split(), ask, rest, jurors, gone, advice=lambda: "n")
        try:
            return (await judge.judge([], Nothing)).judge
        except (JudgeError, JudgeStalled) as error:
            return str(error)

    for names in asked:  # a row each
        VOTERS.set({})
        got = await asyncio.gather(*map(vote, lines))
        assert all(text.endswith(end) for text, end in zip(got, votes, strict=True)), got
        assert sorted(names.split()) == sorted(n for n, judge in judges.items() for _ in judge.seen)
        for judge in judges.values():
            judge.seen.clear()


@pytest.mark.parametrize(
    ("judge", "variable"),
    [
        (GPT4O, "OPENAI_BASE_URL"),
        (OPUS, "ANTHROPIC_BASE_URL"),
        ("google/gemini-2.0-flash", "GOOGLE_GEMINI_BASE_URL"),
    ],
)
def test_a_server_that_the_environment_names_is_ones_own(
    judge: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No default account's limits, and no key but the one beside it: as with judging.base_urls,
    which go first."""
    config, table, provider = JudgingConfig(), load_table(None), judge.partition("/")[0]
    assert (
        JudgeAccount(judge, config, table).limits[0] == table.models[judge].limits != RateLimits()
    )
    monkeypatch.setenv(variable, "http://10.0.0.5:8000/v1/")
    assert JudgeAccount(judge, config, table).limits == (RateLimits(), False)
    assert chosen({"empathy": judge})["empathy"] == (judge, "as configured"), "it needs no key"
    assert not JudgeAccount(judge, config, load_table(None)).may_bill
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", "sk-beside")
    assert JudgeAccount(judge, config, table).key == "sk-beside"
    first = JudgingConfig.model_validate(EVERYWHERE)
    assert JudgeAccount(judge, first, table).own_server == EVERYWHERE["base_urls"][provider]
    own = config.model_copy(update={"limits": {judge: RateLimits(requests_per_min=7)}})
    assert JudgeAccount(judge, own, table).limits == (RateLimits(requests_per_min=7), True)


@pytest.mark.parametrize(
    ("url", "is_own"),
    [
        ("", False),
        ("  ", False),
        ("https://api.openai.com/v1", False),
        ("https://eu.api.openai.com/v1", False),
        ("https://api.openai.com.example.org/v1", True),
        ("https://proxy.example.org/openai", True),
        ("http://[::1", True),
    ],
)
def test_the_provider_itself_is_no_server_of_ones_own(
    url: str, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    assert environment_url("openai") == (url if is_own else None)


def test_a_price_comes_from_the_config_else_from_the_table_and_none_is_not_nothing(
    tmp_path: Path,
) -> None:
    table = tmp_path / "judges.yaml"
    table.write_text(
        "models: {openai/a: {input_usd: 1, output_usd: 2}, openai/b: {parameters: {}}, openai/c: "
        "{input_usd: 0, output_usd: 0}}"
    )
    config = JudgingConfig(
        price={
            "openai/x": {"input_usd": 3, "output_usd": 4},
            "openai/a": {"input_usd": 5, "output_usd": 6},
        },
        servers={
            "mine": NamedServer(code="judge.py"),
            "lab": NamedServer(url="http://localhost/v1"),
        },
    )
    prices = load_table(str(table))
    expected = {
        "openai/x": Price(3, 4),
        "openai/a": Price(5, 6),
        "openai/b": None,
        "openai/c": FREE,
        "openai/never-heard-of": None,
        "embedded": FREE,
        "mine/judge": FREE,
        "lab/m": None,
    }
    assert {name: JudgeAccount(name, config, prices).price for name in expected} == expected
    assert JudgeAccount("openai/a", JudgingConfig(), prices).price == Price(1, 2)
    choices = [
        JudgeAssignment(metric="m", judge="openai/b", why="", others=("openai/x", "rules")),
        JudgeAssignment(metric="n", judge="rules", why=""),
    ]
    with_fallback = config.model_copy(update={"fallbacks": ("openai/b", "openai/z")})
    assert unpriced(choices, with_fallback, prices) == ["openai/b", "openai/z"]
    assert unpriced(choices[1:], with_fallback, prices) == []


@pytest.mark.parametrize(
    ("url", "bills"),
    [
        ("http://127.0.0.1:8000/v1", False),
        ("http://localhost:8000/v1", False),
        ("http://192.168.1.5/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://vllm:8000/v1", False),
        ("http://vllm.default.svc.cluster.local/v1", False),
        ("https://openrouter.ai/api/v1", True),
        ("http://8.8.8.8/v1", True),
        ("nonsense", True),
    ],
)
def test_a_server_of_ones_own_network_bills_nobody(url: str, bills: bool) -> None:
    config = JudgingConfig(base_urls={"openai": url})
    assert JudgeAccount("openai/m", config, load_table(None)).may_bill is bills
    assert JudgeAccount("openai/m", JudgingConfig(), load_table(None)).may_bill


OFF_ON = date(2027, 1, 14)  # gpt-4o and gpt-4o-mini


def judged_on(day: date, judge: Any = "auto", model: str = "m", **options: Any) -> JudgeAssignment:
    """Of empathy, whose preferred judge is openai/gpt-4o."""
    return assign(judge, pick(["empathy"]), model=model, day=day, **options)["empathy"]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in ("OPENAI", "ANTHROPIC", "SECOND"):
        monkeypatch.setenv(f"{provider}_API_KEY", "sk-test")


@pytest.mark.parametrize("judge", ["auto", "openai/gpt-4o"])
def test_a_retired_judge_has_its_successor_from_its_day_on(
    monkeypatch: pytest.MonkeyPatch, judge: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    before, after = judged_on(OFF_ON - timedelta(1), judge), judged_on(OFF_ON, judge)
    assert (before.judge, before.successions) == ("openai/gpt-4o", ())
    assert before.heirs == {"openai/gpt-4o": ("openai/gpt-6-luna",)}
    assert after.judge == "openai/gpt-6-luna"
    assert [str(succession) for succession in after.successions] == [
        "openai/gpt-4o is off since 2027-01-14: openai/gpt-6-luna judges in its place"
    ]
    assert "in place of openai/gpt-4o, off since 2027-01-14" in str(after)
    advise = Roster(JudgingConfig(), load_table(None), OFF_ON).advice
    named = advise("openai/gpt-4o").split()[-1]
    assert advise("openai/gpt-4o", {named}).split()[-1] not in (named, "judge")


OWN_SERVER = {"judging": {"base_urls": {"openai": "http://x/v1"}}}
SECOND = {"servers": {"second": {"provider": "openai", "api_key_env": "SECOND_API_KEY"}}}
LATER = date(2027, 4, 1)


@pytest.mark.parametrize(
    ("day", "judge", "options", "judges"),
    [
        # Without a successor the fallback order is gone through
        (LATER, "openai/gpt-5.4-nano", {}, [OPUS]),
        (OFF_ON, "openai/gpt-4p", {}, ["openai/gpt-4p"]),
        # A server of one's own says itself what it has
        (OFF_ON, "auto", OWN_SERVER, ["openai/gpt-4o"]),
        (OFF_ON, "second/gpt-4o", SECOND, ["second/gpt-6-luna"]),
        # Two jurors with one successor have one vote
        (OFF_ON, [GPT4O, OPUS_5, "openai/gpt-4o-mini"], {}, ["openai/gpt-6-luna", OPUS_5]),
    ],
)
@pytest.mark.usefixtures("keys")
def test_who_judges_in_the_place_of_a_model_that_is_off(
    day: date, judge: Any, options: dict[str, Any], judges: list[str]
) -> None:
    choice, named = judged_on(day, judge, **options), [judge] if isinstance(judge, str) else judge
    assert list(choice.judges) == judges
    replaced = [role for role in named if role not in (*judges, "auto")]
    assert [succession.role for succession in choice.successions] == replaced


@pytest.mark.usefixtures("keys")
def test_heirs_are_those_of_the_table_but_for_the_candidates_family() -> None:
    heirs = judged_on(OFF_ON, "openai/gpt-5.2").heirs["openai/gpt-5.2"]
    assert heirs == (OPUS, OPUS_5, "openai/gpt-6-luna")
    assert judged_on(OFF_ON, "openai/gpt-4p").heirs == {}
    choice = judged_on(OFF_ON, [OPUS], "gpt-5", judging={"exclude_own_family": True})
    assert choice.heirs[OPUS] == (OPUS_5,)


def test_a_retired_judge_of_which_no_heir_has_a_key_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    table = tmp_path / "judges.yaml"
    table.write_text("models: {openai/a: {retires: 2026-01-01, successor: anthropic/b}}")
    with pytest.raises(ConfigError, match=r"off since 2026-01-01.*anthropic/b"):
        Roster(JudgingConfig(), load_table(str(table)), OFF_ON).stand_in("openai/a")


@pytest.mark.parametrize(
    ("kept", "day", "judge"),
    [
        ("openai/gpt-5.2", OFF_ON, "openai/gpt-5.2"),
        (GPT4O, OFF_ON - timedelta(1), GPT4O),
        (GPT4O, OFF_ON, "openai/gpt-6-luna"),
        ("rules", OFF_ON, "openai/gpt-6-luna"),
    ],
)
@pytest.mark.usefixtures("keys")
def test_a_resumed_run_keeps_its_judge_until_that_is_gone(kept: str, day: date, judge: str) -> None:
    assert judged_on(day, kept={"empathy": [kept]}).judge == judge


@pytest.mark.parametrize(
    ("days", "messages"),
    [
        (61, []),
        (60, ["retires on 2027-01-14, in 60 days; its successor: openai/gpt-6-luna"]),
        (0, ["is off since 2027-01-14; its successor: openai/gpt-6-luna"]),
    ],
)
def test_what_retires_is_told_60_days_before(days: int, messages: list[str]) -> None:
    roster = Roster(JudgingConfig(), load_table(None), OFF_ON - timedelta(days))
    lines = roster.retiring_lines(["openai/gpt-4o", "embedded", "openai/gpt-4p"])
    assert lines == [f"openai/gpt-4o {line}" for line in messages]


def test_a_judge_that_thinks_has_room_for_it_unless_the_user_says_other() -> None:
    table = load_table(None)
    for name, tokens in (("openai/gpt-4o", 2048), ("openai/gpt-6-luna", 16384)):
        assert JudgeAccount(name, JudgingConfig(), table).output_limit == tokens
        assert JudgeAccount(name, JudgingConfig(max_output_tokens=2048), table).output_limit == 2048
