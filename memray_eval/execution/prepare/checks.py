"""The checks before a run starts: judges and their cost, keys, packages, room."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from memray_eval.benchmarks import check_prompts
from memray_eval.config.environment import PROVIDERS, host_of, proxy_of, require_package, server_key
from memray_eval.config.sections import BreakerConfig, EmbeddingConfig, Provider
from memray_eval.config.servers import check_answers
from memray_eval.datasets.scan import read_samples
from memray_eval.errors import ConfigError
from memray_eval.execution.estimate import Estimate, estimate
from memray_eval.execution.prepare.resolve import check_affect
from memray_eval.execution.run_plan import RunPlan, RunSpec
from memray_eval.execution.services import check_calls
from memray_eval.judges.router import asked_judges, unpriced
from memray_eval.metric import RULES
from memray_eval.models.adapters import check_adapters
from memray_eval.sinks.sending import check_sinks
from memray_eval.types import Candidate, Turn, turn_sample

ASK_USD = 10.0  # above this a run without a budget asks


def spec_checks(
    spec: RunSpec, path: str, say: Callable[[str], None]
) -> Iterator[Callable[[], object]]:
    """Yields the checks that need neither dataset nor cluster; each raises an EvalError."""
    yield partial(check_prompts, spec.suite, spec.config.candidates)
    yield lambda: list(map(say, check_adapters(spec.config.candidates)))
    yield partial(check_affect, spec)
    yield partial(check_judges, spec, path)
    yield partial(check_scorable, spec)
    yield partial(check_machine, spec)
    yield partial(check_sinks, spec.config.sinks)


def check_cost(plan: RunPlan, agree: Callable[[Estimate], bool]) -> None:
    """Raises ConfigError if nobody agrees to a run without a budget that may pass ASK_USD."""
    spec = plan.spec
    if spec.config.budget.is_set or not spec.calls_judges:
        return
    estimated = estimate(spec, plan.scan, plan.capacity)
    unknown = unpriced(spec.all_judges.values(), spec.config.judging, spec.judge_table)
    billing = [name for name in unknown if spec.account(name).may_bill]
    if billing and not agree(estimated):
        raise ConfigError(
            f"the price of {', '.join(billing)} is not known, so nobody can say what this run "
            f"costs ({estimated.calls} judge calls), and it has no budget; "
            f"{_how_to_price(billing)}, or say --yes"
        )
    if not billing and (estimated.usd or 0.0) > ASK_USD and not agree(estimated):
        raise ConfigError(
            f"this run may cost about ${estimated.usd:,.2f} ({estimated.calls} judge calls) and "
            "has no budget; set one (--budget-usd, budget.usd), or agree (--yes, confirm=True). "
            "`memray-eval estimate JOB` shows what it is made of."
        )


def check_judges(spec: RunSpec, path: str) -> None:
    """Raises ConfigError for a budget in dollars with an unpriced judge, and as check_calls."""
    choices = [choice for choice in spec.all_judges.values() if choice.judge != RULES]
    unknown = unpriced(choices, spec.config.judging, spec.judge_table)
    if spec.config.budget.usd is not None and unknown:
        raise ConfigError(
            f"--budget-usd (budget.usd) cannot be kept: the price of {', '.join(unknown)} is not "
            f"known; {_how_to_price(unknown)}, with 0 for a server that bills nobody, or bound the "
            "tokens instead (budget.tokens)"
        )
    if choices:
        check_calls(spec.config.judging.cache, path)


def _how_to_price(judges: Sequence[str]) -> str:
    return (
        f"give it in US dollars per million tokens: --set 'judging.price={{{judges[0]}: "
        "{input_usd: NUMBER, output_usd: NUMBER}}'"
    )


class AskedServer(NamedTuple):
    """A model that a job asks, its address (None: its provider's own), and its key's variable."""

    model: str
    url: str | None
    key_variable: str | None
    provider: Provider = "openai"


def servers_asked(spec: RunSpec) -> list[AskedServer]:
    """The servers of a job's judges, candidates and embeddings, each model of each once."""
    servers = list[AskedServer]()
    for judge in map(spec.account, asked_judges(spec.all_judges.values(), spec.config.judging)):
        if not judge.is_embedded and judge.code is None:
            servers.append(
                AskedServer(judge.model, judge.own_server, judge.key_variable, judge.provider)
            )
    models: list[Candidate | EmbeddingConfig] = [
        candidate for candidate in spec.config.candidates if candidate.backend == "openai"
    ]
    models += [spec.config.embedding] if spec.config.embedding.base_url is not None else []
    servers += [
        AskedServer(model.model.removeprefix("openai/"), model.base_url, model.api_key_env)
        for model in models
    ]
    return list(dict.fromkeys(servers))


def check_servers(spec: RunSpec) -> None:
    """Raises ConfigError if a judge's or candidate's own server is not there or refuses the key or
    model. A job with a longer `judging.breaker.outage_s` than the default waits for its servers."""
    config = spec.config
    if config.judging.breaker.outage_s > BreakerConfig().outage_s:
        return
    for model, url, variable, provider in servers_asked(spec):
        is_embedding = url == config.embedding.base_url and config.embedding.model.endswith(model)
        if url is not None and provider == "openai" and not is_embedding:
            check_answers(model, url, variable)


def proxied(spec: RunSpec) -> list[str]:
    """A line about each proxy of the environment that prompts will go through."""
    urls = dict.fromkeys(
        server.url or f"https://{PROVIDERS[server.provider].address}"
        for server in servers_asked(spec)
    )
    ways = dict.fromkeys(
        (proxy, host_of(url)) for url in urls if (proxy := proxy_of(url)) is not None
    )
    return [
        f"Calls to {', '.join(host for other, host in ways if other == proxy)} go through the "
        f"proxy {proxy}, which the environment names (HTTP_PROXY, HTTPS_PROXY or ALL_PROXY, "
        "NO_PROXY)."
        for proxy in dict.fromkeys(proxy for proxy, _ in ways)
    ]


def check_sessions(plan: RunPlan) -> None:
    """Raises ConfigError if nobody can play simulated users, or prompts show no earlier turns."""
    spec, scan = plan.spec, plan.scan
    if not plan.has_sessions:
        return
    if scan.n_simulated and not spec.user_judges:
        raise ConfigError(
            f"{scan.n_simulated} samples have a simulated user, and nobody plays it; name a model: "
            "simulated_user: {model: openai/gpt-4o-mini}, or --set simulated_user.model=MODEL"
        )
    if scan.n_simulated:
        for player in spec.user_judges.values():
            spec.account(player.judge).check()
    read = (read_samples(shard, spec.read.reader, lambda *_: None) for shard in scan.shards)
    first = next((sample for samples in read for sample in samples if sample.n_turns > 1), None)
    if first is None:
        return
    before = Turn(role="user", content=f"{first.query} (a turn before)")
    second = turn_sample(first, 2, first.query, [before])
    try:
        messages = spec.suite.prompt(second, spec.config.candidates[0]).messages
    except Exception:  # an error of its units
        return
    if not any(before.content in message.content for message in messages):
        raise ConfigError(
            f"{spec.read.dataset}: sample {first.id} is a session, and the prompts of suite "
            f"{spec.suite.name!r} show no earlier turns; take a suite whose prompts do, such as "
            "chat, companion or memory"
        )


def check_scorable(spec: RunSpec) -> None:
    """Raises ConfigError if every metric needs a judge and none has one."""
    names = {metric.name for metric in spec.metrics}
    if names and names == set(spec.judges) and len(spec.unscored) == len(spec.judges):
        need = "needs" if len(spec.unscored) == 1 else "need"
        raise ConfigError(
            f"nothing would be scored: {', '.join(spec.unscored)} {need} a judge; name one with "
            "--judge PROVIDER/MODEL, or write the answers alone with `memray-eval generate JOB`"
        )


def check_machine(spec: RunSpec) -> None:
    """Raises ConfigError for a key or package that a local run lacks; a cluster has its own."""
    if spec.config.cluster.address is not None:
        return
    embeds, embedding = bool(spec.by_stage()[1]), spec.config.embedding
    if spec.embedded_judge is not None or spec.has_vllm:
        require_package("vllm")
    if embeds and not embedding.model.startswith("openai/"):
        require_package("sentence_transformers")
    for candidate in spec.config.candidates:
        if candidate.backend == "openai":
            server_key(candidate.base_url, candidate.api_key_env, f"candidate {candidate.name!r}")
    if embeds and embedding.model.startswith("openai/"):
        what = f"embedding.model {embedding.model!r}"
        server_key(embedding.base_url, embedding.api_key_env, what)


def check_device(spec: RunSpec) -> None:
    """Raises ConfigError if a growing cluster does not show the engines' device yet."""
    if spec.config.cluster.wait_s and spec.config.engine.device == "auto" and spec.has_vllm:
        raise ConfigError(
            "cluster.wait_s waits for nodes that are not there yet, so engine.device must say "
            "which: gpu or cpu"
        )
