"""Remoting frames with JSON and compact ROCKETMQ headers.

| offset | size | content |
|---|---|---|
| 0 | 4 | length of what follows |
| 4 | 1 | serialize type: 0 JSON, 1 ROCKETMQ |
| 5 | 3 | header length |
| 8 | header length | header |
| 8 + header length | rest | body |
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from .errors import FrameError, HeaderError

MAX_FRAME = 16_777_216
MAX_HEADER = 1 << 20
MAX_DEPTH = 64
JSON, ROCKETMQ = 0, 1
LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY"),
    *("OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS"),
)

PREFIX = struct.Struct(">iI")
# code 2, language 1, version 2, opaque 4, flag 4, remark length 4
COMPACT_HEAD = struct.Struct(">hBhiii")
COMPACT_MIN = COMPACT_HEAD.size + 4
INT = struct.Struct(">i")
SHORT = struct.Struct(">h")


@dataclass(slots=True)
class Command:
    """A request or a response."""

    code: int
    language: str | None = "JAVA"
    version: int = 0
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    serialize_type: int = JSON


def decode_frame(data: bytes) -> Command:
    """Read one whole frame, length prefix included."""
    if len(data) < PREFIX.size:
        raise FrameError("frame is cut off", 0)
    length, _ = PREFIX.unpack_from(data, 0)
    check_length(length, MAX_FRAME)
    if length != len(data) - 4:
        raise FrameError(f"frame length {length} does not match {len(data) - 4} bytes", 0)
    return _decode_content(data, 0, length)


def check_length(length: int, max_frame: int) -> None:
    """Refuse the length prefix of a frame that cannot be."""
    if not 4 <= length <= max_frame - 4:
        raise FrameError(f"frame length {length} is out of range", 0)


def _decode_content(data: bytes, start: int, length: int) -> Command:
    _, mark = PREFIX.unpack_from(data, start)
    kind, header_size = mark >> 24, mark & 0xFFFFFF
    if header_size > min(length - 4, MAX_HEADER):
        raise FrameError(f"header length {header_size} is beyond the frame", start + 5)
    header_at = start + PREFIX.size
    header = data[header_at : header_at + header_size]
    if kind == JSON:
        command = decode_json_header(header)
    elif kind == ROCKETMQ:
        command = decode_compact_header(header)
    else:
        raise FrameError(f"unknown serialize type {kind}", start + 4)
    command.body = data[header_at + header_size : start + 4 + length]
    return command


def encode_frame(command: Command) -> bytes:
    """Write one frame, length prefix included."""
    compact = command.serialize_type == ROCKETMQ
    header = encode_compact_header(command) if compact else encode_json_header(command)
    length = 4 + len(header) + len(command.body)
    return PREFIX.pack(length, command.serialize_type << 24 | len(header)) + header + command.body


# ------------------------------------------------------------------------------------ JSON header


class _Number(str):
    """A JSON number as it was written."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object in their order, duplicates included."""


def decode_json_header(header: bytes) -> Command:
    """Read a JSON header; unknown keys are ignored, a missing language means JAVA.

    A byte that is not UTF-8 and a lone surrogate become U+FFFD, as for Java. Of duplicate members
    the last one wins.
    """
    try:
        fields = json.loads(
            header.decode("utf-8", "replace"),
            object_pairs_hook=_Object,
            parse_int=_Number,
            parse_float=_Number,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"JSON header cannot be read: {error}") from error
    if not isinstance(fields, _Object):
        raise HeaderError("JSON header is not an object")
    command = Command(code=0)
    has_code = False
    for name, value in fields:
        if name == "code":
            command.code = _int(name, value)
            has_code = True
        elif name == "version":
            command.version = _int(name, value)
        elif name == "opaque":
            command.opaque = _int(name, value)
        elif name == "flag":
            command.flag = _int(name, value)
        elif name == "language":
            command.language = _language(value)
        elif name == "remark":
            command.remark = None if value is None else _text(name, value)
        elif name == "extFields":
            _read_ext(value, command.ext_fields)
        elif _depth(value) > MAX_DEPTH:
            raise HeaderError(f"{name} is nested deeper than {MAX_DEPTH}")
    if not has_code:
        raise HeaderError("code is missing")
    return command


def _read_ext(value: object, ext: dict[str, str]) -> None:
    if value is None:
        return
    if not isinstance(value, _Object):
        raise HeaderError("extFields is not an object")
    for name, text in value:
        if text is not None:
            ext[_no_surrogates(name)] = _text("extFields", text)


