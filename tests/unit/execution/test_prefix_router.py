"""Which engine answers rows that begin alike, and how a block is cut for it."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from memray_eval.execution.prefix_router import SPARE, PrefixAsk, PrefixRouter
from memray_eval.execution.prompt_stage import PREFIX, _prefix_of
from memray_eval.execution.ray.engine_client import split_by_prefix
from tests.build import build_sample

ENGINES = ("e1", "e2", "e3", "e4")
SESSIONS = [f"s{n}" for n in range(90)]


def asking(prefix: str, client: str = "e1", rows: int = 1) -> PrefixAsk:
    return PrefixAsk("p", client, client, prefix, rows, places=16)


def router_of(*engines: str) -> PrefixRouter:
    router = PrefixRouter()
    for engine in engines:
        router.place(asking(f"first of {engine}", engine))
        router.forget_client(engine)
    return router


def homes(router: PrefixRouter) -> dict[str, str]:
    """The engine of each session, if nothing else is under way."""
    found = {}
    for session in SESSIONS:
        found[session] = router.place(asking(session))
        router.record_answered("e1", found[session], 1)
    return found


def test_a_beginning_stays_with_an_engine_and_moves_only_if_that_is_lost() -> None:
    router = router_of(*ENGINES)
    before = homes(router)
    assert homes(router) == before == homes(router_of(*reversed(ENGINES)))
    assert min(Counter(before.values()).values()) > 10
    router.lose("p", "e2")
    after = homes(router)
    moved = {session for session in SESSIONS if before[session] != after[session]}
    assert moved == {session for session in SESSIONS if before[session] == "e2"}
    router.place(asking("any", "e2"))  # it is up again
    router.forget_client("e2")
    assert homes(router) == after


def test_an_engine_above_the_bound_passes_on() -> None:
    router, asked = router_of(*ENGINES), Counter[str]()
    for _ in range(100):
        asked[router.place(asking("hot"))] += 1
    assert set(asked) == set(ENGINES)
    assert max(asked.values()) <= SPARE * 100 / len(ENGINES) + 1
    assert Counter(asked).most_common(1)[0][0] == router_of(*ENGINES).place(asking("hot"))


def test_a_client_that_was_lost_holds_no_rows_once_it_is_back() -> None:
    router = router_of(*ENGINES)
    home = router.place(asking("a", "e3", rows=500))
    assert router.place(asking("a", "e1")) != home
    router.forget_client("e3")
    assert router.place(asking("a", "e1")) == home


def test_rows_placed_before_the_counter_was_restarted_are_not_counted_off() -> None:
    router = router_of(*ENGINES)
    home = router.place(asking("a"))
    router.record_answered("e1", home, 400)
    placed = Counter(router.place(asking("a")) for _ in range(100))
    assert max(placed.values()) <= SPARE * 100 / len(ENGINES) + 1


def test_no_engine_is_known() -> None:
    assert PrefixRouter().place(asking("a")._replace(own="")) == ""


@pytest.mark.parametrize(
    ("prefixes", "parts"),
    [
        ("aaabb", ["aaa", "bb"]),
        ("abcdd", ["abc", "dd"]),
        ("aabcd", ["aa", "bcd"]),
        ("--a-", ["--", "a-"]),
        ("", [""]),
    ],
)
def test_a_block_is_cut_by_what_rows_begin_with(prefixes: str, parts: list[str]) -> None:
    column = pa.array([None if prefix == "-" else prefix for prefix in prefixes], pa.string())
    cut = split_by_prefix(pa.table({PREFIX: column}))
    assert ["".join(value or "-" for value in part[PREFIX].to_pylist()) for part in cut] == parts


def turn(session: str, number: int) -> dict[str, object]:
    return {"metadata": {"session": session, "turn": number}}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (
            turn("s", 1),
            turn("s", 2),
            True,
        ),
        (
            turn("s", 1),
            turn("t", 1),
            False,
        ),
        ({"context": "Long. " * 1000}, {"context": "Long. " * 1001}, True),
        ({"context": "One."}, {"context": "Another."}, False),
        ({}, {}, True),
        ({"metadata": {"session": "of a table"}}, {}, True),
    ],
)
def test_prompts_that_begin_alike_have_one_prefix(
    one: dict[str, object], other: dict[str, object], is_same: bool
) -> None:
    first, second = (_prefix_of(build_sample(**fields)) for fields in (one, other))
    assert (first == second) is is_same
    assert (first is None) is not ("context" in one or "turn" in str(one))
