"""Bugs planted into what happens at the edges of consumption are caught: handovers, stops, resets.

As test_planted_concurrent.py.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, MessageQueue
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.bad_messages import BadMessages
from rocketmq_fast.consumer.concurrent import ConsumeConcurrentlyService
from rocketmq_fast.consumer.offsets import RemoteOffsetStore
from rocketmq_fast.consumer.pull import Puller
from rocketmq_fast.consumer.rebalance import Assignment
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.brokers import TestBroker
from tests.consuming import SUCCESS, Recorder, bodies, consuming, make, owned, releasing
from tests.contract.test_inbound import push_reset
from tests.planted import Plant, seen_by, stage, verdict
from tests.proxy import Frame, ProxiedCluster
from tests.waiting import wait_for
from tests.witness import Witness


def mix_up_two_answers(patch: pytest.MonkeyPatch) -> None:
    right, waiting = Puller._take, list[tuple[AssignedQueue, Any]]()

    def wrong(self: Puller, queue: AssignedQueue, answer: Any, is_slave: bool) -> None:
        if answer.code != ResponseCode.SUCCESS or len(waiting) > 1:
            right(self, queue, answer, is_slave)
            return
        waiting.append((queue, answer))
        if len(waiting) == 2:
            right(self, waiting[0][0], waiting[1][1], is_slave)
            right(self, waiting[1][0], waiting[0][1], is_slave)

    patch.setattr(Puller, "_take", wrong)


@pytest.mark.parametrize("plant", [None, mix_up_two_answers])
def test_two_queues(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 40, queues=2)
    recorder = Recorder(history.listener())
    with consuming(broker.namesrv_addr, group, topic, recorder, rpc_hooks=seen_by(broker, history)):
        recorder.wait(40)
    verdict(plant, history, "has another body than was sent")


def ignore_the_index_of_the_last_success(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService._on_failure

    def wrong(
        self: ConsumeConcurrentlyService, chunk: Any, start: int, stop: int, messages: Any,
        status: object, context: ConsumeContext, error: BaseException | None,
    ) -> None:  # fmt: skip
        context.ack_index = len(messages)
        right(self, chunk, start, stop, messages, status, context, error)

    patch.setattr(ConsumeConcurrentlyService, "_on_failure", wrong)


@pytest.mark.parametrize("plant", [None, ignore_the_index_of_the_last_success])
def test_batches(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each batch the first half succeeds."""
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 16)

    def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
        if messages[0].reconsume_times == 0:
            context.ack_index = len(messages) // 2 - 1
        return SUCCESS

    with consuming(
        broker.namesrv_addr, group, topic, history.listener(listen),
        rpc_hooks=seen_by(broker, history), consume_message_batch_max_size=8,
    ):  # fmt: skip
        wait_for(lambda: len(history.deliveries) >= 16, "the messages")
    verdict(plant, history, "passed unfinished")


def forget_what_could_not_be_decoded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BadMessages, "settle", lambda *_: None)


@pytest.mark.parametrize("plant", [None, forget_what_could_not_be_decoded])
def test_damaged_message(
    plant: Plant | None,
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A damaged answer: what could not be read comes to whoever asks for it next."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group, history = stage(broker, monkeypatch, plant, 20, size=64)
    hurt = bodies(6, size=64)[5]
    history.watch(proxied, group, broker.broker_name)
    note = proxied.broker.on_answer
    assert note is not None

    def on_answer(frame: Frame) -> Any:
        if frame.code == RequestCode.PULL_MESSAGE and hurt in frame.raw:
            return frame.raw.replace(hurt, hurt[:-1] + b"?")
        return note(frame)

    proxied.broker.on_answer = on_answer
    recorder = Recorder(history.listener())
    with consuming(proxied.namesrv_addr, group, topic, recorder):
        recorder.wait(19)
    proxied.broker.on_answer = note
    with consuming(proxied.namesrv_addr, group, topic, recorder):
        if plant is None:
            recorder.wait(20)
    verdict(plant, history, "passed unfinished", duplicates=14)


def store_nothing_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RemoteOffsetStore, "persist_now", lambda *_: None)