def encode_json_header(command: Command) -> bytes:
    """Write a JSON header with sorted keys; null fields are left out."""
    fields: dict[str, Any] = {
        "code": command.code,
        "flag": command.flag,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.language is not None:
        fields["language"] = command.language
    if command.remark is not None:
        fields["remark"] = command.remark
    if command.ext_fields:
        fields["extFields"] = command.ext_fields
    return json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _int(name: str, value: object) -> int:
    if isinstance(value, _Number) and value.lstrip("-").isdecimal():
        number = int(value)
        if -(1 << 31) <= number < 1 << 31:
            return number
    raise HeaderError(f"{name} is not a 32-bit number")


def _language(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, _Number):
        ordinal = _int("language", value)
        return LANGUAGES[ordinal] if 0 <= ordinal < len(LANGUAGES) else None
    if isinstance(value, str):
        return value if value in LANGUAGES else None
    raise HeaderError("language is neither a name nor a number")


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return _no_surrogates(str(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    raise HeaderError(f"{name} holds neither text nor a number")


def _no_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return "".join("\ufffd" if "\ud800" <= unit <= "\udfff" else unit for unit in text)


def _depth(value: object) -> int:
    deepest = 0
    open_values = [(value, 1)]
    while open_values:
        at, depth = open_values.pop()
        if isinstance(at, _Object):
            deepest = max(deepest, depth)
            open_values.extend((member, depth + 1) for _, member in at)
        elif isinstance(at, list):
            deepest = max(deepest, depth)
            open_values.extend((member, depth + 1) for member in at)
    return deepest


# --------------------------------------------------------------------------------- compact header


def decode_compact_header(header: bytes) -> Command:
    """Read a ROCKETMQ header; zero-length texts are missing, the last duplicate wins."""
    if len(header) < COMPACT_MIN:
        raise HeaderError("compact header is cut off", len(header))
    code, language, version, opaque, flag, remark_size = COMPACT_HEAD.unpack_from(header, 0)
    at = COMPACT_HEAD.size
    if not 0 <= remark_size <= len(header) - COMPACT_MIN:
        raise HeaderError(f"remark length {remark_size} is out of range", at)
    remark = _utf8(header, at, at + remark_size)
    at += remark_size
    (ext_size,) = INT.unpack_from(header, at)
    at += INT.size
    if not 0 <= ext_size <= len(header) - at:
        raise HeaderError(f"ext block length {ext_size} is out of range", at)
    end = at + ext_size
    ext: dict[str, str] = {}
    while at < end:
        name, at = _ext_text(header, at, end, SHORT)
        value, at = _ext_text(header, at, end, INT)
        if name and value:
            ext[name] = value
    return Command(
        code=code,
        language=LANGUAGES[language] if language < len(LANGUAGES) else None,
        version=version,
        opaque=opaque,
        flag=flag,
        remark=remark or None,
        ext_fields=ext,
        serialize_type=ROCKETMQ,
    )


def _ext_text(header: bytes, at: int, end: int, width: struct.Struct) -> tuple[str, int]:
    if end - at < width.size:
        raise HeaderError("ext block is cut off", at)
    (size,) = width.unpack_from(header, at)
    at += width.size
    if not 0 <= size <= end - at:
        raise HeaderError(f"ext text length {size} is out of range", at)
    return _utf8(header, at, at + size), at + size


def _utf8(header: bytes, start: int, end: int) -> str:
    return header[start:end].decode("utf-8", "replace")


def encode_compact_header(command: Command) -> bytes:
    """Write a ROCKETMQ header."""
    if not -(1 << 15) <= command.code < 1 << 15:
        raise HeaderError(f"code {command.code} does not fit a compact header")
    remark = (command.remark or "").encode()
    block = b"".join(
        SHORT.pack(len(name)) + name + INT.pack(len(value)) + value
        for name, value in ((n.encode(), v.encode()) for n, v in command.ext_fields.items())
    )
    language = LANGUAGES.index(command.language or "OTHER")
    head = COMPACT_HEAD.pack(
        command.code, language, command.version, command.opaque, command.flag, len(remark)
    )
    return head + remark + INT.pack(len(block)) + block


# ---------------------------------------------------------------------------------------- stream


class FrameSplitter:
    """Cuts a stream into frames; after corruption it refuses input until `reset`."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self.max_frame = max_frame
        self._buffer = bytearray()
        self._broken: FrameError | HeaderError | None = None

    @property
    def pending(self) -> int:
        """Bytes of the frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Command]:
        """The frames that became complete; raises FrameError or HeaderError."""
        if self._broken is not None:
            raise self._broken
        self._buffer += data
        commands = []
        at = 0
        try:
            while len(self._buffer) - at >= 4:
                (length,) = INT.unpack_from(self._buffer, at)
                check_length(length, self.max_frame)
                if len(self._buffer) - at < 4 + length:
                    break
                commands.append(decode_frame(bytes(self._buffer[at : at + 4 + length])))
                at += 4 + length
        except (FrameError, HeaderError) as error:
            self._broken = error
            if not commands:
                raise
        del self._buffer[:at]
        return commands

    def reset(self) -> None:
        """Forget everything, also that the stream was corrupt."""
        self._buffer.clear()
        self._broken = None
