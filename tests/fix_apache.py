"""Session fixtures: the real brokers, started when a test first asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apache import QUICK_CHECKS, SHORT_DELAYS, ApacheCluster, ArtifactError, jars
from tests.require import missing, require


def _cluster(version: str) -> Iterator[ApacheCluster]:
    require("apache")
    try:
        jars(version)
    except ArtifactError as error:
        missing("apache", str(error))
    # What starts from here on must work: a broker that does not start is a failure.
    properties = {"enablePropertyFilter": "true", **SHORT_DELAYS, **QUICK_CHECKS}
    with ApacheCluster(version, properties) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def apache_494() -> Iterator[ApacheCluster]:
    """A 4.9.4 cluster shared by the session: short delay levels, property filters, quick checks."""
    yield from _cluster("4.9.4")


@pytest.fixture(scope="session")
def apache_533() -> Iterator[ApacheCluster]:
    """A 5.3.3 cluster shared by the session: short delay levels, property filters, quick checks."""
    yield from _cluster("5.3.3")
