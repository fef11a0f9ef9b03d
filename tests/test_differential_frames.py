"""The native frame codec and the reference agree, on right frames and on wrong ones."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_fast import _core
from rocketmq_fast.errors import FrameError, HeaderError
from tests import golden_data
from tests.differential import command_fields, mutations, outcome
from tests.reference import errors as reference_errors
from tests.reference import frame as reference


def native_outcome(data: bytes) -> tuple[str, Any]:
    return outcome(lambda: command_fields(_core.decode_frame(data)), FrameError, HeaderError)


def reference_outcome(data: bytes) -> tuple[str, Any]:
    return outcome(
        lambda: command_fields(reference.decode_frame(data)),
        reference_errors.FrameError,
        reference_errors.HeaderError,
    )


def assert_same(data: bytes) -> str:
    expected = reference_outcome(data)
    assert native_outcome(data) == expected, data
    return expected[0]


def frame_of(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    mark = serialize_type << 24 | len(header)
    return reference.PREFIX.pack(4 + len(header) + len(body), mark) + header + body


int32 = st.integers(-(1 << 31), (1 << 31) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ext_fields = st.dictionaries(text, text, max_size=8)


@st.composite
def commands(draw: st.DrawFn) -> reference.Command:
    kind = draw(st.sampled_from([0, 1]))
    short = st.integers(-(1 << 15), (1 << 15) - 1)
    return reference.Command(
        code=draw(short if kind else int32),
        language=draw(st.sampled_from(reference.LANGUAGES)),
        version=draw(short if kind else int32),
        opaque=draw(int32),
        flag=draw(int32),
        remark=draw(st.none() | text),
        ext_fields=draw(ext_fields),
        body=draw(st.binary(max_size=100)),
        serialize_type=kind,
    )


def native_of(command: reference.Command) -> Any:
    fields = command_fields(command)
    return _core.RemotingCommand(
        fields.pop("code"), fields.pop("ext_fields"), fields.pop("body"), **fields
    )


@given(commands())
@settings(max_examples=200, deadline=None)
def test_each_codec_reads_what_the_other_wrote(command: reference.Command) -> None:
    by_reference = reference.encode_frame(command)
    by_native = _core.encode_frame(native_of(command))
    assert assert_same(by_reference) == assert_same(by_native) == "value"
    assert native_outcome(by_native) == native_outcome(by_reference)
    if command.serialize_type == 1:
        assert by_native == by_reference


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
header_names = st.sampled_from(
    ["code", "language", "version", "opaque", "flag", "remark", "extFields", "other", "Code"]
)


@given(st.dictionaries(header_names, json_values, max_size=9), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_json_object_as_header_gives_the_same_command_or_error(
    fields: dict[str, Any], ascii_only: bool, with_code: bool
) -> None:
    if with_code:
        fields["code"] = 5
    header = json.dumps(fields, ensure_ascii=ascii_only, indent=1 if ascii_only else None)
    assert_same(frame_of(header.encode()))


JSON_HEADERS = [
    b'{"code":1}',
    b' { "code" : 1 , "x" : [ 1 , {"a":[]} , -1.5e+3 , true , null ] } ',
    b'{"code":1,"language":3}',
    b'{"code":1,"language":99}',
    b'{"code":1,"language":"KLINGON"}',
    b'{"code":1,"language":null}',
    b'{"code":1,"language":true}',
    b'{"code":1,"language":[]}',
    b'{"code":1,"extFields":{"a":1,"b":true,"c":null,"d":1.5,"e":"","":"x"}}',
    b'{"code":1,"extFields":{"a":"1","a":"2"}}',
    b'{"code":1,"extFields":{"a":{}}}',
    b'{"code":1,"extFields":[]}',
    b'{"code":1,"extFields":null}',
    b'{"code":1,"extFields":"x"}',
    b'{"code":1,"remark":5}',
    b'{"code":1,"remark":"\\u00e9\\ud83d\\ude80\\ud83d\\n\\"\\\\\\/"}',
    b'{"code":1,"remark":"\xff\xc3"}',
    b'{"code":1,"remark":"\\x41"}',
    b'{"code":1,"remark":"\\u12g4"}',
    b'{"code":1,"remark":"a\x00b"}',
    b'{"code":1,"remark":"a\nb"}',
    b'{"code":1,"remark":"\x7f\xe2\x80\xa8"}',
    b'{"code":2147483647,"opaque":-2147483648}',
    b'{"code":2147483648}',
    b'{"code":-2147483649}',
    b'{"code":99999999999999999999999}',
    b'{"code":1.0}',
    b'{"code":1e3}',
    b'{"code":01}',
    b'{"code":-}',
    b'{"code":+1}',
    b'{"code":-0}',
    b'{"code":"1"}',
    b'{"code":null}',
    b'{"code":true}',
    b'{"code":NaN}',
    b'{"code":1,"x":NaN}',
    b'{"code":1,"x":-Infinity}',
    b'{"code":1,"x":1-2}',
    b'{"code":1,"x":.5}',
    b'{"code":1,"x":5.}',
    b'{"code":1,"x":00}',
    b'{"code":1,"x":1e}',
    b'{"code":1,"extFields":{"a":--1}}',
    b'{"code":1,"extFields":{"a":1e400}}',
    b'{"code":1,}',
    b'{"code":1,"x":[1,]}',
    b'{"code":1 "x":1}',
    b'{"code":1}x',
    b'{"code":1}{}',
    b'{"code":1',
    b"{code:1}",
    b"{'code':1}",
    b"{}",
    b"[]",
    b"[1]",
    b"null",
    b"1",
    b'"x"',
    b"",
    b" ",
    b"\x00",
    b'\xef\xbb\xbf{"code":1}',
    b'{"code":1,"x":tru}',
    b'{"code":1,"x":nullx}',
    b'{"c\\u006fde":1}',
    b'{"code":1,"x":' + b"[" * 63 + b"]" * 63 + b"}",
    b'{"code":1,"x":' + b"[" * 64 + b"]" * 64 + b"}",
    b'{"code":1,"x":' + b"[" * 65 + b"]" * 65 + b"}",
    b'{"code":1,"x":' + b'{"a":' * 65 + b"1" + b"}" * 65 + b"}",
    b'{"code":1,"x":' + b"[" * 100_000 + b"}",
]


@pytest.mark.parametrize("header", JSON_HEADERS, ids=lambda header: repr(header[:40]))
def test_a_json_header_is_read_or_refused_alike(header: bytes) -> None:
    assert_same(frame_of(header, b"body"))


def sample_frames() -> list[bytes]:
    frames = [data for name in golden_data.FRAMES for _, data in golden_data.frames(name)]
    # One short frame per code and header form is enough to cut and change at every byte.
    kinds: dict[tuple[int, int], bytes] = {}
    for data in sorted(frames, key=len, reverse=True):
        kinds[reference.decode_frame(data).code, data[4]] = data
    return [data for data in kinds.values() if len(data) < 500]


def test_every_prefix_of_a_frame_is_refused() -> None:
    for data in sample_frames()[:12]:
        for size in range(len(data)):
            assert assert_same(data[:size]) == "FrameError"


def test_a_shortened_frame_with_a_right_length_is_read_or_refused_alike() -> None:
    for data in sample_frames()[:12]:
        for size in range(8, len(data)):
            assert_same((size - 4).to_bytes(4, "big") + data[4:size])


def test_a_frame_with_one_wrong_byte_is_read_or_refused_alike() -> None:
    source = random.Random(1)
    outcomes = set()
    for data in sample_frames()[:12]:
        for at in range(len(data)):
            for value in {0, 0xFF, data[at] ^ 1, data[at] ^ 0x80, source.randrange(256)}:
                changed = data[:at] + bytes([value]) + data[at + 1 :]
                outcomes.add(assert_same(changed))
    assert outcomes == {"value", "FrameError", "HeaderError"}


@pytest.mark.parametrize("seed", range(4))
def test_changed_frames_are_read_or_refused_alike(seed: int) -> None:
    source = random.Random(seed)
    for data in sample_frames():
        for changed in mutations(data, source, 40):
            if len(changed) < 4 or source.random() < 0.2:
                assert_same(changed)
            else:
                # With a right length the mutation reaches the header.
                assert_same((len(changed) - 4).to_bytes(4, "big") + changed[4:])


def split(splitter: Any, stream: bytes, sizes: list[int]) -> list[tuple[str, Any]]:
    """The commands and errors that feeding the stream in pieces gives, in their order."""
    seen: list[tuple[str, Any]] = []
    at = 0
    errors = (
        FrameError,
        HeaderError,
        reference_errors.FrameError,
        reference_errors.HeaderError,
    )
    pieces = iter(sizes)
    while at < len(stream):
        size = next(pieces, len(stream))
        kind, value = outcome(lambda a=at, s=size: splitter.feed(stream[a : a + s]), *errors)
        if kind != "value":
            seen.append((kind, None))
            break
        seen.extend(("value", command_fields(command)) for command in value)
        at += size
    else:
        seen.append(("pending" if splitter.pending else "clean", None))
        # A failure that followed good commands shows at the next call.
        kind, _ = outcome(lambda: splitter.feed(b""), *errors)
        if kind != "value":
            seen[-1] = (kind, None)
    return seen


@given(
    st.lists(commands(), max_size=5),
    st.lists(st.integers(1, 60), max_size=60),
    st.sampled_from(["whole", "cut", "changed"]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=200, deadline=None)
def test_a_stream_splits_alike_however_it_is_cut(
    sent: list[reference.Command], sizes: list[int], kind: str, source: random.Random
) -> None:
    stream = b"".join(reference.encode_frame(command) for command in sent)
    if kind == "cut":
        stream = stream[: source.randint(0, len(stream))]
    elif kind == "changed":
        stream = next(mutations(stream, source, 1))
    found = split(_core.FrameSplitter(), stream, sizes)
    assert found == split(reference.FrameSplitter(), stream, sizes)
    if kind == "whole":
        assert [value for _, value in found[:-1]] == [
            reference_outcome(reference.encode_frame(command))[1] for command in sent
        ]
