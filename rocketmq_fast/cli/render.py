"""Messages as lines of text and as JSON."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Any

from rocketmq_fast import MessageExt, MessageQueue

_SHOWN_BODY = 200


def shown(queue: MessageQueue, message: MessageExt, *, as_json: bool) -> str:
    """One line. Escapes what is not printable: a message must not steer the terminal."""
    if as_json:
        return json.dumps(fields(queue, message), ensure_ascii=False)
    moment = datetime.fromtimestamp(message.born_timestamp / 1000).isoformat(" ", "milliseconds")
    body = message.body
    text = body[:_SHOWN_BODY].decode("utf-8", "backslashreplace")
    if len(body) > _SHOWN_BODY:
        text += f"... ({len(body):,} bytes)"
    tags, keys = message.tags or "-", message.keys or "-"
    return printable(f"{queue} {message.queue_offset} {moment} {tags} {keys} {text}")


def printable(text: str) -> str:
    """The text with escapes for what would not be seen, or would be obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def fields(queue: MessageQueue, message: MessageExt) -> dict[str, Any]:
    """What is told of a message; `body_base64` instead of `body` when it is no UTF-8."""
    values = {
        "topic": message.topic,
        "broker_name": queue.broker_name,
        "queue_id": queue.queue_id,
        "queue_offset": message.queue_offset,
        "born_timestamp": message.born_timestamp,
        "msg_id": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "reconsume_times": message.reconsume_times,
    }
    try:
        return {**values, "body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        return {**values, "body_base64": base64.b64encode(message.body).decode("ascii")}
