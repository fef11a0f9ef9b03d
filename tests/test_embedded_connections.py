"""Idle clients at the embedded servers, fewer than `python -m benchmarks.embedded` has."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from benchmarks.embedded import EmbeddedProcess, markdown
from benchmarks.embedded_connections import (
    BROKER,
    NAME_SERVER,
    measure_connections,
    raise_file_limit,
)
from benchmarks.measure import circumstances


@pytest.mark.parametrize("server", [NAME_SERVER, BROKER])
def test_idle_clients_are_served(server: str, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 400 if hard == resource.RLIM_INFINITY else min(400, hard // 2)
    process = EmbeddedProcess(tmp_path)
    try:
        row = measure_connections(process, server, count, idle_seconds=0.0)
    finally:
        process.end(signal.SIGTERM)
    assert (row["server"], row["connections"]) == (server, count)
    head = circumstances("benchmarks.embedded", [])
    assert f"| {count} at the {server} | " in markdown({"idle": {**head, "rows": [row]}})


def test_too_low_a_file_limit_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    with pytest.raises(SystemExit, match="10,000 connections need 10,100 open files"):
        raise_file_limit(10_000)