def wait_for_no_call_at_the_end(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService.stop

    def wrong(self: ConsumeConcurrentlyService, _: float) -> bool:
        return right(self, 0.0)

    patch.setattr(ConsumeConcurrentlyService, "stop", wrong)


@pytest.mark.parametrize("plant", [None, store_nothing_at_the_end, wait_for_no_call_at_the_end])
def test_clean_stop(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member stops in the middle of a call, and another one goes on without a duplicate."""
    broker = embedded_broker
    topic, group, history = stage(broker, monkeypatch, plant, 20)
    entered, go = threading.Event(), threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"m19":
            entered.set()
            go.wait(60.0)
        return SUCCESS

    hook = seen_by(broker, history)
    options = {"rpc_hooks": hook, "persist_consumer_offset_interval": 60_000}
    first = make(broker.namesrv_addr, group, topic, history.listener(listen), **options)
    first.start()
    with releasing(go):
        assert entered.wait(60.0)
        wait_for(lambda: len(history.deliveries) == 20, "the other messages")
        if plant is not wait_for_no_call_at_the_end:
            threading.Timer(0.1, go.set).start()  # the right one waits for it
        first.shutdown()
    more = bodies(1, "more")
    history.note_sent(broker.send(topic, more), more)
    recorder = Recorder(history.listener())
    with consuming(broker.namesrv_addr, group, topic, recorder, **options):
        wait_for(lambda: b"more0" in recorder.bodies, "the last message")
    verdict(plant, history, "duplicates")


def forget_the_commit_of_a_queue_that_is_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Assignment, "_may_store", lambda *_: False)


def commit_what_was_given_up(patch: pytest.MonkeyPatch) -> None:
    """A queue that went to another member stays among those whose progress is stored."""
    right, given_up = Assignment._let_go, list[tuple[Assignment, MessageQueue]]()
    storable = Assignment.storable

    def let_go(self: Assignment, assigned: AssignedQueue) -> None:
        offset = self._store.in_memory(assigned.message_queue)
        right(self, assigned)
        if offset is not None:
            self._store.update(assigned.message_queue, offset, increase_only=False)
            given_up.append((self, assigned.message_queue))

    def wrong(self: Assignment) -> list[MessageQueue]:
        return [*storable(self), *(queue for owner, queue in given_up if owner is self)]

    patch.setattr(Assignment, "_let_go", let_go)
    patch.setattr(Assignment, "storable", wrong)


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (None, ""),
        (forget_the_commit_of_a_queue_that_is_given_up, "duplicates"),
        (commit_what_was_given_up, "but B has it"),
    ],
)
def test_handover(
    plant: Plant | None,
    text: str,
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second member gets one of two queues and goes on in it; then the first one stops."""
    broker, proxied = embedded_broker, embedded_proxied
    topic, group, history = stage(broker, monkeypatch, plant, 20, queues=2)
    more = bodies(20, "more")
    recorder = Recorder(history.listener())

    def on_request(frame: Frame) -> None:
        """The second member asks where to go on when the first one has given the queue up."""
        fields = frame.command.ext_fields
        asks = frame.code == RequestCode.QUERY_CONSUMER_OFFSET and fields["topic"] == topic
        if asks and not shared.is_set():
            wait_for(lambda: len(owned(first, topic)) == 1, "the queue to be given up")

    def options(member: str) -> dict[str, Any]:
        return {
            "rpc_hooks": Witness(member, history.note, names),
            "instance_name": member,
            "persist_consumer_offset_interval": 60_000,
        }

    shared = threading.Event()
    names = dict.fromkeys((broker.broker_addr, proxied.broker.address), broker.broker_name)
    proxied.broker.on_request = on_request
    first = make(broker.namesrv_addr, group, topic, recorder, **options("A"))
    second = make(proxied.namesrv_addr, group, topic, recorder, **options("B"))
    first.start()
    try:
        running = first._running
        assert running is not None

        def all_done() -> bool:
            running.settle_progress()
            return [running.store.in_memory(broker.queue(topic, n)) for n in (0, 1)] == [10, 10]

        wait_for(all_done, "the first messages")
        second.start()
        wait_for(
            lambda: (len(owned(first, topic)), len(owned(second, topic))) == (1, 1), "a queue each"
        )
        shared.set()
        owners = {broker.queue(topic, queue): "A" for queue in owned(first, topic)}
        owners |= {broker.queue(topic, queue): "B" for queue in owned(second, topic)}
        history.note_steady(owners)
        history.note_sent(broker.send(topic, more, queues=(0, 1)), more)
        recorder.wait(40)
        first.shutdown()
        history.note_steady(None)
    finally:
        first.shutdown()
        second.shutdown()
    verdict(plant, history, text)


def keep_the_old_object_at_a_reset(patch: pytest.MonkeyPatch) -> None:
    def wrong(self: Assignment, assigned: AssignedQueue, offset: int) -> AssignedQueue:
        assigned.next_offset = offset
        self._store.update(assigned.message_queue, offset, increase_only=False)
        return assigned

    patch.setattr(Assignment, "replace", wrong)


@pytest.mark.parametrize("plant", [None, keep_the_old_object_at_a_reset])
def test_reset(
    plant: Plant | None, embedded_broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group is told to go back while a call runs, whose result is void."""
    broker, cluster = embedded_broker, embedded_broker.cluster
    assert isinstance(cluster, Cluster)
    topic, group, history = stage(broker, monkeypatch, plant, 10)
    queue = broker.queue(topic)
    go = threading.Event()

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        if messages[0].body == b"m9" and not go.is_set():
            go.wait(60.0)
        return SUCCESS

    with (
        consuming(
            broker.namesrv_addr, group, topic, history.listener(listen),
            rpc_hooks=seen_by(broker, history), persist_consumer_offset_interval=60_000,
            consume_thread_min=2, consume_thread_max=2,
        ) as consumer,
        releasing(go),
    ):  # fmt: skip
        running = consumer._running
        assert running is not None

        def assigned() -> AssignedQueue:
            found = running.assignment.get(queue)
            assert found is not None
            return found

        wait_for(lambda: len(history.deliveries) == 10, "the messages")
        running.persist_offsets()
        wait_for(lambda: broker.committed(group, topic) == {0: 9}, "all but the last")
        consumer.pause()
        history.note_reset(queue, 3)
        push_reset(cluster, group, topic, {0: 3})
        wait_for(lambda: assigned().next_offset == 3, "the reset")
        done = consumer.stats()["consumed"]
        go.set()
        if plant is None:
            wait_for(lambda: consumer.stats()["consumed"] > done, "the end of the call")
            consumer.resume()
            wait_for(lambda: running.store.in_memory(queue) == 10, "all of them again")
        else:
            wait_for(lambda: running.store.in_memory(queue) == 10, "what undoes the reset")
    verdict(plant, history, "passed unfinished")
