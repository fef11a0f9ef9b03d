"""The property string: `name \\x01 value \\x02 name \\x01 value ...`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE = "\x01"
ENTRY_END = "\x02"
MAX_BYTES = 32767


def decode_properties(data: bytes) -> dict[str, str]:
    """Read a property string as Java does.

    The first `\\x01` splits an entry. Entries without a name or without a value are dropped, a
    later duplicate wins, and a `\\x02` at the end is neither needed nor wrong.
    """
    properties: dict[str, str] = {}
    for entry in data.decode("utf-8", "replace").split(ENTRY_END):
        name, _, value = entry.partition(NAME_VALUE)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str], *, trailing: bool = True) -> bytes:
    """Write a property string, with a final `\\x02` as 5.x does, or without as 4.9.4 does."""
    text = ENTRY_END.join(name + NAME_VALUE + value for name, value in properties.items())
    if text and trailing:
        text += ENTRY_END
    return text.encode("utf-8")
