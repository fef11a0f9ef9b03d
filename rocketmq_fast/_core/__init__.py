"""The native core: Cython bindings over csrc/. The only place that includes C headers."""

from rocketmq_fast._core.columns import ArrowBatch, ArrowBuilder, decode_arrow
from rocketmq_fast._core.encode import (
    UniqueIdGenerator,
    crc32,
    crc32_kernel,
    decode_properties,
    encode_batch,
    encode_properties,
)
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
    "ArrowBatch",
    "ArrowBuilder",
    "FrameSplitter",
    "MessageBatch",
    "MessageExt",
    "ProcessQueue",
    "RemotingCommand",
    "TagFilter",
    "UniqueIdGenerator",
    "crc32",
    "crc32_kernel",
    "decode_arrow",
    "decode_frame",
    "decode_messages",
    "decode_properties",
    "encode_batch",
    "encode_frame",
    "encode_properties",
    "java_hash",
]
