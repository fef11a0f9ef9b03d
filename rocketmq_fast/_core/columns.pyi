from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from rocketmq_fast._core.message import MessageBatch

COLUMNS: Final[tuple[str, ...]]

class ArrowBatch:
    errors: list[tuple[int, int | None, str]]
    def __len__(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...

class ArrowBuilder:
    columns: tuple[str, ...]
    def __init__(self, columns: Iterable[str] | None = None) -> None: ...
    def append(
        self,
        batch: MessageBatch,
        broker_name: str | None = None,
        start_offset: int | None = None,
        end_offset: int | None = None,
        mask: npt.NDArray[np.bool_] | None = None,
    ) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def finish(self) -> ArrowBatch: ...

def decode_arrow(
    buffer: Buffer,
    *,
    columns: Iterable[str] | None = None,
    broker_name: str | None = None,
    decompress: bool = True,
    check_crc: bool = False,
    max_body: int = 33554432,
) -> ArrowBatch: ...
