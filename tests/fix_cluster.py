"""Fixtures: the brokers that contract tests run on, embedded, Apache 4.9.4 and Apache 5.3.3.

The package is imported when a fixture is used: where nothing is built yet, tests that do not need
it run, and the others say why they cannot.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketmq_fast.embedded import Cluster
    from tests.apache import ApacheCluster
    from tests.brokers import TestBroker, Wire
    from tests.proxy import ProxiedCluster

BROKERS = ("embedded", "apache_494", "apache_533")
# The levels of the Apache clusters of fix_apache, so that a retry takes as long everywhere.
DELAY_LEVELS = "1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s"


@pytest.fixture(scope="session")
def wire() -> Iterator[Wire]:
    """Raw requests, for all tests."""
    from tests.brokers import Wire

    connections = Wire()
    yield connections
    connections.close()


@pytest.fixture(scope="session")
def embedded() -> Iterator[Cluster]:
    """An embedded cluster shared by the session, with short delay levels."""
    from rocketmq_fast.embedded import Cluster

    with Cluster(delay_levels=DELAY_LEVELS, enable_property_filter=True) as cluster:
        yield cluster


@pytest.fixture(
    params=[
        pytest.param("embedded"),
        pytest.param("apache_494", marks=pytest.mark.apache),
        pytest.param("apache_533", marks=pytest.mark.apache),
    ]
)
def broker(request: pytest.FixtureRequest, wire: Wire) -> TestBroker:
    """Each kind of broker in turn; the results make the matrix at the end of the run."""
    from tests.brokers import TestBroker

    made = TestBroker(request.param, request.getfixturevalue(request.param), wire)
    made.for_test(request.node.originalname)
    return made


@pytest.fixture
def proxied(broker: TestBroker) -> Iterator[ProxiedCluster]:
    """The test's broker and name server behind proxies."""
    with broker.proxied() as cluster:
        yield cluster


@pytest.fixture
def embedded_broker(request: pytest.FixtureRequest, embedded: Cluster, wire: Wire) -> TestBroker:
    """The embedded broker alone: for tests of the client that no broker can influence."""
    from tests.brokers import TestBroker

    made = TestBroker("embedded", embedded, wire)
    made.for_test(request.node.originalname)
    return made


@pytest.fixture
def embedded_proxied(embedded_broker: TestBroker) -> Iterator[ProxiedCluster]:
    """The embedded servers behind proxies."""
    with embedded_broker.proxied() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def short_locks_embedded() -> Iterator[Cluster]:
    """An embedded cluster that frees a dead member's locks after 3 s instead of 60 s."""
    from rocketmq_fast.embedded import Cluster

    with Cluster(delay_levels=DELAY_LEVELS, lock_expiry_ms=3000) as cluster:
        yield cluster


def _locks_of_3_seconds(version: str) -> Iterator[ApacheCluster]:
    from tests.apache import ApacheCluster
    from tests.require import require

    require("apache")
    option = "-Drocketmq.broker.rebalance.lockMaxLiveTime=3000"
    with ApacheCluster(version, jvm_options=(option,)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def short_locks_494() -> Iterator[ApacheCluster]:
    """As ``short_locks_embedded``, of Apache 4.9.4."""
    yield from _locks_of_3_seconds("4.9.4")


@pytest.fixture(scope="session")
def short_locks_533() -> Iterator[ApacheCluster]:
    """As ``short_locks_embedded``, of Apache 5.3.3."""
    yield from _locks_of_3_seconds("5.3.3")


@pytest.fixture(
    params=[
        pytest.param("short_locks_embedded", id="embedded"),
        pytest.param("short_locks_494", marks=pytest.mark.apache, id="apache_494"),
        pytest.param("short_locks_533", marks=pytest.mark.apache, id="apache_533"),
    ]
)
def short_locks(request: pytest.FixtureRequest, wire: Wire) -> TestBroker:
    """Brokers that free a dead member's locks after 3 s."""
    from tests.brokers import TestBroker

    found = TestBroker(request.param, request.getfixturevalue(request.param), wire)
    found.for_test(request.node.originalname)
    return found
