"""What becomes of messages that could not be decoded: hold, skip, or dead_letter."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rocketmq_fast._core import MessageBatch, RemotingCommand
from rocketmq_fast.consumer.assigned import AssignedQueue

logger = logging.getLogger(__name__)

# Of the stored layout: where the commit log offset stands in a message.
_LOG_OFFSET_START, _LOG_OFFSET_END = 28, 36

DeadLetter = Callable[[AssignedQueue, int, int], None]


class BadMessages:
    """Applies the policy on_bad_message. Event loop's thread."""

    def __init__(self, policy: str, dead_letter: DeadLetter) -> None:
        self.count = 0
        self._policy = policy
        self._dead_letter = dead_letter

    def settle(self, queue: AssignedQueue, answer: RemotingCommand, batch: MessageBatch) -> None:
        """Deal with every entry of the batch's errors."""
        for position, offset, reason in batch.errors:
            self.count += 1
            where = self._offset_of(queue, batch, offset)
            logger.error(
                "message of %s at offset %s could not be decoded (%s); policy %s",
                queue.message_queue,
                where if offset is not None else f"{where} or behind",
                reason,
                self._policy,
            )
            if self._policy == "skip":
                continue
            queue.hold(where)
            log_offset = answer.body_view()[
                position + _LOG_OFFSET_START : position + _LOG_OFFSET_END
            ]
            if self._policy == "dead_letter" and offset is not None and len(log_offset) == 8:
                self._dead_letter(queue, where, int.from_bytes(log_offset, "big", signed=True))

    @staticmethod
    def _offset_of(queue: AssignedQueue, batch: MessageBatch, offset: int | None) -> int:
        """The offset to stay at: the message's own, or the first that none of the good ones has."""
        if offset is not None and offset >= queue.next_offset:
            return offset
        expected = queue.next_offset
        for known in batch.queue_offsets.tolist():
            if known != expected:
                break
            expected += 1
        return expected
