"""The limits of a large account, 100,000 requests/min and 200M tokens/min, over 64 judge actors:
how much of them is used, what a provider would refuse, what the limiter itself takes of a core, and
how evenly actors are served.

    python -m tests.bench.large_limits [--members 64] [--per-min 100000]
        [--tokens-per-min 200e6] [--minutes 3]

Members are real admission controllers with more calls to make than they may; only the provider is
not real: a call sleeps for its latency, then tells what it took, 0.8 to 1.2 of what was estimated
and an output of any size. Its limits hold in every 60 s, to the call and the token.

The clock stands still but for the events, with a millisecond each way to the limiter, whose CPU is
that of its own code. Figures are of what comes after `--settled-s`."""

import argparse
import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from memray_eval.config.sections import BreakerConfig, RateLimits
from memray_eval.errors import Throttled
from memray_eval.judges.limits.admission import AdmissionController, AdmissionOptions, RunHooks
from memray_eval.judges.limits.breaker import Breaker
from memray_eval.judges.limits.rate_limiter import Limiter
from memray_eval.judges.limits.rate_pacer import HORIZON_S, CallCost
from tests.unit.judges.limits.test_rate_limiter import EPOCH, VirtualLoop, clock

T = TypeVar("T")
SPAN_S = 60.0
WAY_S = 0.001  # to the limiter, and back
SPREAD = 0.4  # of latencies: the standard deviation of their logarithm
ROUGH_OUTPUT = 300  # tokens of a verdict, on average
# An account's first calls: what is assumed, and what the headers then tell
ASSUMED = RateLimits(requests_per_min=500, tokens_per_min=30_000)


class Story(NamedTuple):
    """What a simulation or a live run is of: mean tokens of a call, as shares of what the two
    limits allow together; whether the limits are set beforehand, or learnt from headers; how many
    of the members ask for little; how much of the limit is asked for, where it is not all; how many
    of the members die when half of the time is over, and whether the limiter then restarts."""

    name: str
    tokens: float = 0.95
    is_set: bool = True
    light: float = 0.0
    demand: float | None = None
    dying: float = 0.0
    restarts: bool = False


STORIES = (
    Story("requests bind"),
    Story("tokens bind", tokens=1.1),
    Story("both bind", tokens=1.0),
    Story("limits learnt from headers", is_set=False),
    Story("a quarter of the actors ask little", light=0.25),
    Story("nine tenths of the limit are asked for", demand=0.9),
    Story("a tenth dies, the limiter restarts", dying=0.1, restarts=True),
)


class Sent(NamedTuple):
    """A call: when it came to the provider, whose it was, what it took, how long it had waited,
    whether it was refused."""

    at: float
    member: str
    tokens: float
    waited_s: float
    is_refused: bool = False


class Figures(NamedTuple):
    use_requests: float
    use_tokens: float
    refused: int
    cpu_share: float
    messages_per_s: float
    jain: float
    waited_s: float
    longest_light_s: float  # of the members that ask for little


class SlidingWindow:
    """A provider's limits, held in every SPAN_S."""

    def __init__(self, limits: RateLimits) -> None:
        self._requests = limits.requests_per_min or math.inf
        self._tokens = limits.tokens_per_min or math.inf
        self._inside, self._sum = deque[tuple[float, float]](), 0.0

    def admits(self, at: float, tokens: float) -> bool:
        while self._inside and self._inside[0][0] <= at - SPAN_S:
            self._sum -= self._inside.popleft()[1]
        if len(self._inside) >= self._requests or self._sum + tokens > self._tokens:
            return False
        self._inside.append((at, tokens))
        self._sum += tokens
        return True


class Timed:
    """An awaitable that counts the CPU of its own steps."""

    def __init__(self, awaited: Awaitable[T], spent: Counter[str]) -> None:
        self._awaited, self._spent = awaited, spent

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaited.__await__()
        step = partial(steps.send, None)
        while True:
            began = time.thread_time()
            try:
                waits_for = step()
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            finally:
                self._spent["seconds"] += time.thread_time() - began  # type: ignore[assignment]
            try:
                step = partial(steps.send, (yield waits_for))
            except BaseException as error:
                step = partial(steps.throw, error)


