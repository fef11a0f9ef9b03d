"""Stores of local offsets below the folder of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[Callable[..., LocalFileOffsetStore]]:
    """Makes stores below tmp_path, loaded unless told; closed at the end."""
    from rocketmq_fast.consumer.local_offsets import LocalFileOffsetStore
    from tests.offset_stores import CLIENT, GROUP

    made = []

    def build(
        client: str = CLIENT, group: str = GROUP, *, load: bool = True
    ) -> LocalFileOffsetStore:
        store = LocalFileOffsetStore(client, group, tmp_path / "offsets")
        made.append(store)
        if load:
            store.load()
        return store

    yield build
    for store in made:
        store.close()
