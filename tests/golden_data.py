"""Access to the recorded vectors in `tests/golden`, and the list of who checks which file."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"

STORED = ("stored_v4_9_4", "stored_v5_3_3", "inner_batch_v5_3_3")
FRAMES = ("frames_v4_9_4_json", "frames_v4_9_4_rocketmq")
TAG_HASHES = ("tag_hash_v4_9_4",)
# Checked by the tests of what they belong to.
ELSEWHERE = ("allocation_v4_9_4", "acl_v4_9_4")


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a `.jsonl` file."""
    text = (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def stored_bytes(name: str) -> bytes:
    """The messages of a `.bin` file."""
    return (GOLDEN / f"{name}.bin").read_bytes()


def frames(name: str) -> list[tuple[dict[str, Any], bytes]]:
    """Each recorded frame with its description."""
    return [(row, base64.b64decode(row["frame"])) for row in rows(name)]
