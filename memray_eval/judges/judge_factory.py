"""Builds the judges of one actor from their names: clients behind admission control that shares
the cluster's limiter, the store of paid calls and the run's budget."""

import asyncio
import importlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache, partial
from typing import Any

from pydantic import BaseModel

from memray_eval.config.environment import key_digest, server_address
from memray_eval.config.sections import JudgingConfig, Provider
from memray_eval.errors import JudgeError, Unavailable, describe_error
from memray_eval.extensions import OwnObject, call_own
from memray_eval.judges.accounts import JudgeAccount
from memray_eval.judges.adapter import JudgeSpec, ProviderAdapter, Reply, Request, Turns
from memray_eval.judges.batches.journal import MAX_BYTES, Spool
from memray_eval.judges.batches.port import BatchClient
from memray_eval.judges.batches.runner import BatchQueue
from memray_eval.judges.call_metrics import CallObserver
from memray_eval.judges.limits.admission import AdmissionController, AdmissionOptions, RunHooks
from memray_eval.judges.limits.breaker import Breaker
from memray_eval.judges.limits.budget import BudgetPort, Spending, most_spending
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.prices import load_table
from memray_eval.judges.prompt_cache import SECRET_BYTES, SharedStart
from memray_eval.judges.router import FallbackJudge, JudgeAssignment, Roster, embedded_model
from memray_eval.judges.structured_judge import (
    CallPolicy,
    CallStore,
    RepeatedJudge,
    StructuredJudge,
)
from memray_eval.metric import RULES
from memray_eval.ports import Judge
from memray_eval.provider_http.parameters import ParameterBook, ParameterNegotiator, ParameterPort
from memray_eval.provider_http.replies import TokenFields, read_usage
from memray_eval.provider_http.retry import RetryPolicy

_TOKENS = TokenFields(input=("input_tokens",), output=("output_tokens",))


class CodeAdapter(ProviderAdapter):
    def __init__(self, code: OwnObject, timeout_s: float) -> None:
        self._ask, self._timeout_s, self._name = code.load(), timeout_s, code.attribute
        self.parameters = self.negotiable = {}

    def prepare(self, judgment: type[BaseModel], system: str, shared_first: bool) -> Request:
        return {"judgment": judgment}

    async def send(self, prepared: Request, messages: Turns, start: SharedStart | None) -> Any:
        verdict = call_own(self._ask, list(map(dict, messages)), prepared["judgment"])
        return await asyncio.wait_for(verdict, self._timeout_s)

    def read(self, completion: Any) -> Reply:
        verdict, spent = completion, None
        if isinstance(completion, tuple) and len(completion) == 2:
            verdict, spent = completion
        if isinstance(verdict, BaseModel):
            text = verdict.model_dump_json()
        elif isinstance(verdict, Mapping):
            text = json.dumps(verdict, default=str)
        elif isinstance(verdict, str):
            text = verdict
        else:
            raise JudgeError(
                f"{self._name} returned {type(verdict).__name__}: no judgment, mapping or text"
            )
        usage, is_counted = read_usage(spent, _TOKENS)
        return Reply(text, usage, "done", is_counted)

    def translate(self, error: BaseException) -> JudgeError:
        # A user's exception may quote anything: its text is kept, as that of a metric's is
        if isinstance(error, OSError):  # TimeoutError among them
            return Unavailable(f"{self._name} raised {describe_error(error)}")
        return JudgeError(f"{self._name} raised {describe_error(error)}")


