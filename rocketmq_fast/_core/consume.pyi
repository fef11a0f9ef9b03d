from collections.abc import Callable
from typing import TypeAlias

from rocketmq_fast._core.message import MessageBatch, MessageExt
from rocketmq_fast._core.queue import ProcessQueue
from rocketmq_fast.model import MessageQueue

class ConsumeContext:
    ack_index: int
    delay_level_when_next_consume: int
    def __init__(self, message_queue: MessageQueue) -> None: ...
    @property
    def message_queue(self) -> MessageQueue: ...

class OrderlyContext:
    message_queue: MessageQueue
    auto_commit: bool
    suspend_current_queue_time_millis: int
    def __init__(self, message_queue: MessageQueue) -> None: ...

class QueueState:
    dropped: bool
    releasing: bool
    locked_until: float
    def __init__(self, message_queue: MessageQueue) -> None: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    @property
    def process_queue(self) -> ProcessQueue: ...
    def on_removed(self, offset: int) -> None: ...

class Chunk:
    def __init__(
        self, queue: QueueState, batch: MessageBatch, start: int, end: int, batch_size: int
    ) -> None: ...
    @property
    def queue(self) -> QueueState: ...
    @property
    def batch(self) -> MessageBatch: ...
    @property
    def next(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def calls_left(self) -> int: ...
    def give_up(self) -> int: ...

FailureCallback: TypeAlias = Callable[
    [Chunk, int, int, list[MessageExt], object, ConsumeContext, BaseException | None], None
]

class ConsumeWorker:
    def __init__(self) -> None: ...
    @property
    def chunk(self) -> Chunk | None: ...
    @property
    def start(self) -> int: ...
    @property
    def stop(self) -> int: ...
    @property
    def since(self) -> float: ...
    @property
    def calls(self) -> int: ...
    @property
    def succeeded(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    def flush(self) -> None: ...
    def consume(
        self,
        chunk: Chunk,
        listener: Callable[[list[MessageExt], ConsumeContext], object],
        on_failure: FailureCallback,
        stopping: Callable[[], bool],
    ) -> None: ...
    def consume_in_order(
        self,
        queue: QueueState,
        batch_size: int,
        listener: Callable[[list[MessageExt], OrderlyContext], object],
        settle: Callable[
            [QueueState, list[MessageExt], OrderlyContext, object, BaseException | None],
            float | None,
        ],
        pause: Callable[[float], float | None],
    ) -> float | None: ...
