"""An embedded cluster for one test, and raw connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketmq_fast.embedded import Cluster
    from tests.embedded_raw import Raw


@pytest.fixture
def fresh_cluster() -> Iterator[Cluster]:
    """A cluster that this test alone uses."""
    from rocketmq_fast.embedded import Cluster

    with Cluster(delay_levels="1s 1s 1s 1s") as running:
        yield running


@pytest.fixture
def raw_broker(fresh_cluster: Cluster) -> Iterator[Raw]:
    """A connection to its broker."""
    from tests.embedded_raw import Raw

    with Raw(fresh_cluster.broker_addr) as raw:
        yield raw


@pytest.fixture
def raw_namesrv(fresh_cluster: Cluster) -> Iterator[Raw]:
    """A connection to its name server."""
    from tests.embedded_raw import Raw

    with Raw(fresh_cluster.namesrv_addr) as raw:
        yield raw
