"""A listener that keeps what it saw, and consumers that are stopped whatever happens."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rocketmq_fast import ConsumeStatus, MessageExt, MessageQueue, PushConsumer, Sql
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.protocol.names import DLQ_PREFIX
from tests.brokers import TestBroker
from tests.waiting import DEFAULT_SECONDS, wait_for

SUCCESS = ConsumeStatus.CONSUME_SUCCESS
LATER = ConsumeStatus.RECONSUME_LATER

Answer = Callable[[list[MessageExt], ConsumeContext], object]


@dataclass(frozen=True, slots=True)
class Seen:
    """One delivery."""

    queue: MessageQueue  # where it came from: for a retry the retry topic's queue
    topic: str
    offset: int
    body: bytes
    tags: str | None
    reconsume_times: int
    properties: Mapping[str, str]
    msg_id: str
    log_offset: int
    message: MessageExt


class Recorder:
    """A listener; `answer` decides what it returns, success when not given."""

    def __init__(self, answer: Answer | None = None) -> None:
        self._answer = answer
        self._lock = threading.Lock()
        self.seen: list[Seen] = []
        self.batches: list[int] = []

    def __call__(self, messages: list[MessageExt], context: ConsumeContext) -> Any:
        found = [
            Seen(
                context.message_queue,
                message.topic,
                message.queue_offset,
                message.body,
                message.tags,
                message.reconsume_times,
                message.properties,
                message.msg_id,
                message.commit_log_offset,
                message,
            )
            for message in messages
        ]
        with self._lock:
            self.seen += found
            self.batches.append(len(found))
        return SUCCESS if self._answer is None else self._answer(messages, context)

    @property
    def bodies(self) -> list[bytes]:
        """Bodies in the order of delivery."""
        with self._lock:
            return [seen.body for seen in self.seen]

    def of(self, body: bytes) -> list[Seen]:
        """Deliveries of one body."""
        with self._lock:
            return [seen for seen in self.seen if seen.body == body]

    def wait(self, count: int, seconds: float = DEFAULT_SECONDS) -> list[Seen]:
        """Wait until `count` distinct bodies came."""
        wait_for(
            lambda: len(set(self.bodies)) >= count,
            lambda: f"{count} bodies; {len(set(self.bodies))} came",
            seconds,
        )
        return list(self.seen)

    def wait_deliveries(self, count: int, seconds: float = DEFAULT_SECONDS) -> list[Seen]:
        """Wait until there were `count` deliveries."""
        wait_for(
            lambda: len(self.bodies) >= count,
            lambda: f"{count} deliveries; {len(self.bodies)} came",
            seconds,
        )
        return list(self.seen)


def bodies(count: int, mark: str = "m", size: int = 0) -> list[bytes]:
    """Distinct bodies, padded to `size`."""
    return [f"{mark}{index}".encode().ljust(size, b".") for index in range(count)]


def assert_once(recorder: Recorder, expected: list[bytes]) -> None:
    """Everything came exactly once."""
    got, wanted = Counter(recorder.bodies), Counter(expected)
    assert not wanted - got, f"missing: {dict(wanted - got)}"
    assert not got - wanted, f"too many: {dict(got - wanted)}"


def make(
    namesrv_addr: str,
    group: str,
    topics: Mapping[str, str | Sql] | str,
    listener: Callable[..., Any],
    **options: Any,
) -> PushConsumer:
    """A consumer that begins at the first message, not started."""
    options.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    orderly = bool(options.pop("orderly", False))
    consumer = PushConsumer(group, namesrv_addr=namesrv_addr, **options)
    for topic, expression in ({topics: "*"} if isinstance(topics, str) else topics).items():
        consumer.subscribe(topic, expression)
    consumer.register_listener(listener, orderly=orderly)
    return consumer


@contextlib.contextmanager
def consuming(
    namesrv_addr: str,
    group: str,
    topics: Mapping[str, str | Sql] | str,
    listener: Callable[..., Any],
    *,
    assigned: bool = True,
    **options: Any,
) -> Iterator[PushConsumer]:
    """A started consumer that owns queues, shut down at the end."""
    consumer = make(namesrv_addr, group, topics, listener, **options)
    consumer.start()
    try:
        if assigned:
            assert consumer.wait_assigned(DEFAULT_SECONDS), f"no queue of {topics}"
        yield consumer
    finally:
        consumer.shutdown()


@contextlib.contextmanager
def releasing(*events: threading.Event) -> Iterator[None]:
    """Let blocked listeners go when the test fails, or its consumer would wait for them."""
    try:
        yield
    finally:
        for event in events:
            event.set()


def owned(consumer: PushConsumer, topic: str) -> set[int]:
    """Queue ids of a topic that a consumer owns."""
    return {queue.queue_id for queue in consumer.assigned() if queue.topic == topic}


def dead_letters(broker: TestBroker, group: str, count: int) -> Recorder:
    """Read a group's dead letters: its `count` first."""
    recorder = Recorder()
    with consuming(
        broker.namesrv_addr,
        broker.group(),
        DLQ_PREFIX + group,
        recorder,
        poll_name_server_interval=200,
        assigned=False,
    ):
        recorder.wait(count)
    return recorder
