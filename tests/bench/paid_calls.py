"""Paid judge calls kept on an object store: calls/s of simulated judge actors, and how long a
resume takes to know them again.

    python -m tests.bench.paid_calls [--actors 8 64 256] [--seconds 20] [--in-flight 32]
        [--latency-s 1] [--delay-ms 60 100] [--units 100000 1000000] [--index N]

The store is the local S3 stand-in (tests/servers/s3.py) with a delay a request. Each simulated
actor has `--in-flight` calls under way: it looks a call up, waits for its judge, keeps the answer;
at best that is in-flight / latency calls/s an actor. Both ways are measured in one run: one PUT a
batch, one after the other, lookups between them (before issue 15), and the real client, writer and
merger. Below each stand the objects that it would write in runs of `--units`, two calls a unit, as
estimates from the calls of an object. `--index N` loads N calls over 50 ms a request, as a killed
run leaves them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import resource
import secrets
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from memray_eval.execution.ray.services import RayServices
from memray_eval.judges.call_cache import CachedCall, CallCache
from memray_eval.judges.call_metrics import NO_OBSERVER
from memray_eval.judges.paid_calls import MERGED_CALLS, SMALL_SEGMENTS, PaidCalls
from memray_eval.judges.segment_log import SegmentLog
from memray_eval.judges.structured_judge import CallStore
from memray_eval.models.batching import Batcher
from tests.servers.s3 import BUCKET, S3Server, serving_s3

WORDS = [secrets.token_hex(3) for _ in range(2000)]
JUDGMENT_WORDS = 80  # 600 bytes, about a rationale with two quotations
INDEX_DELAY_S = 0.05
CALLS_A_UNIT = 2
SMALL_CALLS = 100  # in each of the segments that the killed run had not merged

Get = Callable[[list[str]], Awaitable[list[CachedCall | None]]]
Put = Callable[[list[CachedCall]], Awaitable[None]]


class Measured(NamedTuple):
    """`look_up_s` is the median time of a lookup, `keep_s` of a put; `left` are the objects after
    the last merge."""

    calls_a_s: float
    calls: int
    objects: int
    look_up_s: float
    keep_s: float
    merge_s: float
    left: int


def made(chance: random.Random) -> CachedCall:
    return CachedCall(
        key=f"{chance.getrandbits(128):032x}",
        judge="openai/gpt-4o",
        judgment=f'{{"rationale": "{" ".join(chance.choices(WORDS, k=JUDGMENT_WORDS))}"}}',
        input_tokens=900,
        output_tokens=150,
        cost_usd=0.001,
        created=time.time(),
    )


class OnePutABatch:
    """The service as it was: an actor with one thread."""

    def __init__(self, folder: str, file: Path) -> None:
        self._log, self._cache = SegmentLog(folder), CallCache(file)
        self._thread = ThreadPoolExecutor(1)

    async def get(self, keys: list[str]) -> list[CachedCall | None]:
        found = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._cache.get, keys
        )
        return [found.get(key) for key in keys]

    async def put(self, calls: list[CachedCall]) -> None:
        def keep() -> None:
            self._log.append(calls)
            self._cache.put(calls)

        await asyncio.get_running_loop().run_in_executor(self._thread, keep)

    def close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._cache.close()


class OneBatchClient:
    """What a judge actor asked it by."""

    def __init__(self, service: OnePutABatch) -> None:
        async def keep(calls: list[CachedCall]) -> Sequence[None]:
            await service.put(calls)
            return [None] * len(calls)

        self.get = Batcher[str, CachedCall | None](service.get)
        self.put = Batcher[CachedCall, None](keep)


class NearHandle:
    """An actor's handle whose calls are made in this process."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def __getattr__(self, method: str) -> Any:
        return type("Method", (), {"remote": staticmethod(getattr(self._service, method))})


def new_client(service: PaidCalls) -> CallStore:
    handles = RayServices(None, NearHandle(service), None, 1, 64)
    services = handles.connect(lambda line: None, lambda: False, None, lambda judge: NO_OBSERVER)
    assert services.calls is not None
    return services.calls


