"""Stores behind a server: mem0, Zep and Letta, asked as their APIs are documented."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memray_eval.benchmarks.conversations import Session, SpokenTurn
from memray_eval.errors import ConfigError, OddReply, StoreDown, StoreError, StoreLost, StoreSlow
from memray_eval.stores import memories, port
from memray_eval.stores.memories import Partition
from memray_eval.stores.port import Store, build_store
from memray_eval.types import Memory
from tests.servers.vendors import Letta, Mem0, Vendor, Zep, serving_vendor

VENDORS = {"mem0": Mem0, "zep": Zep, "letta": Letta}
SESSIONS = (
    Session("D1", "7 May", (SpokenTurn("D1:1", "Ann", "I love pottery in Lisbon"),)),
    Session(
        "D2",
        "9 May",
        tuple(SpokenTurn(f"D2:{n}", "Bob", f"my dog Rex number {n}") for n in range(120)),
    ),
)
PART = "run-1/conv 26/1/ab"


@pytest.fixture(params=[*VENDORS])
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    monkeypatch.setenv("STORE_TEST_KEY", "a-key-of-the-test")
    monkeypatch.setattr(port, "PAUSE_S", 0.0)
    with serving_vendor(VENDORS[request.param](key="a-key-of-the-test")) as serving:
        yield serving


def store_at(vendor: Vendor, **fields: object) -> Store:
    name = type(vendor).__name__.lower()
    fields = {"api_key_env": "STORE_TEST_KEY", "url": vendor.url} | fields
    return build_store(Memory.model_validate({"store": name, **fields}), "unused", None)


def test_what_is_written_is_found_listed_and_deleted(vendor: Vendor) -> None:
    store = store_at(vendor)
    assert list(store.entries(PART)) == []
    store.open(PART)
    store.open(f"{PART}/B")
    for session in SESSIONS:
        store.ingest(PART, session)
    vendor.lag = 2
    ready = [store.ready(PART) for _ in range(5)]
    assert (ready[0], ready[-1]) == (isinstance(vendor, Letta), True)
    held = list(store.entries(PART))
    assert len(held) == 121  # over several pages
    assert {entry.session for entry in held} == {"D1", "D2"}
    best = store.search(PART, "who does love pottery in Lisbon", 3)
    assert len(best) == 3
    assert ("pottery" in best[0].text, best[0].session) == (True, "D1")
    assert list(store.search(f"{PART}/B", "pottery", 3)) == []
    store.delete(PART, [best[0].id])
    assert len(store.entries(PART)) == 120
    store.delete(PART)
    assert list(store.entries(PART)) == []
    store.delete(PART)  # again: it is gone


def test_what_may_pass_is_tried_again(vendor: Vendor) -> None:
    store = store_at(vendor)
    store.open(PART)
    vendor.faults = [(503, {}), (429, {})]
    store.ingest(PART, SESSIONS[0])
    vendor.faults = [(503, {}), (429, {}), (500, {})]
    assert len(store.entries(PART)) == 1
    vendor.faults = [(502, {})]  # a write that may be done is not sent again
    with pytest.raises(StoreDown, match="answered 502"):
        store.ingest(PART, SESSIONS[0])
    assert len(store.entries(PART)) == 1


@pytest.mark.parametrize(
    ("faults", "error", "says"),
    [
        ([(503, {"m": "resting"})] * 4, StoreDown, "answered 503: .*resting"),
        ([(400, {"m": "no such model"})], StoreError, "answered 400: .*no such model"),
        ([(200, b"<html>Sign in</html>")], OddReply, "no JSON: <html>"),
        ([(200, {"memories": 3})], OddReply, "has no"),
        ([(200, {"results": [{"id": 3}], "edges": [{"uuid": 3}]})], OddReply, "has no"),
    ],
)
def test_what_else_it_answers_is_a_typed_error(
    vendor: Vendor, faults: list[Any], error: type[StoreError], says: str
) -> None:
    store = store_at(vendor)
    store.open(PART)
    store.ingest(PART, SESSIONS[0])
    vendor.faults = [*faults]
    with pytest.raises(error, match=says):
        store.search(PART, "pottery", 3)


def test_nobody_there_is_down_and_a_wrong_key_is_refused(
    vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = store_at(vendor, url="http://127.0.0.1:9", timeout_s=2.0)
    with pytest.raises(StoreDown, match="Connect"):
        gone.entries(PART)
    monkeypatch.setenv("OTHER_TEST_KEY", "wrong")
    with pytest.raises(StoreError, match="401"):
        store_at(vendor, api_key_env="OTHER_TEST_KEY").entries(PART)
    monkeypatch.delenv("OTHER_TEST_KEY")
    with pytest.raises(ConfigError, match="THIRD_TEST_KEY"):
        store_at(vendor, api_key_env="THIRD_TEST_KEY")


def test_a_write_that_fails_behind_the_reply_is_an_error() -> None:
    with serving_vendor(Mem0()) as vendor:
        store = build_store(Memory(store="mem0", url=vendor.url), "unused", None)
        store.ingest(PART, SESSIONS[0])
        vendor.faults = [(200, {"status": "FAILED", "error": "quota"})]
        with pytest.raises(StoreError, match=r"failed to write a session: .*quota"):
            store.ready(PART)


def test_a_resumed_run_waits_for_what_an_earlier_process_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_vendor(Mem0()) as vendor:
        memory, processes = Memory(store="mem0", url=vendor.url, ready_s=0.01), iter("abcd")

        def resumed(lag: int, *faults: tuple[int, object]) -> Partition:
            monkeypatch.setattr(memories, "_PROCESS", next(processes))
            port._build_store.cache_clear()
            vendor.lag, vendor.faults = lag, [*faults]
            return Partition(PART, memory, str(tmp_path), {})

        for _ in range(2):
            with pytest.raises(StoreSlow):
                resumed(100).fill(SESSIONS)
        failed, n_held = (200, {"status": "FAILED"}), len(vendor.held[PART])
        with pytest.raises(StoreLost, match="failed to write a session"):
            resumed(0, failed).fill(SESSIONS)
        assert PART not in vendor.held
        resumed(0).fill(SESSIONS)
        assert len(vendor.held[PART]) == n_held


def test_a_session_is_of_its_own_date(vendor: Vendor) -> None:
    store = store_at(vendor)
    store.open(PART)
    for date in ("1:56 pm on 8 May, 2023", "some day"):
        store.ingest(PART, SESSIONS[0]._replace(date=date))
    names = {"timestamp": 1683554160, "created_at": "2023-05-08T13:56:00+00:00"}
    sent = [body for _, _, body in vendor.requests if body and ({"messages", "data"} & {*body})]
    dated = [{name: body[name] for name in names if name in body} for body in sent]
    own = {"mem0": "timestamp", "zep": "created_at"}.get(type(vendor).__name__.lower())
    assert dated == ([{own: names[own]}, {}] if own else [])


def test_a_server_that_hangs_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        store = build_store(Memory(store="zep", url=url, timeout_s=0.2), "unused", None)
        with pytest.raises(StoreSlow, match=r"no reply within 0.2 s"):
            store.search(PART, "q", 1)
