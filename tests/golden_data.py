"""Access to the recorded vectors in `tests/golden`, and the list of who checks which file."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"

STORED = ("stored_v4_9_4", "stored_v5_3_3", "inner_batch_v5_3_3")
FRAMES = ("frames_v4_9_4_json", "frames_v4_9_4_rocketmq")
TAG_HASHES = ("tag_hash_v4_9_4",)
# Checked by the tests of what they belong to.
ELSEWHERE = ("allocation_v4_9_4", "acl_v4_9_4")
OFFSET_FILE = "offsets_v4_9_4.json"


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


def as_row(message: Any, tag_code: int) -> dict[str, Any]:
    """A decoded message, of the native core or of the reference, in the form of the files."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "flag": message.flag,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.commit_log_offset,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": "{}|{}".format(*message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": "{}|{}".format(*message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "storeSize": message.store_size,
        "bodyCRC": message.body_crc,
        "offsetMsgId": message.offset_msg_id,
        "msgId": message.msg_id,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "tags": message.tags,
        "tagsCode": tag_code,
        "keys": message.keys,
        "delayTimeLevel": message.delay_time_level,
        "properties": message.properties,
    }


def differences(found: dict[str, Any], row: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Fields of a message that are not what Java read, as (found, expected).

    Java has no body object where no bytes are stored, we have an empty one. A reader may or may
    not clear bit 0x1 of the system flag of a body that it decompressed. An unwrapped message of an
    inner batch has no size, CRC and offset id in Java.
    """
    expected = dict(row)
    found = dict(found)
    if expected["bodyLength"] == -1:
        expected["bodyLength"] = 0
        expected["bodySha256"] = hashlib.sha256(b"").hexdigest()
    for side in (found, expected):
        side["sysFlag"] &= ~1
    if expected["offsetMsgId"] is None:
        for name in ("storeSize", "bodyCRC", "offsetMsgId"):
            del found[name], expected[name]
    return {name: (found[name], expected[name]) for name in found if found[name] != expected[name]}