class NearLimiter:
    """A limiter a millisecond away, whose messages and CPU are counted. What was asked of one that
    restarts is asked again, as of Ray's actor."""

    def __init__(self, limiter: Limiter, spent: Counter[str]) -> None:
        self._limiter, self._spent = limiter, spent
        self._under_way = set[asyncio.Task[Any]]()

    def restart(self) -> None:
        """The limiter forgets all that it knew; grants on their way are lost."""
        self._limiter = Limiter(HORIZON_S, clock)
        for task in self._under_way:
            task.cancel()

    def __getattr__(self, name: str) -> Any:
        async def ask(*args: Any) -> Any:
            while True:
                task = asyncio.create_task(self._ask(name, *args))
                self._under_way.add(task)
                try:
                    return await task
                except asyncio.CancelledError:
                    if (member := asyncio.current_task()) is not None and member.cancelling():
                        raise
                finally:
                    self._under_way.discard(task)

        return ask

    async def _ask(self, name: str, *args: Any) -> Any:
        await asyncio.sleep(WAY_S)
        self._spent["messages"] += 1
        answer = await Timed(getattr(self._limiter, name)(*args), self._spent)
        await asyncio.sleep(WAY_S)
        return answer


class Setting(NamedTuple):
    """What every member has in common."""

    story: Story
    members: int
    limits: RateLimits
    latency_s: float
    seconds: float
    seed: int

    @property
    def mean_tokens(self) -> float:
        requests, tokens = self.limits.requests_per_min or 1, self.limits.tokens_per_min or 1
        return self.story.tokens * tokens / requests

    @property
    def in_flight(self) -> int:
        """As execution/plan.py sizes it: twice what the limit and the latency call for."""
        per_s = (self.limits.requests_per_min or 0) / 60
        return max(4, math.ceil(per_s * self.latency_s * 2 / self.members))

    def is_light(self, number: int) -> bool:
        return number < self.story.light * self.members

    def dies(self, number: int) -> bool:
        return number >= self.members - round(self.story.dying * self.members)

    @property
    def headers(self) -> dict[str, str]:
        if self.story.is_set:
            return {}
        return {
            "x-ratelimit-limit-requests": f"{self.limits.requests_per_min:.0f}",
            "x-ratelimit-limit-tokens": f"{self.limits.tokens_per_min:.0f}",
        }


class Member:
    """One judge actor at work: a controller, and calls that never end."""

    def __init__(self, number: int, setting: Setting, limiter: Any, now: Any, window: Any) -> None:
        self.name, self._setting, self._now, self._window = str(number), setting, now, window
        self._chance = random.Random(f"{setting.seed} {number}")
        self._is_light = setting.is_light(number)
        self.sent = list[Sent]()
        options = AdmissionOptions(
            member=self.name,
            run="large",
            members=setting.members,
            limits=setting.limits if setting.story.is_set else ASSUMED,
            is_firm=setting.story.is_set,
            max_in_flight=setting.in_flight,
        )
        self._gate = AdmissionController(
            "judge",
            limiter,
            Breaker("judge", BreakerConfig(), lambda line: None),
            options,
            hooks=RunHooks(clock=now),
        )

    async def run(self) -> None:
        """Works until it is cancelled; errors end it."""
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))  # actors come up one after another
        setting, workers = self._setting, 2 * self._setting.in_flight
        async with asyncio.TaskGroup() as group:
            if setting.story.demand is None:
                for _ in range(workers):
                    group.create_task(self._work(workers))
                return
            per_s = setting.story.demand * (setting.limits.requests_per_min or 0) / 60
            next_at = self._now()
            while True:
                next_at += self._chance.expovariate(per_s / setting.members)
                await asyncio.sleep(max(0.0, next_at - self._now()))
                group.create_task(self._ask())

    async def _work(self, workers: int) -> None:
        setting, chance = self._setting, self._chance
        fair_s = workers * 60 * setting.members / (setting.limits.requests_per_min or 1)
        while True:
            if self._is_light:
                await asyncio.sleep(chance.uniform(0, 20) * fair_s)
            await self._ask()

    async def _ask(self) -> None:
        size = (self._setting.mean_tokens - ROUGH_OUTPUT) * self._chance.uniform(0.2, 1.8)
        try:
            await self._call(max(1.0, size))
        except Throttled as error:
            await asyncio.sleep(error.retry_after_s or 1.0)

    async def _call(self, rough: float) -> None:
        chance, began = self._chance, self._now()
        async with self._gate.permit(rough) as permit:
            used = CallCost(rough * chance.uniform(0.8, 1.2), chance.expovariate(1 / ROUGH_OUTPUT))
            at, tokens = self._now(), used.tokens
            is_refused = not self._window.admits(at, tokens)
            self.sent.append(Sent(at, self.name, tokens, at - began, is_refused))
            if is_refused:
                raise Throttled("429", retry_after_s=1.0)
            await asyncio.sleep(self._setting.latency_s * chance.lognormvariate(0.0, SPREAD))
            if headers := self._setting.headers:
                await self._gate.observe_headers(headers)
            permit.used = used


