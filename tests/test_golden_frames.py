"""Recorded frames of the Java client, a name server and a broker, through the native codec."""

from __future__ import annotations

import pytest

from rocketmq_fast import _core
from tests import golden_data
from tests.differential import command_fields
from tests.reference import frame as reference

NAMES = golden_data.FRAMES


@pytest.mark.parametrize("name", NAMES)
def test_recorded_frames_decode_to_what_they_are_said_to_hold(name: str) -> None:
    frames = golden_data.frames(name)
    assert frames
    for row, data in frames:
        command = _core.decode_frame(data)
        assert command.code == row["code"]
        assert command.serialize_type == {"JSON": 0, "ROCKETMQ": 1}[row["serialize"]]
        assert command.is_response == (row["kind"] == "response")
        assert command.is_oneway == (row["kind"] == "oneway")
        assert command_fields(command) == command_fields(reference.decode_frame(data))


@pytest.mark.parametrize("name", NAMES)
def test_recorded_frames_survive_decoding_and_encoding(name: str) -> None:
    for _, data in golden_data.frames(name):
        command = _core.decode_frame(data)
        again = _core.encode_frame(command)
        assert command_fields(_core.decode_frame(again)) == command_fields(command)
        assert command_fields(reference.decode_frame(again)) == command_fields(command)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_recorded_frames_carry_the_same_in_either_header(name: str, serialize_type: int) -> None:
    for _, data in golden_data.frames(name):
        command = _core.decode_frame(data)
        before = command_fields(command)
        command.serialize_type = serialize_type
        after = command_fields(_core.decode_frame(_core.encode_frame(command)))
        if serialize_type == 1:
            # The compact header cannot tell an empty text from none.
            before["ext_fields"] = {n: v for n, v in before["ext_fields"].items() if v}
            before["remark"] = before["remark"] or None
        before["serialize_type"] = serialize_type
        assert after == before


@pytest.mark.parametrize("name", NAMES)
def test_recorded_frames_come_out_of_one_stream_in_order(name: str) -> None:
    frames = [data for _, data in golden_data.frames(name)]
    stream = b"".join(frames)
    expected = [command_fields(_core.decode_frame(data)) for data in frames]
    for step in (1, 7, 1000, len(stream)):
        splitter = _core.FrameSplitter()
        commands = []
        for at in range(0, len(stream), step):
            commands += splitter.feed(stream[at : at + step])
        assert [command_fields(command) for command in commands] == expected
        assert splitter.pending == 0


def test_the_documented_json_request_is_read_and_written() -> None:
    header = (
        b'{"code":11,"extFields":{"queueId":"0","maxMsgNums":"32","sysFlag":"2",'
        b'"suspendTimeoutMillis":"15000","commitOffset":"0","topic":"T1","queueOffset":"0",'
        b'"expressionType":"TAG","subVersion":"1700000000000","consumerGroup":"CG"},"flag":0,'
        b'"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":401}'
    )
    data = bytes.fromhex("0000013A00000136") + header
    command = _core.decode_frame(data)
    assert (command.code, command.opaque, command.version) == (11, 5, 401)
    assert command.ext_fields["topic"] == "T1"
    assert command.ext_fields["subVersion"] == "1700000000000"
    assert _core.encode_frame(command) == data


def test_the_documented_compact_request_is_read_and_written() -> None:
    data = bytes.fromhex(
        "00000026010000220069000191000000050000000000000000" + "0000000d0005746f706963000000025431"
    )
    command = _core.decode_frame(data)
    assert (command.code, command.opaque, command.version) == (105, 5, 401)
    assert command.ext_fields == {"topic": "T1"}
    assert _core.encode_frame(command) == data
    made = _core.RemotingCommand(
        105, {"topic": "T1"}, opaque=5, language="JAVA", version=401, serialize_type=1
    )
    assert _core.encode_frame(made) == data
