"""The errors of the reference; their names are those of `rocketmq_fast.errors`."""

from __future__ import annotations


class CodecError(ValueError):
    """Bytes that are not what they should be, at `position`."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason} (at byte {position})")
        self.reason = reason
        self.position = position


class FrameError(CodecError):
    """The length prefix, the serialize type or the header length of a frame is wrong."""


class HeaderError(CodecError):
    """The header of a frame cannot be read."""


class MessageError(CodecError):
    """A stored message, a batch element or a compressed body cannot be read."""
