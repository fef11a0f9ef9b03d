import numpy as np
import numpy.typing as npt

from rocketmq_fast._core.message import MessageBatch

def java_hash(text: str) -> int: ...

class TagFilter:
    expression: str
    tags: frozenset[str]
    codes: frozenset[int]
    matches_all: bool
    def __init__(self, expression: str | None = "*") -> None: ...
    def matches(self, tag: str | None) -> bool: ...
    def mask(self, batch: MessageBatch) -> npt.NDArray[np.bool_]: ...
