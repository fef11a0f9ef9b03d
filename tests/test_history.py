"""The checker of histories finds what it is for: planted bugs, and facts made up to be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tests.proxy import Frame, ProxiedCluster, answer_with
from tests.waiting import wait_for

QUEUE = MessageQueue("T", "broker-a", 0)


def made(*facts: tuple[str, Any]) -> History:
    """A history of five messages, m0 to m4, and these facts in order."""
    history = History()
    history.sent = {(QUEUE, offset): f"m{offset}".encode() for offset in range(5)}
    for kind, value in facts:
        if kind == "deliver":
            history.note_delivered((QUEUE, value), f"m{value}".encode(), 1000 + value)
        elif kind == "ack":
            history.note_acked((QUEUE, value), f"m{value}".encode())
        elif kind == "back":
            history.note_sent_back(QUEUE.broker_name, 1000 + value)
        elif kind == "commit":
            history.note_commit(QUEUE, value)
        elif kind == "start":
            history.note_start(QUEUE, value)
        elif kind == "skip":
            history.note_unwanted((QUEUE, value))
        else:
            raise ValueError(kind)
    return history


def handled(*offsets: int) -> Iterator[tuple[str, int]]:
    for offset in offsets:
        yield "deliver", offset
        yield "ack", offset


@pytest.mark.parametrize(
    "facts",
    [
        [*handled(0, 1, 2, 3, 4), ("commit", 5)],
        [*handled(4, 3, 2, 1), ("commit", 0), *handled(0), ("commit", 5)],
        [*handled(0, 1, 2), ("deliver", 3), ("back", 3), *handled(4), ("commit", 5)],
        [("start", 2), *handled(2, 3, 4), ("commit", 2), ("commit", 5), ("commit", 5)],
        [("skip", 1), *handled(0, 2, 3, 4), ("commit", 3), ("commit", 5)],
    ],
    ids=["plain", "any order", "sent back", "later start", "filtered"],
)
def test_right_histories_pass(facts: list[tuple[str, Any]]) -> None:
    made(*facts).check()


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ([*handled(0, 1, 2, 4), ("commit", 3)], "offset 3 was lost"),
        ([*handled(0, 1, 3, 4), ("deliver", 2), ("commit", 5)], "passed unfinished [2]"),
        ([("deliver", 0), ("commit", 1), ("ack", 0)], "passed unfinished [0]"),
        ([*handled(0, 1), ("commit", 2), ("commit", 1)], "went back from 2 to 1"),
        ([("start", 3), ("commit", 0)], "went back from 3 to 0"),
        ([("commit", -1)], "commit of -1"),
        ([*handled(0, 1, 2, 3, 4, 4), ("commit", 5)], "1 duplicates"),
        ([("deliver", 0), ("back", 4), ("commit", 1)], "passed unfinished [0]"),
    ],
    ids=["lost", "maximum", "before ack", "back", "zero", "negative", "duplicate", "other back"],
)
def test_wrong_histories_fail(facts: list[tuple[str, Any]], text: str) -> None:
    assert text in "\n".join(made(*facts).violations())


def test_wrong_bodies_fail() -> None:
    history = made(*handled(0, 1, 2, 3, 4))
    history.note_delivered((QUEUE, 2), b"other", 1002)
    history.note_delivered((QUEUE, 9), b"never sent", 1009)
    text = "\n".join(history.violations(duplicates=9))
    assert "offset 2 has another body" in text
    assert "offset 9 was never sent" in text


def test_an_empty_history_proves_nothing() -> None:
    with pytest.raises(AssertionError, match="nothing was sent"):
        History().check()
    with pytest.raises(AssertionError, match="no commit was seen"):
        made(*handled(0, 1, 2, 3, 4)).check()


# ------------------------------------------------------------------------- planted bugs


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


# What these do wrong is seen at the message that is refused.
REFUSALS = ("send-back", "refusal")

BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None] | None, str]] = {
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
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_caught(
    name: str,
    embedded_broker: TestBroker,
    embedded_proxied: ProxiedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant, text = BUGS[name]
    broker, proxied = embedded_broker, embedded_proxied
    topic, group = broker.topic(1), broker.group()
    history = History()
    history.watch(proxied, group, broker.broker_name)
    note = proxied.broker.on_answer
    assert note is not None
    refused = []

    def on_answer(frame: Frame) -> Any:
        """The first question for the offset fails."""
        request = frame.request
        if request is None or refused or frame.code != RequestCode.QUERY_CONSUMER_OFFSET:
            return note(frame)
        if request.ext_fields["topic"] == topic:
            refused.append(frame)
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
        if message.body == b"m10" and text == "passed unfinished" and name not in REFUSALS:
            # Held until the wrong commit went out, which the right consumer would not make.
            wait_for(lambda: any(offset > 13 for _, _, offset in history.commits), "a wrong commit")
        return LATER if message.body == b"m20" and message.reconsume_times == 0 else SUCCESS

    if plant is not None:
        plant(monkeypatch)
    recorder = Recorder(history.listener(listen))
    with consuming(
        proxied.namesrv_addr, group, topic, recorder, persist_consumer_offset_interval=1
    ):
        wait_for(lambda: broker.committed(group, topic).get(0, 0) >= 63, "the commit of the end")
        if plant is None:
            recorder.wait_deliveries(61)  # and the one that was refused, again
    found = "\n".join(history.violations())
    if plant is None:
        assert not found, found
    else:
        assert text in found
