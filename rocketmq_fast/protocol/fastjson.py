"""The JSON dialect of RocketMQ's bodies, read tolerantly and written where Java tools expect it.

fastjson writes maps with integer keys unquoted (`{0:"a"}`) and maps with object keys as such
(`{{"brokerName":"b","queueId":0,"topic":"t"}:12}`); its parser takes single quotes, unquoted names
and trailing commas too. Python's json reads none of that, so bodies that may hold it come here.
Only plain values come out: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import json
import re
from typing import Any

from rocketmq_fast.errors import BodyError
from rocketmq_fast.model import MessageQueue

MAX_DEPTH = 64

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/",
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_LITERALS = {"true": True, "false": False, "null": None, "NaN": None, "Infinity": None}

# A key of a map: text, a number, or an object frozen into its sorted items.
Key = str | int | float | tuple[tuple[str, Any], ...]


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def fail(self, expected: str) -> BodyError:
        found = self.text[self.pos : self.pos + 1] or "the end"
        return BodyError(f"expected {expected}, found {found!r}", self.pos)

    def peek(self) -> str:
        match = _SPACE.match(self.text, self.pos)
        if match is not None:
            self.pos = match.end()
        return self.text[self.pos : self.pos + 1]

    def accept(self, char: str) -> bool:
        if self.peek() != char:
            return False
        self.pos += 1
        return True

    def value(self, depth: int) -> Any:
        char = self.peek()
        if char in ("{", "["):
            if depth >= MAX_DEPTH:
                raise BodyError(f"nested deeper than {MAX_DEPTH}", self.pos)
            return self.object(depth + 1) if char == "{" else self.array(depth + 1)
        if char in ('"', "'"):
            return self.string()
        if char == "-" or char.isdigit():
            return self.number()
        name = _NAME.match(self.text, self.pos)
        if name is not None and name.group() in _LITERALS:
            self.pos = name.end()
            return _LITERALS[name.group()]
        raise self.fail("a value")

    def object(self, depth: int) -> dict[Key, Any]:
        self.pos += 1
        table: dict[Key, Any] = {}
        while not self.accept("}"):
            key = self.key(depth)
            if not self.accept(":"):
                raise self.fail("':'")
            table[key] = self.value(depth)
            if not self.accept(",") and self.peek() != "}":
                raise self.fail("',' or '}'")
        return table

    def array(self, depth: int) -> list[Any]:
        self.pos += 1
        items = []
        while not self.accept("]"):
            items.append(self.value(depth))
            if not self.accept(",") and self.peek() != "]":
                raise self.fail("',' or ']'")
        return items

    def key(self, depth: int) -> Key:
        char = self.peek()
        if char == "{":
            at = self.pos
            frozen = self.value(depth)
            try:
                key = tuple(sorted(frozen.items()))
                hash(key)
            except TypeError:
                raise BodyError("an object that is a map key holds a nested value", at) from None
            return key
        if char in ('"', "'"):
            return self.string()
        if char == "-" or char.isdigit():
            return self.number()
        name = _NAME.match(self.text, self.pos)
        if name is None:
            raise self.fail("a key")
        self.pos = name.end()
        return name.group()

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.pos)
        if match is None or len(match.group()) > 400:
            raise self.fail("a number")
        self.pos = match.end()
        whole = match.group(1) is None and match.group(2) is None
        return int(match.group()) if whole else float(match.group())

    def string(self) -> str:
        quote = self.text[self.pos]
        self.pos += 1
        parts = []
        while True:
            match = _PLAIN[quote].match(self.text, self.pos)
            if match is not None:
                parts.append(match.group())
                self.pos = match.end()
            char = self.text[self.pos : self.pos + 1]
            if char == quote:
                self.pos += 1
                return _join_surrogates("".join(parts))
            if char != "\\":
                raise self.fail("the end of a string")
            parts.append(self.escape())

    def escape(self) -> str:
        char = self.text[self.pos + 1 : self.pos + 2]
        if char == "u":
            digits = self.text[self.pos + 2 : self.pos + 6]
            if len(digits) != 4 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                raise self.fail("a \\u escape")
            self.pos += 6
            return chr(int(digits, 16))
        if char not in _ESCAPES:
            raise self.fail("an escape")
        self.pos += 2
        return _ESCAPES[char]


def _join_surrogates(text: str) -> str:
    """Pairs of escapes become one character, lone halves U+FFFD."""
    if not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def loads(data: bytes | str) -> Any:
    """Read a body. Maps become dicts; a key that is an object becomes a tuple of its sorted items.

    Raises BodyError with the position of what is wrong.
    """
    text = data if isinstance(data, str) else bytes(data).decode("utf-8", "replace")
    if "\\ud" not in text and "\\uD" not in text:  # lone surrogates would get through
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # not standard JSON: the dialect, or an error with its place
    reader = _Reader(text)
    value = reader.value(0)
    if reader.peek():
        raise reader.fail("the end")
    return value


def queue_of_key(key: object) -> MessageQueue:
    """The queue that a map key stands for: an object key, or text that holds its JSON.

    Raises BodyError.
    """
    if isinstance(key, str):
        table = loads(key)
        items = table.items() if isinstance(table, dict) else ()
    else:
        items = key if isinstance(key, tuple) else ()
    fields = dict(items)
    try:
        return MessageQueue(str(fields["topic"]), str(fields["brokerName"]), int(fields["queueId"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BodyError(f"{key!r} is no message queue") from None


def dumps(value: Any) -> str:
    """Write a value; dict keys may be str, int (unquoted) or MessageQueue (an object)."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_key(k)}:{dumps(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return "[" + ",".join(dumps(item) for item in value) + "]"
    if isinstance(value, MessageQueue):
        return _queue(value)
    return json.dumps(value, ensure_ascii=False)


def _key(key: object) -> str:
    if isinstance(key, MessageQueue):
        return _queue(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    return json.dumps(str(key), ensure_ascii=False)


def _queue(queue: MessageQueue) -> str:
    return json.dumps(
        {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic},
        ensure_ascii=False,
        separators=(",", ":"),
    )
