"""The least that a Python client can do: pull, read the next offset, throw the bytes away.

One connection, one outstanding pull for each queue, no package of this repository. It bounds what
the broker and the loopback hand to any Python client.

``python -m benchmarks.raw_puller --broker HOST:PORT --topic T --ends 2500,2500`` prints a JSON
object.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import time

from benchmarks.usage import used

_PULL_MESSAGE = 11
_SUBSCRIPTION_FLAG = 4
_PREFIX = struct.Struct(">iI")
_BUFFER_BYTES = 4 << 20
_TIMEOUT_SECONDS = 30.0


class _Queue:
    """A queue that is read to its end: the request as bytes around the offset."""

    def __init__(self, topic: str, queue_id: int, pull_batch: int, end: int) -> None:
        self.offset = 0
        self.end = end
        fields = {
            "consumerGroup": "raw_puller",
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": "@",
            "maxMsgNums": str(pull_batch),
            "sysFlag": str(_SUBSCRIPTION_FLAG),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        header = {
            "code": _PULL_MESSAGE,
            "language": "OTHER",
            "version": 401,
            "opaque": queue_id,
            "flag": 0,
            "extFields": fields,
        }
        before, after = json.dumps(header).encode().split(b"@")
        self._before = before
        self._after = after

    def request(self) -> bytes:
        """The next pull."""
        header = self._before + b"%d" % self.offset + self._after
        return _PREFIX.pack(4 + len(header), len(header)) + header


class _Stream:
    """Frames out of a socket; bodies are left in the receive buffer and overwritten."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def next_header(self) -> tuple[bytes, int]:
        """The header of the next frame and the size of its body, which is dropped."""
        self._need(_PREFIX.size)
        length, header_size = _PREFIX.unpack_from(self._buffer, self._start)
        size = 4 + length
        if size > len(self._buffer):
            raise ValueError(f"a frame of {size} bytes")
        self._need(size)
        at = self._start + _PREFIX.size
        header = bytes(self._view[at : at + header_size])
        self._start += size
        return header, size - _PREFIX.size - header_size

    def _need(self, size: int) -> None:
        if self._end - self._start < size and self._start + size > len(self._buffer):
            rest = self._end - self._start
            self._view[:rest] = self._view[self._start : self._end]
            self._start, self._end = 0, rest
        while self._end - self._start < size:
            if self._start == self._end:
                self._start = self._end = 0
            received = self._connection.recv_into(self._view[self._end :])
            if received == 0:
                raise ConnectionResetError("the broker closed the connection")
            self._end += received


def pull(broker: str, topic: str, ends: list[int], pull_batch: int) -> dict[str, object]:
    """Read every queue to its end. ``ends`` are the maximum offsets of queues 0, 1, ..."""
    host, _, port = broker.rpartition(":")
    queues = [_Queue(topic, number, pull_batch, end) for number, end in enumerate(ends)]
    pulls = body_bytes = messages = 0
    first = 0.0
    open_queues = sum(1 for queue in queues if queue.end > 0)
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"".join(queue.request() for queue in queues if queue.end > 0))
        stream = _Stream(connection)
        while open_queues:
            header, size = stream.next_header()
            if not first:
                first = time.perf_counter()
            answer = json.loads(header)
            queue = queues[answer["opaque"]]
            if answer["code"] != 0:
                raise RuntimeError(
                    f"pull of queue {answer['opaque']} at {queue.offset}: code {answer['code']} "
                    f"{answer.get('remark')}"
                )
            after = int(answer["extFields"]["nextBeginOffset"])
            pulls += 1
            body_bytes += size
            messages += after - queue.offset
            queue.offset = after
            if after < queue.end:
                connection.sendall(queue.request())
            else:
                open_queues -= 1
    seconds = time.perf_counter() - first
    return {
        "messages": messages,
        "complete": messages == sum(ends),
        "seconds": seconds,
        "messages_per_second": messages / seconds,
        "stored_bytes": body_bytes,
        "pulls": pulls,
        "pull_batch": pull_batch,
        **used(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.raw_puller", description=__doc__)
    parser.add_argument("--broker", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--ends", required=True, help="maximum offsets, joined by commas")
    parser.add_argument("--pull-batch", type=int, default=32)
    options = parser.parse_args()
    ends = [int(end) for end in options.ends.split(",")]
    print(json.dumps(pull(options.broker, options.topic, ends, options.pull_batch)))


if __name__ == "__main__":
    main()
