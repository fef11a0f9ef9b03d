"""Bugs planted into concurrent consumption are caught by the checker of histories.

Each test runs one scenario, with the client as it is ("none") or with a mistake that somebody could
make; the checker must find nothing in the one, and in the other what the mistake is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import pytest

from rocketmq_fast import ConsumeStatus, MessageExt, MessageQueue
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.client.broker_calls import BrokerCalls
from rocketmq_fast.consumer.assigned import AssignedQueue
from rocketmq_fast.consumer.concurrent import ConsumeConcurrentlyService
from rocketmq_fast.consumer.offsets import RemoteOffsetStore
from rocketmq_fast.consumer.pull import Puller
from rocketmq_fast.consumer.running import RunningConsumer
from rocketmq_fast.errors import BrokerError
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from tests.brokers import TestBroker
from tests.consuming import LATER, SUCCESS, Recorder, bodies, consuming
from tests.history import History
from tests.planted import Plant, verdict
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for


def commit_the_maximum(patch: pytest.MonkeyPatch) -> None:
    right = AssignedQueue.on_removed

    def wrong(self: AssignedQueue, offset: int) -> None:
        right(self, max(offset, self.next_offset))

    patch.setattr(AssignedQueue, "on_removed", wrong)


def forget_to_send_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerCalls, "send_message_back", lambda *_, **__: None)


def lose_the_last_of_a_pull(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService.submit

    def wrong(
        self: ConsumeConcurrentlyService, queue: AssignedQueue, batch: Any, dispatch: bool = True
    ) -> None:
        mask = batch.queue_offsets != batch.queue_offsets[-1]
        queue.process_queue.remove([int(batch.queue_offsets[-1])])
        right(self, queue, batch.retain(mask), dispatch)

    patch.setattr(ConsumeConcurrentlyService, "submit", wrong)


def take_an_unknown_offset_for_zero(patch: pytest.MonkeyPatch) -> None:
    right = RemoteOffsetStore.read

    def wrong(self: RemoteOffsetStore, queue: MessageQueue) -> int | None:
        try:
            return right(self, queue)
        except BrokerError:
            self.update(queue, 0, increase_only=False)
            return 0

    patch.setattr(RemoteOffsetStore, "read", wrong)


def acknowledge_before_the_call(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService.submit

    def wrong(
        self: ConsumeConcurrentlyService, queue: AssignedQueue, batch: Any, dispatch: bool = True
    ) -> None:
        queue.on_removed(queue.process_queue.remove(batch.queue_offsets.tolist()))
        right(self, queue, batch, dispatch)

    patch.setattr(ConsumeConcurrentlyService, "submit", wrong)


def commit_one_too_far(patch: pytest.MonkeyPatch) -> None:
    right = AssignedQueue.on_removed
    patch.setattr(AssignedQueue, "on_removed", lambda self, offset: right(self, offset + 1))


def carry_what_was_pulled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunningConsumer, "offset_to_commit", lambda _, queue: queue.next_offset)


def commit_zero_at_first(patch: pytest.MonkeyPatch) -> None:
    right, seen = BrokerCalls.commit_offset_async, [0]  # commits

    def wrong(
        self: BrokerCalls, address: str, group: str, queue: MessageQueue, offset: int, *rest: Any
    ) -> None:
        seen[0] += 1
        right(self, address, group, queue, 0 if seen[0] == 1 else offset, *rest)

    patch.setattr(BrokerCalls, "commit_offset_async", wrong)


def commit_a_code_for_none(patch: pytest.MonkeyPatch) -> None:
    right = BrokerCalls.commit_offset_async

    def wrong(
        self: BrokerCalls, address: str, group: str, queue: MessageQueue, offset: int, *rest: Any
    ) -> None:
        right(self, address, group, queue, -1, *rest)
        right(self, address, group, queue, offset, *rest)

    patch.setattr(BrokerCalls, "commit_offset_async", wrong)


def take_every_pull_twice(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService.submit

    def wrong(
        self: ConsumeConcurrentlyService, queue: AssignedQueue, batch: Any, dispatch: bool = True
    ) -> None:
        right(self, queue, batch, dispatch)
        right(self, queue, batch, dispatch)

    patch.setattr(ConsumeConcurrentlyService, "submit", wrong)


def skip_between_two_pulls(patch: pytest.MonkeyPatch) -> None:
    right = Puller._take

    def wrong(self: Puller, queue: AssignedQueue, answer: Any, is_slave: bool) -> None:
        fields = answer.ext_fields
        if answer.code == ResponseCode.SUCCESS:
            answer.ext_fields = fields | {
                "nextBeginOffset": str(int(fields["nextBeginOffset"]) + 1)
            }
        right(self, queue, answer, is_slave)

    patch.setattr(Puller, "_take", wrong)


def pull_again_what_came(patch: pytest.MonkeyPatch) -> None:
    right = Puller._take

    def wrong(self: Puller, queue: AssignedQueue, answer: Any, is_slave: bool) -> None:
        fields = answer.ext_fields
        if answer.code == ResponseCode.SUCCESS and not queue.span:
            answer.ext_fields = fields | {"nextBeginOffset": str(queue.next_offset + 1)}
        right(self, queue, answer, is_slave)

    patch.setattr(Puller, "_take", wrong)


def ignore_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    right = RemoteOffsetStore.read

    def wrong(self: RemoteOffsetStore, queue: MessageQueue) -> int | None:
        right(self, queue)
        return None

    patch.setattr(RemoteOffsetStore, "read", wrong)


def take_a_refusal_for_success(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService._on_failure

    def wrong(
        self: ConsumeConcurrentlyService, chunk: Any, start: int, stop: int, messages: Any,
        status: object, context: ConsumeContext, error: BaseException | None,
    ) -> None:  # fmt: skip
        right(self, chunk, start, stop, messages, SUCCESS, context, None)

    patch.setattr(ConsumeConcurrentlyService, "_on_failure", wrong)


def believe_a_refused_send_back(patch: pytest.MonkeyPatch) -> None:
    right = BrokerCalls.send_message_back

    def wrong(self: BrokerCalls, *values: Any, **named: Any) -> None:
        with contextlib.suppress(BrokerError):
            right(self, *values, **named)

    patch.setattr(BrokerCalls, "send_message_back", wrong)


def take_an_exception_for_success(patch: pytest.MonkeyPatch) -> None:
    right = ConsumeConcurrentlyService._on_failure

    def wrong(
        self: ConsumeConcurrentlyService, chunk: Any, start: int, stop: int, messages: Any,
        status: object, context: ConsumeContext, error: BaseException | None,
    ) -> None:  # fmt: skip
        status = status if error is None else SUCCESS
        right(self, chunk, start, stop, messages, status, context, None)

    patch.setattr(ConsumeConcurrentlyService, "_on_failure", wrong)


def begin_at_the_end_when_the_offset_is_unknown(patch: pytest.MonkeyPatch) -> None:
    right = RemoteOffsetStore.read

    def wrong(self: RemoteOffsetStore, queue: MessageQueue) -> int | None:
        try:
            return right(self, queue)
        except BrokerError:
            address = self._instance.master_of(queue)
            return self._instance.brokers.max_offset(address, queue)

    patch.setattr(RemoteOffsetStore, "read", wrong)


def commit_late_what_was_read_early(patch: pytest.MonkeyPatch) -> None:
    """At the end, what was stored at the beginning goes out again."""
    right, first = RemoteOffsetStore.read, dict[MessageQueue, int | None]()

    def read(self: RemoteOffsetStore, queue: MessageQueue) -> int | None:
        first[queue] = right(self, queue)
        return first[queue]

    def persist_now(self: RemoteOffsetStore, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._persist_one(queue, first[queue] or 0)

    patch.setattr(RemoteOffsetStore, "read", read)
    patch.setattr(RemoteOffsetStore, "persist_now", persist_now)


# What these do wrong is seen at a message that is refused, or at the end.
LATE = ("send-back", "refusal", "believed", "exception")
LATE_TEXT = "passed unfinished"

STREAM: dict[str, tuple[Plant | None, str]] = {
    "none": (None, ""),
    "maximum": (commit_the_maximum, "passed unfinished"),
    "send-back": (forget_to_send_back, "passed unfinished"),
    "last": (lose_the_last_of_a_pull, "was lost"),
    "zero": (take_an_unknown_offset_for_zero, "duplicates"),
    "early": (acknowledge_before_the_call, "passed unfinished"),
    "one more": (commit_one_too_far, "passed unfinished"),
    "carried": (carry_what_was_pulled, "passed unfinished"),
    "0 first": (commit_zero_at_first, "went back"),
    "-1": (commit_a_code_for_none, "commit of -1"),
    "twice": (take_every_pull_twice, "duplicates"),
    "gap": (skip_between_two_pulls, "was lost"),
    "overlap": (pull_again_what_came, "duplicates"),
    "anew": (ignore_what_was_committed, "duplicates"),
    "refusal": (take_a_refusal_for_success, "passed unfinished"),
    "believed": (believe_a_refused_send_back, "passed unfinished"),
    "exception": (take_an_exception_for_success, "passed unfinished"),
    "end": (begin_at_the_end_when_the_offset_is_unknown, "was lost"),
    "stale": (commit_late_what_was_read_early, "went back"),
}


@pytest.mark.parametrize("name", STREAM)
def test_stream(
    name: str,
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty messages behind three that are done; some are refused, some requests fail."""
    plant, text = STREAM[name]
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    note = proxied.broker.on_answer
    assert note is not None
    refused: list[str] = []

    def on_answer(frame: Frame) -> Any:
        """The first question for the offset fails, and the second message that is given back."""
        request = frame.request
        if request is not None and frame.code == RequestCode.QUERY_CONSUMER_OFFSET:
            if request.ext_fields["topic"] == topic and "offset" not in refused:
                refused.append("offset")
                return answer_with(frame, ResponseCode.SYSTEM_BUSY)
        elif request is not None and frame.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            refused.append("back")
            if refused.count("back") == 2:
                return answer_with(frame, ResponseCode.SYSTEM_BUSY)
        return note(frame)

    proxied.broker.on_answer = on_answer
    old, sent = bodies(3, "old"), bodies(60)
    broker.send(topic, old)
    broker.commit(group, topic, 0, 3)
    history.note_start(broker.queue(topic), 3)
    history.note_sent(broker.send(topic, sent), sent)
    for offset, body in enumerate(old):
        history.sent[broker.queue(topic), offset] = body
        # Done by whoever committed 3: seeing it again is a duplicate.
        history.note_delivered((broker.queue(topic), offset), body, -1 - offset)

    def listen(messages: list[MessageExt], _: ConsumeContext) -> ConsumeStatus:
        message = messages[0]
        if message.body == b"m10" and text == LATE_TEXT and name not in LATE:
            # Held until the wrong commit went out, which the right consumer would not make.
            wait_for(lambda: any(offset > 13 for _, _, offset in history.commits), "a wrong commit")
        if message.reconsume_times == 0 and message.body in (b"m20", b"m30"):
            return LATER
        if message.reconsume_times == 0 and message.body == b"m40":
            raise ValueError("the listener fails on purpose")
        return SUCCESS

    if plant is not None:
        plant(monkeypatch)
    recorder = Recorder(history.listener(listen))
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=1
    ) as consumer:
        if name == "end":
            wait_for(lambda: consumer.stats()["queues"], "the queue")
            more = bodies(1, "more")
            history.note_sent(broker.send(topic, more), more)
        else:
            wait_for(lambda: broker.committed(group, topic).get(0, 0) >= 63, "the last commit")
        if plant is None:
            recorder.wait_deliveries(63)  # and the three that were refused, again
    verdict(plant, history, text)
