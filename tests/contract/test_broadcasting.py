"""Broadcasting: every member reads everything, and keeps its own progress in a file."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rocketmq_fast import ConfigError, ConsumeStatus, MessageExt, OffsetFileError, PushConsumer
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.protocol import fastjson
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, assert_once, bodies, consuming, make, owned
from tests.member import member
from tests.ordering import written
from tests.waiting import wait_for


def options(folder: Path, name: str = "one") -> dict[str, Any]:
    return {
        "message_model": "BROADCASTING",
        "local_offset_store_dir": str(folder),
        "instance_name": name,
        "persist_consumer_offset_interval": 50,
    }


def stored(folder: Path) -> dict[int, int]:
    """The offset file below a folder, by queue id; empty when there is none yet."""
    paths = list(folder.rglob("offsets.json"))
    if not paths:
        return {}
    (path,) = paths
    table = fastjson.loads(path.read_bytes())["offsetTable"]
    return {int(dict(key)["queueId"]): int(offset) for key, offset in table.items()}


def test_every_member_gets_everything(broker: TestBroker, tmp_path: Path) -> None:
    topic, group = broker.topic(4), broker.group()
    broker.send(topic, bodies(100), queues=(0, 1, 2, 3))
    first, second = Recorder(), Recorder()
    with (
        consuming(broker.namesrv_addr, group, topic, first, **options(tmp_path, "one")) as one,
        consuming(broker.namesrv_addr, group, topic, second, **options(tmp_path, "two")) as two,
    ):
        wait_for(lambda: owned(one, topic) == owned(two, topic) == {0, 1, 2, 3}, "all queues")
        first.wait(100)
        second.wait(100)
        broker.send(topic, bodies(20, "n"), queues=(0, 1, 2, 3))
        first.wait(120)
        second.wait(120)
    assert_once(first, bodies(100) + bodies(20, "n"))
    assert_once(second, bodies(100) + bodies(20, "n"))
    # The broker is told nothing.
    assert broker.committed(group, topic) == {}


def test_progress_in_the_file_survives_a_restart(broker: TestBroker, tmp_path: Path) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(20), queues=(0, 1))
    before, after = Recorder(), Recorder()
    with consuming(broker.namesrv_addr, group, topic, before, **options(tmp_path)):
        before.wait(20)
        wait_for(lambda: stored(tmp_path) == {0: 10, 1: 10}, "the file")
    broker.send(topic, bodies(6, "n"), queues=(0, 1))
    with consuming(broker.namesrv_addr, group, topic, after, **options(tmp_path)):
        after.wait(6)
    assert_once(before, bodies(20))
    assert_once(after, bodies(6, "n"))
    assert stored(tmp_path) == {0: 13, 1: 13}


def test_shutdown_writes_what_the_interval_has_not_written(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))
    recorder, after = Recorder(), Recorder()
    seldom = options(tmp_path) | {"persist_consumer_offset_interval": 3_600_000}
    with consuming(broker.namesrv_addr, group, topic, recorder, **seldom):
        recorder.wait(10)
    assert stored(tmp_path) == {0: 10}
    with consuming(broker.namesrv_addr, group, topic, after, **seldom):
        broker.send(topic, [b"new"])
        after.wait(1)
    assert after.bodies == [b"new"]


def test_what_is_not_acknowledged_is_given_up_with_a_warning(
    embedded_broker: TestBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(12))

    def answer(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        first = messages[0].queue_offset
        if first == 4:
            context.ack_index = 1
        if first == 8:
            raise ValueError("the listener's own trouble")
        return LATER if first == 0 else SUCCESS

    recorder = Recorder(answer)
    with (
        caplog.at_level(logging.WARNING, "rocketmq_fast"),
        consuming(
            broker.namesrv_addr,
            group,
            topic,
            recorder,
            consume_message_batch_max_size=4,
            **options(tmp_path),
        ) as consumer,
    ):
        recorder.wait(12)
        wait_for(lambda: stored(tmp_path) == {0: 12}, "the progress to pass them")
        assert consumer.stats()["failed"] == 10
    assert_once(recorder, bodies(12))
    warnings = [r.getMessage() for r in caplog.records if "given up" in r.getMessage()]
    assert len(warnings) == 3
    assert all(topic in text for text in warnings)
    # Nothing went to a retry topic that nobody reads.
    assert broker.committed(group, f"%RETRY%{group}") == {}
    assert not [route for route in recorder.seen if route.queue.topic != topic]


def test_second_process_on_the_same_file_is_refused(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr, group, topic, recorder, client_ip="127.0.0.1", **options(tmp_path)
    ):
        recorder.wait(5)
        with member(
            tmp_path, "second", broker.namesrv_addr, group, topic,
            client_ip="127.0.0.1", **options(tmp_path),
        ) as second:  # fmt: skip
            assert second.ended() == 1
            assert "OffsetFileError" in second.said()
            assert "offsets.json" in second.said()
        assert not second.lines("B")
        broker.send(topic, [b"new"])
        recorder.wait(6)
    # Free again.
    with member(
        tmp_path, "third", broker.namesrv_addr, group, topic,
        client_ip="127.0.0.1", **options(tmp_path),
    ) as third:  # fmt: skip
        third.wait_ready()
        broker.send(topic, [b"newer"])
        wait_for(lambda: third.lines("E"), third.said)
        assert third.terminate() == 0, third.said()
    assert [call.offsets for call in written(tmp_path, ["third"])] == [(6,)]


def test_second_consumer_of_the_process_is_refused_and_leaves_nothing(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder, **options(tmp_path)):
        second = make(broker.namesrv_addr, group, topic, Recorder(), **options(tmp_path))
        with pytest.raises((ConfigError, OffsetFileError), match=group):
            second.start()
        broker.send(topic, bodies(3))
        recorder.wait(3)
    assert_once(recorder, bodies(3))
    third = Recorder()
    with consuming(broker.namesrv_addr, group, topic, third, **options(tmp_path)):
        broker.send(topic, [b"new"])
        third.wait(1)
    assert third.bodies == [b"new"]


def test_killed_member_goes_on_without_a_gap(embedded_broker: TestBroker, tmp_path: Path) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(300))
    settings = {"client_ip": "127.0.0.1", "pause": 0.002, "consume_thread_max": 1,
                "consume_thread_min": 1, **options(tmp_path)}  # fmt: skip
    with member(tmp_path, "first", broker.namesrv_addr, group, topic, **settings) as first:
        wait_for(lambda: len(first.lines("E")) > 100, first.said)
        first.kill()
    with member(tmp_path, "second", broker.namesrv_addr, group, topic, **settings) as second:
        wait_for(lambda: [line[4:] for line in second.lines("B")][-1:] == [["299"]], second.said)
        assert second.terminate() == 0, second.said()
    done = [o for c in written(tmp_path, ["first"]) if c.good for o in c.offsets]
    after = [o for c in written(tmp_path, ["second"]) for o in c.offsets]
    assert done == list(range(len(done)))
    # It began where the file was: not at the first message, and not behind the last success.
    assert after == list(range(after[0], 300))
    assert 0 < after[0] <= len(done)
    assert stored(tmp_path) == {0: 300}


def test_file_has_the_place_and_the_form_of_javas(
    embedded_broker: TestBroker, tmp_path: Path
) -> None:
    broker = embedded_broker
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(2))
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr, group, topic, recorder, client_ip="10.0.0.1", **options(tmp_path)
    ):
        recorder.wait(2)
    path = tmp_path / "10.0.0.1@one" / group / "offsets.json"
    assert path.exists()
    with pytest.raises(ValueError, match="property name"):
        json.loads(path.read_text())  # keys are objects, as fastjson writes them
    assert stored(tmp_path) == {0: 2}


def test_orderly_listener_is_refused(embedded_broker: TestBroker, tmp_path: Path) -> None:
    consumer = PushConsumer("group", namesrv_addr=embedded_broker.namesrv_addr, **options(tmp_path))
    consumer.subscribe("topic")
    consumer.register_listener(lambda *_: None, orderly=True)
    with pytest.raises(ConfigError, match="CLUSTERING"):
        consumer.start()