async def judging(
    clients: Sequence[CallStore], in_flight: int, latency_s: float, seconds: float
) -> tuple[float, int, float, float]:
    """Calls/s after a first stretch of two latencies, all calls, and the medians of a lookup and a
    put."""
    chance, kept, look_ups, keeps = random.Random(1), list[float](), list[float](), list[float]()
    until = time.perf_counter() + 2 * latency_s + seconds

    async def call_after_call(client: CallStore) -> None:
        await asyncio.sleep(chance.random() * latency_s)
        while (began := time.perf_counter()) < until:
            call = made(chance)
            assert await client.get(call.key) is None
            look_ups.append(time.perf_counter() - began)
            await asyncio.sleep(latency_s * chance.uniform(0.5, 1.5))
            began = time.perf_counter()
            await client.put(call)
            kept.append(time.perf_counter())
            keeps.append(kept[-1] - began)

    await asyncio.gather(*(call_after_call(client) for client in clients for _ in range(in_flight)))
    counted = sum(until - seconds <= at < until for at in kept)
    return (
        counted / seconds,
        len(kept),
        sorted(look_ups)[len(look_ups) // 2],
        sorted(keeps)[len(keeps) // 2],
    )


def old_way(server: S3Server, actors: int, options: argparse.Namespace) -> Measured:
    folder, before = f"s3://{BUCKET}/old-{actors}-{secrets.token_hex(3)}", server.calls()["PUT"]
    with (
        tempfile.TemporaryDirectory() as home,
        closing(OnePutABatch(folder, Path(home) / "calls")) as service,
    ):
        clients = [OneBatchClient(service) for _ in range(actors)]
        figures = asyncio.run(
            judging(clients, options.in_flight, options.latency_s, options.seconds)
        )
    objects = server.calls()["PUT"] - before
    calls_a_s, calls, look_up_s, keep_s = figures
    return Measured(calls_a_s, calls, objects, look_up_s, keep_s, 0.0, objects)


def new_way(server: S3Server, actors: int, options: argparse.Namespace) -> Measured:
    folder, before = f"s3://{BUCKET}/new-{actors}-{secrets.token_hex(3)}", server.calls()["PUT"]

    async def main(service: PaidCalls) -> tuple[float, int, float, float, int, float]:
        clients = [new_client(service) for _ in range(actors)]
        figures = await judging(clients, options.in_flight, options.latency_s, options.seconds)
        objects, started = server.calls()["PUT"] - before, time.perf_counter()
        await service.compact()
        return *figures, objects, time.perf_counter() - started

    with tempfile.TemporaryDirectory() as home:
        cache = CallCache(Path(home) / "calls", is_scratch=True)
        with closing(PaidCalls(cache, SegmentLog(folder))) as service:
            calls_a_s, calls, look_up_s, keep_s, objects, merge_s = asyncio.run(main(service))
    left = sum(1 for _ in SegmentLog(folder).load())
    return Measured(calls_a_s, calls, objects, look_up_s, keep_s, merge_s, left)


def objects_of_runs(told: Measured, units: Sequence[int]) -> str:
    """How many objects runs of so many units would write, and leave where they are merged."""
    calls_an_object = told.calls / max(1, told.objects)
    runs = []
    for n_units in units:
        n_calls = CALLS_A_UNIT * n_units
        written = n_calls / max(1.0, calls_an_object)
        left = written if told.left == told.objects else max(1.0, n_calls / MERGED_CALLS)
        runs.append(f"{n_units:,} units: {written:,.0f} PUTs, {left:,.0f} objects left")
    return f"{calls_an_object:.1f} calls an object; estimates for {'; '.join(runs)}"


def indexed(n_calls: int) -> str:
    """How long a resume takes to know `n_calls`: those of the last SMALL_SEGMENTS segments had not
    been merged when the run was killed."""
    with serving_s3((INDEX_DELAY_S, INDEX_DELAY_S)) as server, let_in(server):
        folder = f"s3://{BUCKET}/index"
        log, n_small = SegmentLog(folder), min(SMALL_SEGMENTS - 1, n_calls // SMALL_CALLS // 2)
        n_merged = n_calls - n_small * SMALL_CALLS
        sizes = [MERGED_CALLS] * (n_merged // MERGED_CALLS)
        sizes += [rest] if (rest := n_merged % MERGED_CALLS) else []

        def write(seed: int, size: int) -> None:
            chance = random.Random(seed)
            log.append([made(chance) for _ in range(size)])

        with ThreadPoolExecutor(2) as threads:  # no more calls in memory than these have
            list(threads.map(write, range(len(sizes)), sizes))
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda n: write(10_000 + n, SMALL_CALLS), range(n_small)))
        chance = random.Random(0)
        known = [made(chance).key for _ in range(sizes[0])][-1]
        with tempfile.TemporaryDirectory() as home:
            cache = CallCache(Path(home) / "calls", is_scratch=True)
            with closing(PaidCalls(cache, SegmentLog(folder))) as service:
                before, started = server.calls(), time.perf_counter()
                assert service.load() == 0
                (found,) = asyncio.run(service.get([known]))
                took, asked = time.perf_counter() - started, server.calls() - before
                assert found is not None
                assert cache.stats().entries == n_calls
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{n_calls:,} calls in {len(sizes) + n_small:,} segments, {INDEX_DELAY_S * 1000:.0f} ms a "
        f"request: known in {took:.1f} s, {asked.total():,} requests, {memory:,.0f} MB at the peak "
        "of this process, which wrote them too"
    )


@contextlib.contextmanager
def let_in(server: S3Server) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(server.environment())
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--actors", type=int, nargs="*", default=[8, 64, 256])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--latency-s", type=float, default=1.0)
    parser.add_argument("--delay-ms", type=float, nargs=2, default=[60.0, 100.0])
    parser.add_argument("--units", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--index", type=int, default=0)
    options = parser.parse_args()
    least, most = (delay / 1000 for delay in options.delay_ms)
    print(f"{least * 1000:.0f}-{most * 1000:.0f} ms added to each request")
    for actors in options.actors:
        with serving_s3((least, most)) as server, let_in(server):
            for name, way in (("one PUT a batch", old_way), ("together", new_way)):
                told = way(server, actors, options)
                print(
                    f"{actors:4} actors, {name:15}: {told.calls_a_s:6.0f} calls/s, "
                    f"{told.objects:5} PUTs, {told.left:5} objects left ({told.merge_s:.1f} s to "
                    f"merge), a lookup {told.look_up_s * 1000:.0f} ms, a put "
                    f"{told.keep_s * 1000:.0f} ms",
                    flush=True,
                )
                print("     " + objects_of_runs(told, options.units), flush=True)
    if options.index:
        print(indexed(options.index))


if __name__ == "__main__":
    main()
