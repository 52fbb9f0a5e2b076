"""How a cluster's address is taken. Clusters themselves: tests/ray."""

from __future__ import annotations

import pytest

from memray_eval.config.sections import ClusterConfig
from memray_eval.errors import ConfigError
from memray_eval.execution.ray.cluster import connected


@pytest.mark.parametrize("address", ["head", "http://head:8265", "127.0.0.1:port"])
def test_what_is_no_address_is_a_message(address: str) -> None:
    with (
        pytest.raises(ConfigError, match=r"cluster\.address .*: write auto, or HEAD:6379"),
        connected(ClusterConfig(address=address)),
    ):
        pytest.fail("connected")
