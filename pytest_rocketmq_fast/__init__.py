"""pytest fixtures: an embedded name server and broker for a test, and a topic on it.

pytest finds this module by the entry point of the package and loads it in every run, so what it
needs of rocketmq_fast is imported by the fixtures only.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketmq_fast.embedded import Cluster

_MARKER = "rocketmq"
_QUEUES = 4
_NAME_CHARS = 100
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(queues={_QUEUES}, **settings): queues of rocketmq_topic, and settings of the "
        "embedded broker of rocketmq_cluster",
    )


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of the markers at the test, its class and its module; the nearest wins."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers(_MARKER):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{_MARKER} takes keyword arguments only")
        found = {**marker.kwargs, **found}
    return found


@pytest.fixture
def rocketmq_cluster(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A name server and a broker of this test alone, on free loopback ports.

    NAMESRV_ADDR names them while the test runs. Settings come from
    `@pytest.mark.rocketmq(delay_levels="1s 1s 1s")`; an unknown one is a TypeError.
    """
    from rocketmq_fast.embedded import Cluster

    settings = _marked(request)
    settings.pop("queues", None)
    with Cluster(**settings) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv_addr)
        yield cluster


@pytest.fixture
def rocketmq_topic(request: pytest.FixtureRequest, rocketmq_cluster: Cluster) -> str:
    """Name of a topic that was made for this test, with 4 queues, or `rocketmq(queues=...)`."""
    name = re.sub(r"[^a-zA-Z0-9_-]+", "_", request.node.name)[:_NAME_CHARS]
    topic = f"{name}_{next(_numbers)}"
    rocketmq_cluster.create_topic(topic, _marked(request).get("queues", _QUEUES))
    return topic