def simulate(setting: Setting, settled_s: float) -> Figures:
    """On free time: a minute of it takes a minute of this machine, or less."""
    spent, window = Counter[str](), SlidingWindow(setting.limits)
    at_start = Counter[str]()

    async def main() -> list[Member]:
        limiter = NearLimiter(Limiter(clock=clock), spent)
        members = [
            Member(number, setting, limiter, clock, window) for number in range(setting.members)
        ]
        tasks = [asyncio.create_task(member.run()) for member in members]
        await asyncio.sleep(settled_s)
        at_start.update(spent)
        await asyncio.sleep((setting.seconds - settled_s) / 2)
        for number, task in enumerate(tasks):
            if setting.dies(number):
                task.cancel()
        if setting.story.restarts:
            limiter.restart()
        await asyncio.sleep((setting.seconds - settled_s) / 2)
        await end_all(tasks)
        return members

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        members = runner.run(main())
    spent.subtract(at_start)
    sent = [one for member in members for one in member.sent]
    return figures(setting, sent, EPOCH + settled_s, EPOCH + setting.seconds, spent)


async def end_all(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if not isinstance(ended, asyncio.CancelledError):
            raise AssertionError("a member failed") from ended


def figures(
    setting: Setting, sent: Iterable[Sent], start: float, end: float, spent: Counter[str]
) -> Figures:
    """What came of a story between two moments."""
    inside, minutes = [one for one in sent if start <= one.at < end], (end - start) / 60
    counts = Counter(one.member for one in inside if not one.is_refused)
    light = {str(n) for n in range(setting.members) if setting.is_light(n)}
    heavy = [str(n) for n in range(setting.members) if not setting.is_light(n) | setting.dies(n)]
    requests, tokens = setting.limits.requests_per_min or 1, setting.limits.tokens_per_min or 1
    return Figures(
        use_requests=counts.total() / (requests * minutes),
        use_tokens=sum(one.tokens for one in inside if not one.is_refused) / (tokens * minutes),
        refused=sum(one.is_refused for one in inside),
        cpu_share=spent["seconds"] / (end - start),
        messages_per_s=spent["messages"] / (end - start),
        jain=jain([counts[name] for name in heavy]),
        waited_s=sum(one.waited_s for one in inside) / max(1, len(inside)),
        longest_light_s=max((one.waited_s for one in inside if one.member in light), default=0.0),
    )


def jain(shares: Sequence[float]) -> float:
    """Jain, Chiu and Hawe's index of fairness (1984): 1 where all have the same, 1/n where one has
    all."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=64)
    parser.add_argument("--per-min", type=float, default=100_000.0)
    parser.add_argument("--tokens-per-min", type=float, default=200e6)
    parser.add_argument("--latency-s", type=float, default=3.0)
    parser.add_argument("--minutes", type=float, default=3.0, help="of a simulation")
    parser.add_argument("--settled-s", type=float, default=30.0)
    parser.add_argument("--stories", type=int, nargs="*", default=list(range(len(STORIES))))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    limits = RateLimits(requests_per_min=options.per_min, tokens_per_min=options.tokens_per_min)
    print(f"{'':<40} requests  tokens  refused     CPU msgs/s    Jain   wait   took s", flush=True)
    for number in options.stories:
        story = STORIES[number]
        setting = Setting(
            story, options.members, limits, options.latency_s, 60 * options.minutes, options.seed
        )
        began = time.perf_counter()
        found = simulate(setting, options.settled_s)
        print(
            f"{story.name:<40} {found.use_requests:7.4f} {found.use_tokens:7.4f} "
            f"{found.refused:8d} {found.cpu_share:7.3f} {found.messages_per_s:6.0f} "
            f"{found.jain:7.4f} {found.waited_s:6.2f} {time.perf_counter() - began:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
