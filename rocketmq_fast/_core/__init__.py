"""The native core: Cython bindings over csrc/. The only place that includes C headers."""

from rocketmq_fast._core.frame import (
    FrameSplitter,
    RemotingCommand,
    decode_frame,
    encode_frame,
)

__all__ = [
    "FrameSplitter",
    "RemotingCommand",
    "decode_frame",
    "encode_frame",
]
