"""Frames that are none: the connection ends and says why, and the pull is repeated."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from rocketmq_fast import encode_frame
from rocketmq_fast.protocol.codes import RequestCode
from tests.brokers import TestBroker
from tests.consuming import Recorder, assert_once, bodies, consuming
from tests.proxy import Frame, ProxiedCluster


def with_bytes(raw: bytes, place: int, new: bytes) -> bytes:
    return raw[:place] + new + raw[place + len(new) :]


FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "negative length": (lambda raw: with_bytes(raw, 0, b"\xff\xff\xff\xff"), "length"),
    "huge length": (lambda raw: with_bytes(raw, 0, b"\x7f\xff\xff\xff"), "length"),
    "no length": (lambda raw: with_bytes(raw, 0, b"\x00\x00\x00\x00"), "length"),
    "header too long": (lambda raw: with_bytes(raw, 5, b"\xff\xff\xff"), "header"),
    "unknown header kind": (lambda raw: with_bytes(raw, 4, b"\x07"), "type"),
    "no json": (lambda raw: with_bytes(raw, 8, b"\x00\x01\x02\x03"), "JSON"),
    "http": (lambda _: b"HTTP/1.1 400 Bad Request\r\nServer: nginx\r\n\r\n", "HTTP"),
    "tls": (lambda _: bytes.fromhex("15030100020246") + b"\0" * 20, "TLS"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_frame_is_named_and_the_pull_repeated(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    change, text = FAULTS[name]
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    left = 2

    def on_answer(frame: Frame) -> bytes | None:
        nonlocal left
        request = frame.request
        if frame.code != RequestCode.PULL_MESSAGE or request is None or left == 0:
            return None
        if request.ext_fields["topic"] != topic:
            return None
        left -= 1
        return change(frame.raw)

    embedded_proxied.broker.on_answer = on_answer
    broker.send(topic, bodies(10))
    recorder = Recorder()
    with (
        caplog.at_level(logging.WARNING, "rocketmq_fast"),
        consuming(
            embedded_proxied.namesrv_addr,
            group,
            topic,
            recorder,
            pull_time_delay_millis_when_exception=10,
        ),
    ):
        recorder.wait(10)
    assert left == 0
    assert_once(recorder, bodies(10))
    assert broker.committed(group, topic) == {0: 10}
    assert text in caplog.text
    assert embedded_proxied.broker.address in caplog.text


@pytest.mark.parametrize("field", ["nextBeginOffset", "maxOffset", "minOffset"])
@pytest.mark.parametrize("value", [None, "", "x", "1e3", "-5", str(2**70)])
def test_wrong_field_of_a_pull_answer_is_an_error_not_an_offset(
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    field: str,
    value: str | None,
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    left = 2

    def on_answer(frame: Frame) -> bytes | None:
        nonlocal left
        request = frame.request
        if frame.code != RequestCode.PULL_MESSAGE or request is None or left == 0:
            return None
        if request.ext_fields["topic"] != topic or field not in frame.command.ext_fields:
            return None
        left -= 1
        fields = dict(frame.command.ext_fields)
        del fields[field]
        if value is not None:
            fields[field] = value
        frame.command.ext_fields = fields
        return encode_frame(frame.command)

    embedded_proxied.broker.on_answer = on_answer
    broker.send(topic, bodies(10))
    recorder = Recorder()
    with consuming(
        embedded_proxied.namesrv_addr,
        group,
        topic,
        recorder,
        pull_time_delay_millis_when_exception=10,
    ):
        recorder.wait(10)
        # The queue is not stuck at an offset that no broker has.
        broker.send(topic, [b"more"])
        recorder.wait(11)
    assert set(recorder.bodies) == {*bodies(10), b"more"}
    assert broker.committed(group, topic) == {0: 11}
