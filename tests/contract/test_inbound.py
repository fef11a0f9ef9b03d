"""What brokers and operators ask of a consumer: its state, its stacks, other offsets."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from rocketmq_fast import MessageExt, OrderlyContext, OrderlyStatus, PushConsumer
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.embedded.broker import Broker
from rocketmq_fast.protocol import fastjson
from rocketmq_fast.protocol.codes import RequestCode
from tests.apache import mqadmin
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, assert_once, bodies, consuming, releasing
from tests.require import require
from tests.waiting import wait_for

# The tools of the older release; they are what 4.x operators have.
TOOLS = "4.9.4"
SOON: dict[str, Any] = {"persist_consumer_offset_interval": 50}


def ask(broker: TestBroker, code: int, fields: Mapping[str, str]) -> RemotingCommand:
    """A question that the broker passes on to the consumer."""
    return broker.wire.invoke(broker.broker_addr, RemotingCommand(code, dict(fields)))


def by_queue(table: Mapping[Any, Any]) -> dict[int, Any]:
    """A table with queues as keys, by queue id."""
    return {int(dict(queue)["queueId"]): value for queue, value in table.items()}


def client_id(consumer: PushConsumer) -> str:
    return str(consumer.stats()["client_id"])


# ------------------------------------------------------------------------------- mqadmin


def test_mqadmin_shows_the_consumer_and_resets_it(broker: TestBroker) -> None:
    require("apache")
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder, **SOON) as consumer:
        recorder.wait(10)
        wait_for(lambda: broker.committed(group, topic) == {0: 5, 1: 5}, "the commits")
        cid = client_id(consumer)

        connection, progress, status = mqadmin.ask(
            TOOLS,
            broker.namesrv_addr,
            f"consumerConnection -g {group}",
            f"consumerProgress -g {group}",
            f"consumerStatus -g {group} -i {cid} -s",
        )
        assert cid in connection
        assert topic in connection
        for text in ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"):
            assert text in connection

        rows = [line.split() for line in progress.splitlines() if line.startswith(topic[:40])]
        assert [(row[2], row[3], row[4]) for row in rows if topic in row[0] or row] == [
            ("0", "5", "5"),
            ("1", "5", "5"),
        ]
        assert "Diff Total: 0" in progress

        assert "MainThread" in status  # a Python stack
        assert topic in status
        assert "maxReconsumeTimes" in status

        hour_ago = str(int((time.time() - 3600) * 1000))
        mqadmin.mqadmin(
            TOOLS, broker.namesrv_addr,
            "resetOffsetByTime", "-g", group, "-t", topic, "-s", hour_ago,
        )  # fmt: skip
        recorder.wait_deliveries(20)
    assert len(recorder.seen) == 20
    assert broker.committed(group, topic) == {0: 5, 1: 5}


# --------------------------------------------------------------------------- raw requests


def test_running_info_tells_the_state(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(5))
    go = threading.Event()

    def answer(messages: list[MessageExt], _: ConsumeContext) -> object:
        if messages[0].queue_offset == 2:
            go.wait(60)
        return SUCCESS

    recorder = Recorder(answer)
    with (
        consuming(broker.namesrv_addr, group, topic, recorder, **SOON) as consumer,
        releasing(go),
    ):
        recorder.wait(5)
        fields = {"consumerGroup": group, "clientId": client_id(consumer), "jstackEnable": "true"}
        wait_for(lambda: broker.committed(group, topic) == {0: 2}, "the commit of the first two")
        found = ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        assert found.code == 0, found.remark
        info = fastjson.loads(found.body)
        fields["jstackEnable"] = "false"
        without = fastjson.loads(ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, fields).body)
    queues = {dict(q)["topic"]: value for q, value in info["mqTable"].items()}
    assert (queues[topic]["cachedMsgMinOffset"], queues[topic]["commitOffset"]) == (2, 2)
    assert queues[topic]["droped"] is False
    assert info["properties"]["consumeMessageBatchMaxSize"] == "1"
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert info["properties"]["PROP_NAMESERVER_ADDR"] == f"{broker.namesrv_addr};"
    assert topic in {item["topic"] for item in info["subscriptionSet"]}
    assert info["statusTable"][topic]["consumeFailedMsgs"] == 0
    assert "go.wait(60)" in info["jstack"]
    assert "jstack" not in without or not without["jstack"]


def test_questions_about_another_group_are_refused(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    with consuming(broker.namesrv_addr, group, topic, Recorder()) as consumer:
        fields = {"consumerGroup": group + "x", "clientId": client_id(consumer)}
        assert ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, fields).code == 1


def test_status_is_the_progress_in_memory(broker: TestBroker) -> None:
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(10), queues=(0, 1))
    recorder = Recorder()
    seldom: dict[str, Any] = {"persist_consumer_offset_interval": 3_600_000}
    with consuming(broker.namesrv_addr, group, topic, recorder, **seldom) as consumer:
        recorder.wait(10)
        cid = client_id(consumer)

        def told() -> dict[int, Any]:
            answer = ask(
                broker,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                {"topic": topic, "group": group, "clientAddr": ""},
            )
            assert answer.code == 0, answer.remark
            return by_queue(fastjson.loads(answer.body)["consumerTable"][cid])

        wait_for(lambda: told() == {0: 5, 1: 5}, lambda: f"the progress; told {told()}")


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (SUCCESS, "CR_SUCCESS"),
        (LATER, "CR_LATER"),
        (None, "CR_RETURN_NULL"),
        (ValueError("the listener's own trouble"), "CR_THROW_EXCEPTION"),
    ],
    ids=["success", "later", "none", "error"],
)
def test_message_is_consumed_directly(broker: TestBroker, status: object, result: str) -> None:
    topic, group = broker.topic(1), broker.group()
    (sent,) = broker.send(topic, [b"body"], tags="TagA")
    direct: list[MessageExt] = []

    def answer(messages: list[MessageExt], _: ConsumeContext) -> object:
        if not recorder.seen[1:]:
            return SUCCESS
        direct.extend(messages)
        if isinstance(status, Exception):
            raise status
        return status

    recorder = Recorder(answer)
    with consuming(broker.namesrv_addr, group, topic, recorder, **SOON) as consumer:
        recorder.wait(1)
        wait_for(lambda: broker.committed(group, topic) == {0: 1}, "the commit")
        found = ask(
            broker,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            {
                "consumerGroup": group,
                "clientId": client_id(consumer),
                "msgId": sent.offset_msg_id,
                "brokerName": broker.broker_name,
                "topic": topic,
            },
        )
        assert found.code == 0, found.remark
        told = fastjson.loads(found.body)
        # Outside of the flow: no retry, no offset.
        assert consumer.stats()["failed"] == 0
    assert told["consumeResult"] == result
    assert (told["order"], told["autoCommit"]) == (False, True)
    assert ("own trouble" in told.get("remark", "")) == (result == "CR_THROW_EXCEPTION")
    (message,) = direct
    assert (message.body, message.topic, message.tags) == (b"body", topic, "TagA")
    assert broker.committed(group, topic) == {0: 1}


def test_orderly_listener_consumes_directly_too(broker: TestBroker) -> None:
    topic, group = broker.topic(1), broker.group()
    (sent,) = broker.send(topic, [b"body"])
    seen: list[bytes] = []

    def listen(messages: list[MessageExt], context: OrderlyContext) -> OrderlyStatus:
        seen.extend(message.body for message in messages)
        if len(seen) > 1:
            context.auto_commit = False
            return OrderlyStatus.COMMIT
        return OrderlyStatus.SUCCESS

    with consuming(broker.namesrv_addr, group, topic, listen, orderly=True) as consumer:
        wait_for(lambda: seen == [b"body"], "the message")
        found = ask(
            broker,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            {
                "consumerGroup": group,
                "clientId": client_id(consumer),
                "msgId": sent.offset_msg_id,
                "brokerName": broker.broker_name,
                "topic": topic,
            },
        )
        assert found.code == 0, found.remark
    told = fastjson.loads(found.body)
    assert (told["consumeResult"], told["order"], told["autoCommit"]) == ("CR_COMMIT", True, False)


# ---------------------------------------------------------------------------------- reset


def push_reset(cluster: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Request 220, as a broker sends it to each member."""
    table = ",".join(
        f'{{"brokerName":"{cluster.broker_name}","queueId":{queue},"topic":"{topic}"}}:{offset}'
        for queue, offset in offsets.items()
    )
    body = f'{{"offsetTable":{{{table}}}}}'.encode()

    def push(broker: Broker) -> None:
        members = broker.state.members.consumers[group].members
        for peer in members:
            fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
            peer.notify(RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))

    cluster._call(push)


