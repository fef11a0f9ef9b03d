"""The places where facts are noted: around listeners, in a client's requests, at a proxy.

`note` is that of a History, or of a tests.facts.FactFile in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import rocketmq_fast as rmq
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.errors import ConnectError, ConnectionClosed
from rocketmq_fast.protocol.bodies import LockBatch, locked_queues_of
from rocketmq_fast.protocol.codes import PullSysFlag, RequestCode
from rocketmq_fast.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from tests import ordering
from tests.consuming import SUCCESS, Answer
from tests.proxy import Frame, Hook

Note = Callable[..., None]
ContextT = TypeVar("ContextT", ConsumeContext, rmq.OrderlyContext)

_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)


def _places(
    messages: Sequence[rmq.MessageExt], queue: rmq.MessageQueue
) -> list[tuple[rmq.MessageQueue, int]]:
    return [(queue, message.queue_offset) for message in messages]


def listener(note: Note, answer: Answer | None = None) -> Answer:
    """A listener that notes what it gets and what becomes of it; without `answer` it succeeds."""

    def listen(messages: list[rmq.MessageExt], context: ConsumeContext) -> object:
        places = _places(messages, context.message_queue)
        for place, message in zip(places, messages, strict=True):
            note("delivered", place, message.body, message.commit_log_offset)
        status: object = None
        acked = 0
        try:
            status = SUCCESS if answer is None else answer(messages, context)
            if status is SUCCESS:
                acked = max(0, min(context.ack_index + 1, len(messages)))
        finally:
            for place, message in list(zip(places, messages, strict=True))[:acked]:
                note("acked", place, message.body)
            for place in places[acked:]:
                note("refused", place)
        return status

    return listen


def orderly_listener(
    note: Note, member: str, answer: ordering.Answer | None = None
) -> ordering.Answer:
    """As `listener` for an orderly one. What succeeds without auto_commit waits for COMMIT."""
    # Of each queue, what succeeded and was not committed. One call of a queue runs at a time; where
    # two do, the calls say so.
    pending: dict[rmq.MessageQueue, list[tuple[tuple[rmq.MessageQueue, int], bytes]]] = {}

    def listen(messages: list[rmq.MessageExt], context: rmq.OrderlyContext) -> object:
        queue = context.message_queue
        begun = time.monotonic_ns()
        places = _places(messages, queue)
        offsets = tuple(message.queue_offset for message in messages)
        times = tuple(message.reconsume_times for message in messages)
        for place, message in zip(places, messages, strict=True):
            note("delivered", place, message.body, message.commit_log_offset)
        status: object = None
        try:
            status = ordering.SUCCESS if answer is None else answer(messages, context)
        finally:
            good = status in (rmq.OrderlyStatus.SUCCESS, rmq.OrderlyStatus.COMMIT)
            if good:
                done = pending.setdefault(queue, [])
                done += [(p, m.body) for p, m in zip(places, messages, strict=True)]
                if context.auto_commit or status is rmq.OrderlyStatus.COMMIT:
                    for place, body in pending.pop(queue):
                        note("acked", place, body)
            elif status is rmq.OrderlyStatus.ROLLBACK and not context.auto_commit:
                for place, _ in pending.pop(queue, []):
                    note("refused", place)
            if not good:
                for place in places:
                    note("refused", place)
            call = ordering.Call(
                member, queue.queue_id, offsets, times, begun, time.monotonic_ns(), good
            )
            note("call", queue, call)
        return status

    return listen


class Witness(rmq.RpcHook):
    """Notes what a member asks, commits, sends back and locks. `brokers` has names by address."""

    def __init__(self, member: str, note: Note, brokers: Mapping[str, str]) -> None:
        self._member = member
        self._note = note
        self._brokers = brokers
        self._locking: dict[int, int] = {}  # when requests for locks left, by opaque

    def _queue(self, address: str, request: RemotingCommand) -> rmq.MessageQueue:
        fields = request.ext_fields
        return rmq.MessageQueue(fields["topic"], self._brokers[address], int(fields["queueId"]))

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Commits, by themselves and with pulls."""
        if request.code == RequestCode.LOCK_BATCH_MQ:
            self._locking[request.opaque] = time.monotonic_ns()
        if _commits(request):
            offset = int(request.ext_fields["commitOffset"])
            self._note("commit", self._queue(address, request), offset, self._member)

    def after_response(
        self, address: str, request: RemotingCommand, response: RemotingCommand | Exception
    ) -> None:
        """Where a member goes on, its locks, and what brokers took back."""
        locking = self._locking.pop(request.opaque, 0)
        if isinstance(response, Exception):
            is_away = isinstance(response, (ConnectionClosed, ConnectError))
            if is_away and request.code == RequestCode.PULL_MESSAGE:
                broker = self._brokers[address]
                self._note("cut_off", self._member, broker, time.monotonic_ns())
            return
        if response.code != 0:
            return
        if locking:
            asked = tuple(LockBatch.from_body(request.body).queues)
            held = tuple(locked_queues_of(response.body))
            self._note("locks", self._member, asked, held, (locking, time.monotonic_ns()))
        elif request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            offset = int(response.ext_fields["offset"])
            self._note("owner", self._member, self._queue(address, request), offset)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            self._note("sent_back", self._brokers[address], int(request.ext_fields["offset"]))
        elif request.code in _SENDS and _topic_of(request).startswith((RETRY_PREFIX, DLQ_PREFIX)):
            self._note("copied", request.body)


def hooks(note: Note, group: str, broker_name: str, member: str = "") -> tuple[Hook, Hook]:
    """For requests and answers that pass a broker's proxy: commits and send-backs of a group."""

    def on_request(frame: Frame) -> None:
        fields = frame.command.ext_fields
        if fields.get("consumerGroup") == group and _commits(frame.command):
            queue = rmq.MessageQueue(fields["topic"], broker_name, int(fields["queueId"]))
            note("commit", queue, int(fields["commitOffset"]), member)

    def on_answer(frame: Frame) -> None:
        request = frame.request
        if request is None or frame.command.code != 0:
            return
        if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            if request.ext_fields["group"] == group:
                note("sent_back", broker_name, int(request.ext_fields["offset"]))
        elif request.code in _SENDS and _topic_of(request) in (
            RETRY_PREFIX + group,
            DLQ_PREFIX + group,
        ):
            note("copied", request.body)

    return on_request, on_answer


def _commits(request: RemotingCommand) -> bool:
    if request.code == RequestCode.PULL_MESSAGE:
        return bool(int(request.ext_fields["sysFlag"]) & PullSysFlag.COMMIT_OFFSET)
    return request.code == RequestCode.UPDATE_CONSUMER_OFFSET


def _topic_of(request: RemotingCommand) -> str:
    fields = request.ext_fields
    return fields.get("topic") or fields.get("b") or ""
