"""One frame: commands, limits of the two headers, errors."""

from __future__ import annotations

import pytest

from rocketmq_fast import _core
from rocketmq_fast.errors import FrameError, HeaderError
from tests.differential import command_fields


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_command_survives_the_wire(serialize_type: int) -> None:
    command = _core.RemotingCommand(
        310,
        {"a": "group", "i": "KEYS\x01k 1\x02TAGS\x01t", "unicode": "é好🚀"},
        b"\x00body\xff",
        opaque=-7,
        flag=2,
        remark='say "no" \\ \n',
        language="PYTHON",
        version=401,
        serialize_type=serialize_type,
    )
    again = _core.decode_frame(_core.encode_frame(command))
    assert command_fields(again) == command_fields(command)
    assert (again.is_response, again.is_oneway) == (False, True)


def test_a_bare_command_has_the_documented_defaults() -> None:
    command = _core.decode_frame(_core.encode_frame(_core.RemotingCommand(34)))
    assert command_fields(command) == {
        "code": 34,
        "language": "PYTHON",
        "version": 401,
        "opaque": 0,
        "flag": 0,
        "remark": None,
        "ext_fields": {},
        "body": b"",
        "serialize_type": 0,
    }


@pytest.mark.parametrize("code", [32768, -32769, 200_050])
def test_a_code_beyond_a_short_does_not_fit_the_compact_header(code: int) -> None:
    assert _core.decode_frame(_core.encode_frame(_core.RemotingCommand(code))).code == code
    with pytest.raises(HeaderError, match="code"):
        _core.encode_frame(_core.RemotingCommand(code, serialize_type=1))


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_null_ext_values_are_not_written(serialize_type: int) -> None:
    command = _core.RemotingCommand(1, {"a": None, "b": "x"}, serialize_type=serialize_type)
    assert _core.decode_frame(_core.encode_frame(command)).ext_fields == {"b": "x"}


def test_empty_ext_values_are_kept_by_json_and_lost_by_the_compact_header() -> None:
    command = _core.RemotingCommand(1, {"a": "", "b": "x"})
    assert _core.decode_frame(_core.encode_frame(command)).ext_fields == {"a": "", "b": "x"}
    command.serialize_type = 1
    assert _core.decode_frame(_core.encode_frame(command)).ext_fields == {"b": "x"}


@pytest.mark.parametrize("value", [1, b"x", True, ["x"]])
def test_ext_values_that_are_not_text_are_refused(value: object) -> None:
    with pytest.raises(HeaderError, match="topic"):
        _core.encode_frame(_core.RemotingCommand(1, {"topic": value}))


def test_a_lone_surrogate_is_refused_by_the_encoder() -> None:
    with pytest.raises(HeaderError, match="surrogate"):
        _core.encode_frame(_core.RemotingCommand(1, {"a": "\ud800"}))


def test_an_unknown_serialize_type_is_refused_both_ways() -> None:
    with pytest.raises(HeaderError, match="serialize type"):
        _core.encode_frame(_core.RemotingCommand(1, serialize_type=2))
    with pytest.raises(FrameError, match="serialize type"):
        _core.decode_frame(bytes.fromhex("0000000402000000"))


def test_a_header_beyond_its_limit_is_refused_both_ways() -> None:
    command = _core.RemotingCommand(1, {"a": "x" * (1 << 20)})
    with pytest.raises(FrameError, match="header"):
        _core.encode_frame(command)
    size = (1 << 20) + 1
    with pytest.raises(FrameError, match="header"):
        _core.decode_frame((4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + b" " * size)


def test_a_legal_property_string_of_full_length_fits_a_json_header() -> None:
    value = "\x01" * 32767
    command = _core.RemotingCommand(310, {"i": value})
    assert _core.decode_frame(_core.encode_frame(command)).ext_fields == {"i": value}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_decoded(kind: type) -> None:
    data = _core.encode_frame(_core.RemotingCommand(5, body=b"abc"))
    assert _core.decode_frame(kind(data)).body == b"abc"


@pytest.mark.parametrize("body", [b"abc", bytearray(b"abc"), memoryview(b"abc")])
def test_any_buffer_can_be_a_body(body: object) -> None:
    assert (
        _core.decode_frame(_core.encode_frame(_core.RemotingCommand(5, body=body))).body == b"abc"
    )


def test_text_is_no_frame() -> None:
    with pytest.raises(TypeError):
        _core.decode_frame("text")


def test_errors_name_field_and_position() -> None:
    header = b'{"code":1,"version":99999999999}'
    size = len(header)
    with pytest.raises(HeaderError, match="version") as caught:
        _core.decode_frame((4 + size).to_bytes(4, "big") + size.to_bytes(4, "big") + header)
    assert caught.value.position is not None
    assert caught.value.position >= 10
