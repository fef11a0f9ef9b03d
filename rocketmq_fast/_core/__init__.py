"""The native core: Cython bindings over csrc/. The only place that includes C headers."""

from rocketmq_fast._core.frame import (
    FrameSplitter,
    RemotingCommand,
    decode_frame,
    encode_frame,
)
from rocketmq_fast._core.message import MessageBatch, MessageExt, decode_messages
from rocketmq_fast._core.queue import ProcessQueue
from rocketmq_fast._core.tags import TagFilter, java_hash

__all__ = [
    "FrameSplitter",
    "MessageBatch",
    "MessageExt",
    "ProcessQueue",
    "RemotingCommand",
    "TagFilter",
    "decode_frame",
    "decode_messages",
    "encode_frame",
    "java_hash",
]
