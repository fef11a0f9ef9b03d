"""Lag of a streaming query, out of the progress that Spark reports."""

from __future__ import annotations

import json
from typing import Any

from rocketmq_fast.errors import ConfigError
from rocketmq_fast.model import MessageQueue
from rocketmq_fast.spark.offsets import offsets_of_table


def lag(progress: Any) -> dict[MessageQueue, int]:
    """Messages of each queue that were there and are not read yet.

    Takes a StreamingQueryProgress, as `query.lastProgress` and a StreamingQueryListener have it.
    Sources of other formats are left out.
    """
    found: dict[MessageQueue, int] = {}
    for source in progress["sources"] if isinstance(progress, dict) else progress.sources:
        newest, end = _offsets(source, "latestOffset"), _offsets(source, "endOffset")
        for queue, offset in newest.items():
            found[queue] = max(0, offset - end.get(queue, 0))
    return found


def _offsets(source: Any, name: str) -> dict[MessageQueue, int]:
    value = source.get(name) if isinstance(source, dict) else getattr(source, name)
    try:
        table = json.loads(value) if isinstance(value, str) else value
        return offsets_of_table(table or {})
    except (ValueError, ConfigError):
        return {}  # of another format
