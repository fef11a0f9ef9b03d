"""Tag expressions and the Java hash of a tag."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# String.trim() of Java takes off everything up to and including the blank, and nothing else.
JAVA_BLANKS = "".join(map(chr, range(0x21)))


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def parse_expression(expression: str | None) -> frozenset[str] | None:
    """The tags of an expression, None for "all of them"; ValueError if it is only separators."""
    if expression is None or expression in ("", "*"):
        return None
    if not expression.replace("||", ""):
        raise ValueError("a tag expression of separators only names no tag")
    trimmed = (part.strip(JAVA_BLANKS) for part in expression.split("||"))
    return frozenset(tag for tag in trimmed if tag)


class TagFilter:
    """Exact tag filter of a subscription expression."""

    def __init__(self, expression: str | None) -> None:
        self.tags = parse_expression(expression)
        self.codes = frozenset(map(java_hash, self.tags or ()))

    def matches(self, tag: str | None) -> bool:
        """Whether a message with this tag is wanted; one without a tag matches no list."""
        if self.tags is None:
            return True
        return tag is not None and tag in self.tags

    def mask(self, tags: Iterable[str | None]) -> list[bool]:
        """`matches` for each tag."""
        return [self.matches(tag) for tag in tags]