class Jump:
    """Tells a run that was reset to `target` from one that passes it by itself."""

    def __init__(self, came: list[int], target: int) -> None:
        self._came = came
        self._target = target
        self._from = len(came)

    def there(self) -> bool:
        """Whether a run began at the target since this was made."""
        came, target = self._came, self._target
        return any(
            came[i] == target and came[i - 1] + 1 != target for i in range(self._from, len(came))
        )


def test_reset_wins_every_race_with_a_pull(embedded_broker: TestBroker) -> None:
    """300 resets while pulls and calls are under way: each is followed by its own offset."""
    broker, cluster = embedded_broker, embedded_broker.cluster
    assert isinstance(cluster, Cluster)
    topic, group = broker.topic(1), broker.group()
    size = 400
    broker.send(topic, bodies(size))
    came: list[int] = []

    def listen(messages: list[MessageExt], _: ConsumeContext) -> object:
        came.extend(message.queue_offset for message in messages)
        return SUCCESS

    targets = [(index * 37) % (size - 40) for index in range(300)]
    starts: list[int] = [0]
    with consuming(
        broker.namesrv_addr, group, topic, listen,
        consume_thread_min=1, consume_thread_max=1, pull_batch_size=8, **SOON,
    ):  # fmt: skip
        wait_for(lambda: len(came) > 3, "the first messages")
        for target in targets:
            begun = Jump(came, target)
            push_reset(cluster, group, topic, {0: target})
            wait_for(begun.there, f"offset {target} after {starts[-3:]}")
            starts.append(target)
        wait_for(lambda: came[-1] == size - 1, "the end of the last run")
    runs = [came[0], *(b for a, b in itertools.pairwise(came) if b != a + 1)]
    assert runs == starts
    assert broker.committed(group, topic) == {0: size}


