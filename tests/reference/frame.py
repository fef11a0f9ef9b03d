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
    if header_size > length - 4:
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


def decode_json_header(header: bytes) -> Command:
    """Read a JSON header; unknown keys are ignored, a missing language means JAVA."""
    try:
        fields = json.loads(header.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"JSON header cannot be read: {error}") from error
    if not isinstance(fields, dict):
        raise HeaderError("JSON header is not an object")
    ext = fields.get("extFields")
    if ext is not None and not isinstance(ext, dict):
        raise HeaderError("extFields is not an object")
    remark = fields.get("remark")
    if remark is not None and not isinstance(remark, str):
        raise HeaderError("remark is not text")
    return Command(
        code=_int(fields, "code"),
        language=_language(fields.get("language", "JAVA")),
        version=_int(fields, "version"),
        opaque=_int(fields, "opaque"),
        flag=_int(fields, "flag"),
        remark=remark,
        ext_fields={name: _text(value) for name, value in (ext or {}).items() if value is not None},
        serialize_type=JSON,
    )


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


def _int(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise HeaderError(f"{name} is not a 32-bit number")
    return value


def _language(value: object) -> str | None:
    if type(value) is int:
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else None
    return value if isinstance(value, str) and value in LANGUAGES else None


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise HeaderError("an ext value is neither text nor a number")


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
        else:
            ext.pop(name, None)
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
    try:
        return header[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise HeaderError("text is not UTF-8", start) from error


def encode_compact_header(command: Command) -> bytes:
    """Write a ROCKETMQ header."""
    if not -(1 << 15) <= command.code < 1 << 15:
        raise HeaderError(f"code {command.code} does not fit a compact header")
    remark = (command.remark or "").encode()
    block = b"".join(
        SHORT.pack(len(name)) + name + INT.pack(len(value)) + value
        for name, value in ((n.encode(), v.encode()) for n, v in command.ext_fields.items())
    )
    language = LANGUAGES.index(command.language) if command.language is not None else 0
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
            raise FrameError("the stream is corrupt until it is reset")
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
