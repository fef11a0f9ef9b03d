"""Reading requests and making answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rocketmq_fast._core import RemotingCommand
from rocketmq_fast.errors import RocketMQError
from rocketmq_fast.protocol.codes import FLAG_RESPONSE, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


class Refused(RocketMQError):
    """A request that is answered with an error code."""

    def __init__(self, code: int, remark: str, ext_fields: dict[str, str] | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.ext_fields = ext_fields


class Malformed(Refused):
    """A request that misses something or says nonsense.

    In the Java broker that is an exception outside of the handler: the answer has no fields and a
    JSON header always.
    """

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, remark)


def answer(
    request: RemotingCommand,
    code: int = ResponseCode.SUCCESS,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
    remark: str | None = None,
    *,
    json_header: bool = False,
) -> RemotingCommand:
    """Make a response, with the header type of the request as a 4.9.4 server does.

    `json_header` is for answers that 4.9.4 makes outside of the request: they are JSON always.
    """
    return RemotingCommand(
        int(code),
        ext_fields,
        body,
        opaque=request.opaque,
        flag=FLAG_RESPONSE,
        remark=remark,
        serialize_type=0 if json_header else request.serialize_type,
    )


def _number(fields: Mapping[str, str], name: str, bounds: tuple[int, int]) -> int:
    text = fields.get(name)
    if text is None:
        raise Malformed(f"the request lacks the field {name}")
    try:
        value = int(text)
    except ValueError:
        value = bounds[1] + 1
    if not bounds[0] <= value <= bounds[1]:
        raise Malformed(f"the field {name} is {text[:40]!r}, not a number")
    return value


def int32(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a 32-bit field; refuses a malformed one, and a missing one without default."""
    if default is not None and name not in fields:
        return default
    return _number(fields, name, _INT32)


def int64(fields: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return a 64-bit field; refuses as int32()."""
    if default is not None and name not in fields:
        return default
    return _number(fields, name, _INT64)


def text(fields: Mapping[str, str], name: str) -> str:
    """Return a text field; refuses the request without it."""
    value = fields.get(name)
    if value is None:
        raise Malformed(f"the request lacks the field {name}")
    return value


def boolean(fields: Mapping[str, str], name: str) -> bool:
    """Return a boolean field as Java parses it: everything but "true" is false."""
    return fields.get(name, "").lower() == "true"


def json_body(request: RemotingCommand) -> dict[str, Any]:
    """Return the JSON object in the body of a request; refuses the request without one."""
    try:
        value = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        reason = str(error)
    else:
        if isinstance(value, dict):
            return value
        reason = "not an object"
    raise Malformed(f"the body of request {request.code}: {reason}")


def items_of(value: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return a list of objects in a JSON body; a missing one is empty."""
    items = value.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Malformed(f"{name} is not a list of objects")
    return items


def dump(value: object) -> bytes:
    """Return JSON as Java's fastjson writes it: compact, keys sorted, not only ASCII."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def dump_int_keys(table: Mapping[int, object]) -> str:
    """Return a JSON object with bare integers as keys (fastjson's form of Map<Integer, ...>)."""
    return "{" + ",".join(f"{key}:{dump(value).decode()}" for key, value in table.items()) + "}"


def dump_queue_keys(pairs: Iterable[tuple[str, str, int, object]]) -> str:
    """Return a JSON object keyed by queues: (topic, broker name, queue id, value)."""
    parts = []
    for topic, broker_name, queue_id, value in pairs:
        key = dump({"brokerName": broker_name, "queueId": queue_id, "topic": topic}).decode()
        parts.append(f"{key}:{dump(value).decode()}")
    return "{" + ",".join(parts) + "}"


def parse_properties(encoded: str | None) -> dict[str, str]:
    """Return the properties in a property string, by the rules of Java's reader."""
    if not encoded:
        return {}
    table = {}
    for item in encoded.split("\x02"):
        name, mark, value = item.partition("\x01")
        if mark and name and value:
            table[name] = value
    return table


def format_properties(table: Mapping[str, str]) -> bytes:
    """Return a property string, without a separator at the end as 4.9.4 writes it."""
    return "\x02".join([f"{name}\x01{value}" for name, value in table.items()]).encode()