def test_reset_under_a_running_call_is_not_undone_by_it(embedded_broker: TestBroker) -> None:
    broker, cluster = embedded_broker, embedded_broker.cluster
    assert isinstance(cluster, Cluster)
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(10))
    go = threading.Event()

    def answer(messages: list[MessageExt], _: ConsumeContext) -> object:
        if messages[0].queue_offset == 9 and len(recorder.seen) == 10:
            go.wait(60)
        return SUCCESS

    recorder = Recorder(answer)
    with (
        consuming(
            broker.namesrv_addr, group, topic, recorder,
            consume_thread_min=2, consume_thread_max=2, **SOON,
        ) as consumer,
        releasing(go),
    ):  # fmt: skip
        recorder.wait(10)
        consumer.pause()
        push_reset(cluster, group, topic, {0: 3})
        wait_for(lambda: broker.committed(group, topic) == {0: 3}, "the reset to be stored")
        done = consumer.stats()["consumed"]
        go.set()
        wait_for(lambda: consumer.stats()["consumed"] > done, "the end of the call")
        assert broker.committed(group, topic) == {0: 3}
    # Stopping stores progress once more: still the reset's.
    assert broker.committed(group, topic) == {0: 3}
    again = Recorder()
    with consuming(broker.namesrv_addr, group, topic, again):
        again.wait(7)
    assert_once(again, bodies(10)[3:])


def test_reset_of_an_orderly_group_restarts_the_order(embedded_broker: TestBroker) -> None:
    broker, cluster = embedded_broker, embedded_broker.cluster
    assert isinstance(cluster, Cluster)
    topic, group = broker.topic(2), broker.group()
    broker.send(topic, bodies(40), queues=(0, 1))
    came: dict[int, list[int]] = {0: [], 1: []}

    def listen(messages: list[MessageExt], context: OrderlyContext) -> OrderlyStatus:
        came[context.message_queue.queue_id].extend(m.queue_offset for m in messages)
        return OrderlyStatus.SUCCESS

    with consuming(broker.namesrv_addr, group, topic, listen, orderly=True, **SOON):
        wait_for(lambda: len(came[0]) == len(came[1]) == 20, "all messages")
        push_reset(cluster, group, topic, {0: 5, 1: 20})
        wait_for(lambda: len(came[0]) == 35, "the reset queue's messages")
    assert came == {0: [*range(20), *range(5, 20)], 1: list(range(20))}
    assert broker.committed(group, topic) == {0: 20, 1: 20}


def test_reset_to_nonsense_changes_nothing(
    embedded_broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker, cluster = embedded_broker, embedded_broker.cluster
    assert isinstance(cluster, Cluster)
    topic, group = broker.topic(1), broker.group()
    broker.send(topic, bodies(3))
    recorder = Recorder()
    with consuming(broker.namesrv_addr, group, topic, recorder, **SOON):
        recorder.wait(3)
        push_reset(cluster, group, topic, {0: -5, 7: 1})
        wait_for(lambda: "-5 is refused" in caplog.text, "the refusal")
        broker.send(topic, [b"new"])
        recorder.wait(4)
    assert_once(recorder, [*bodies(3), b"new"])
    assert broker.committed(group, topic) == {0: 4}