SERVER_MODEL = "judge"  # how the embedded judge's engines call its model
EMBEDDED_OUTPUT_TOKENS = 1024
IN_FLIGHT = 128  # calls to one judge in one actor, where nothing else says


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the judges of one actor share with those of others; None: there is none. `member` names
    the actor, one of `members` of the session `run` of the run `run_id`; `max_in_flight` calls may
    go from it to one judge; `embedded_url` is the port of the embedded judge's engines; `say` takes
    lines for a person; `watch` gives a judge's observer; `secret` makes the nonces of prompts; by
    `parameters` they learn what models refuse."""

    limiter: Limiter
    member: str = ""
    say: Callable[[str], None] = lambda line: None
    is_stopping: Callable[[], bool] = lambda: False
    run: str = ""
    run_id: str = ""
    members: int = 1
    max_in_flight: int = IN_FLIGHT
    calls: CallStore | None = None
    budget: BudgetPort | None = None
    embedded_url: str | None = None
    watch: Callable[[str], CallObserver] = lambda judge: CallObserver()
    secret: bytes = field(default_factory=partial(secrets.token_bytes, SECRET_BYTES), repr=False)
    parameters: ParameterPort = field(default_factory=ParameterBook)


def build_judges(
    choices: Mapping[str, JudgeAssignment], config: JudgingConfig, services: Services
) -> dict[str, list[Judge]]:
    """The judges of every metric that has any, `repeats` times each, the same client for the same
    name. Call it on the loop that will use them."""
    factory = _JudgeFactory(config, services, embedded_model(choices))
    return {
        metric: factory.build_jury(choice)
        for metric, choice in choices.items()
        if choice.judge != RULES
    }


def build_batch_queues(
    choices: Mapping[str, JudgeAssignment], config: JudgingConfig, services: Services
) -> list[BatchQueue]:
    """The judges that can be asked in batches, on the loop that will use them."""
    factory = _JudgeFactory(config, services)
    juries = [choice.judges for choice in choices.values() if choice.judge != RULES]
    names = dict.fromkeys(name for judges in juries for name in judges)
    return [queue for name in names if (queue := factory.build_queue(name)) is not None]


class _JudgeFactory:
    def __init__(
        self, config: JudgingConfig, services: Services, served: str | None = None
    ) -> None:
        self._config, self._services, self._served = config, services, served
        self._roster = Roster(config, load_table(config.models), date.today())
        self._build = cache(self._build_judge)
        self._gone = set[str]()  # models that told this actor that they are no more
        self._hooks = RunHooks(say=services.say, is_stopping=services.is_stopping)

    def build_jury(self, choice: JudgeAssignment) -> list[Judge]:
        """The judges of one metric, each as often as it is asked."""
        jurors = list[Judge]()
        for name in choice.judges:
            line = [name, *filter(self._may_inherit, choice.heirs.get(name, ()))]
            say, advice = self._services.say, partial(self._roster.advice, name, self._gone)
            for repeat in range(self._config.repeats):
                ask = partial(self._build_repeated, repeat=repeat)
                rest = [ask(other) for other in self._config.fallbacks if other != name]
                jury = choice.judges, self._gone
                jurors.append(FallbackJudge(line, ask, rest, *jury, say, advice))
        return jurors

    def _may_inherit(self, name: str) -> bool:
        """Whether a budget can count what a judge costs that nobody has named."""
        price = self._roster.account(name).price
        return self._services.budget is None or (price is not None and price.is_whole)

    def _build_repeated(self, name: str, repeat: int) -> Judge:
        return RepeatedJudge(self._build(name), repeat)

    def build_queue(self, name: str) -> BatchQueue | None:
        """The judge in batches; None if it can only be asked call by call."""
        account = self._roster.account(name)
        if not account.takes_batches:
            return None
        provider, spec = account.provider, self._spec_of(account)
        module = importlib.import_module(f"memray_eval.judges.batches.{provider}")
        open_client: Callable[[JudgeSpec], BatchClient] = getattr(module, f"open_{provider}")

        def most_of(tokens: int) -> Spending:
            is_marked = spec.cache.is_marked and spec.cache.floor_tokens is not None
            output_limit, price = spec.max_output_tokens, spec.price
            return most_spending(tokens, output_limit, price, is_batch=True, is_marked=is_marked)

        spool = Spool(self._config.batch.calls, MAX_BYTES[provider], most_of)
        return BatchQueue(self._build(name), open_client(spec), spool)

    def _build_judge(self, name: str) -> StructuredJudge:
        account = self._roster.account(name)
        spec, code = self._spec_of(account), account.code
        if code is not None:
            policy = self._policy_of(account, spec, f"{name}@code {code.source.digest}")
            return StructuredJudge(spec, CodeAdapter(code, spec.timeout_s), policy)
        provider: Provider = "openai" if account.is_embedded else account.provider
        limiter_key = f"{name}@{server_address(provider, spec.base_url)}"
        if not account.is_embedded:
            limiter_key = f"{name}@{account.address}#{key_digest(spec.key)}"
        policy = self._policy_of(account, spec, limiter_key)
        # An SDK takes a second to import: only the one that is used is.
        module = importlib.import_module(f"memray_eval.judges.providers.{provider}")
        adapter = module.open_adapter(spec, policy.admission.observe_headers)
        return StructuredJudge(spec, adapter, policy)

    def _spec_of(self, account: JudgeAccount) -> JudgeSpec:
        config = self._config
        spec = JudgeSpec(
            name=account.name,
            model=account.model,
            timeout_s=config.timeout_s,
            max_output_tokens=account.output_limit,
            price=account.price,
            cache=replace(account.cache, secret=self._services.secret),
        )
        if account.is_embedded:
            return replace(
                spec,
                model=SERVER_MODEL,
                base_url=self._services.embedded_url,
                identity=f"{account.name} {self._served or account.name}",
                timeout_s=config.ceiling_s,
                max_output_tokens=min(account.output_limit, EMBEDDED_OUTPUT_TOKENS),
                parameters={"temperature": 0, "seed": 0},
                is_small=True,
            )
        if (code := account.code) is not None:
            identity = f"{account.name} code {code.source.digest}"
            return replace(spec, model=code.attribute, identity=identity)
        named, url = account.server, account.own_server
        return replace(
            spec,
            base_url=url,
            key=account.key,
            # An account of a provider remembers calls by the model, not by where it is asked
            identity="" if named is None or url is not None else account.model_name,
            is_providers=named is not None and bool(named.url and named.provider),
            parameters=account.parameters,
        )

    def _policy_of(self, account: JudgeAccount, spec: JudgeSpec, limiter_key: str) -> CallPolicy:
        config, services, name = self._config, self._services, account.name
        limits, is_firm = account.limits
        admission = AdmissionController(
            name,
            services.limiter,
            Breaker(name, config.breaker, services.say),
            AdmissionOptions(
                member=services.member,
                run=services.run,
                members=services.members,
                limits=limits,
                is_firm=is_firm,
                max_in_flight=services.max_in_flight,
                max_output_tokens=spec.max_output_tokens,
                patience_s=config.ceiling_s,
            ),
            key=limiter_key,
            budget=services.budget,
            price=spec.price,
            observer=services.watch(name),
            hooks=self._hooks,
        )
        policy = RetryPolicy(
            tries=config.tries,
            ceiling_s=config.ceiling_s,
            ceiling_key=" (judging.ceiling_s)",
            sleep=self._hooks.pause,
        )
        negotiator = ParameterNegotiator()
        if not (account.is_embedded or account.code is not None):
            negotiator = ParameterNegotiator(account.parameter_target, services.parameters)
        watch, run = services.watch(name), services.run_id
        return CallPolicy(policy, admission, services.calls, watch, run, negotiator)
