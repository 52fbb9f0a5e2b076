"""A plan from the command line's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memray_eval.benchmarks.generator.plan import even_depths, length_of, plan_of
from memray_eval.benchmarks.generator.question_order import length_label
from memray_eval.benchmarks.needles.generator.tasks import NEEDLES, TASKS
from memray_eval.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("4096", 4096), ("4k", 4096), ("128K", 131072), ("1M", 1048576), ("1500", 1500)],
)
def test_lengths(text: str, tokens: int) -> None:
    assert length_of(text) == tokens


@given(st.integers(1, 3 * 2**20))
def test_a_label_is_read_back(length: int) -> None:
    assert length_of(length_label(length)) == length


@pytest.mark.parametrize("text", ["", "0", "k", "4x", "-1", "4.5k", "1kk", "٤"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(ConfigError, match="not a length"):
        length_of(text)


def test_depths_are_even() -> None:
    assert even_depths(11) == (0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    assert even_depths(4) == (0, 33, 67, 100)
    assert even_depths(1) == (50,)


@given(st.integers(2, 101))
def test_depths_differ_and_reach_both_ends(n: int) -> None:
    depths = even_depths(n)
    assert (len(set(depths)), depths[0], depths[-1]) == (n, 0, 100)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ({"tasks": "passkey,foo"}, "--tasks: no 'foo'; there are: passkey"),
        ({"languages": "de"}, "--languages: no 'de'; there are: en, zh"),
        ({"lengths": " , "}, "--lengths names nothing"),
        ({"depths": 0}, "--depths 0"),
        ({"depths": 102}, "--depths 102"),
        ({"samples": 0}, "--samples 0"),
    ],
)
def test_bad_words_are_named(words: dict[str, object], named: str) -> None:
    good = {
        "tasks": "all",
        "languages": "en",
        "lengths": "4k",
        "depths": 3,
        "samples": 1,
        "seed": 0,
    }
    with pytest.raises(ConfigError, match=named):
        plan_of(NEEDLES, **(good | words))  # type: ignore[arg-type]


def test_every_sample_has_its_own_id_and_their_number_is_known() -> None:
    plan = plan_of(NEEDLES, "all", "en,zh", "4k,5000", 3, 2, 0)
    orders = [order for group in plan.groups() for order in plan.orders(*group)]
    assert len({order.id for order in orders}) == len(orders) == plan.n_samples
    assert {order.task for order in orders if order.depth is None} == {
        task for task in TASKS if not TASKS[task].has_depth
    }
    assert "passkey-en-4k-d50-0" in {order.id for order in orders}
    assert "cwe-zh-5000-1" in {order.id for order in orders}
