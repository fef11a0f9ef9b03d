"""A blocking client over the package's own codec, for tests of the embedded servers."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from types import TracebackType
from typing import Self

from rocketmq_fast._core import FrameSplitter, RemotingCommand, decode_messages, encode_frame

SEND, BATCH, PULL = 310, 320, 11


def element(body: bytes, properties: str = "", flag: int = 0) -> bytes:
    """One element of a batch body."""
    encoded = properties.encode()
    head = struct.pack(">iiiii", 22 + len(body) + len(encoded), 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(encoded)) + encoded


def send_fields(topic: str, queue: int | str = 0, **fields: str | None) -> dict[str, str]:
    """Header of request 310; a field given as None is left out."""
    table: dict[str, str | None] = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0",
        "g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", **fields,
    }  # fmt: skip
    return {name: value for name, value in table.items() if value is not None}


def pull_fields(
    topic: str, queue: int | str = 0, offset: int | str = 0, **fields: str | None
) -> dict[str, str]:
    """Header of request 11 with the subscription in it; a field given as None is left out."""
    table: dict[str, str | None] = {
        "consumerGroup": "CG", "topic": topic, "queueId": str(queue), "queueOffset": str(offset),
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG", **fields,
    }  # fmt: skip
    return {name: value for name, value in table.items() if value is not None}


def heartbeat(
    client_id: str, group: str, topics: dict[str, tuple[str, list[int], int]], **fields: object
) -> bytes:
    """Body of request 34; topics map to (expression, tag codes, version)."""
    subscriptions = [
        {
            "classFilterMode": False,
            "codeSet": codes,
            "expressionType": "TAG",
            "subString": expression,
            "subVersion": version,
            "tagsSet": [],
            "topic": topic,
        }
        for topic, (expression, codes, version) in topics.items()
    ]
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
        **fields,
    }
    value = {
        "clientID": client_id,
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": "PG"}],
    }
    return json.dumps(value).encode()


def lock_body(client_id: str, group: str, topic: str, broker: str, *queues: int) -> bytes:
    """Body of requests 41 and 42."""
    keys = [{"brokerName": broker, "queueId": queue, "topic": topic} for queue in queues]
    value = {"clientId": client_id, "consumerGroup": group, "mqSet": keys}
    return json.dumps(value).encode()


class Raw:
    """One connection. Requests of the server are kept in `pushed`."""

    def __init__(self, address: str, *, timeout: float = 20.0, serialize_type: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout)
        self.serialize_type = serialize_type
        self.pushed: list[RemotingCommand] = []
        self._answers: list[RemotingCommand] = []
        self._splitter = FrameSplitter()
        self._opaques = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.sock.close()

    def send(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **header: int
    ) -> int:
        """Send a request; returns its opaque."""
        opaque = next(self._opaques)
        command = RemotingCommand(
            code, fields or {}, body, opaque=opaque,
            **{"serialize_type": self.serialize_type, **header},
        )  # fmt: skip
        self.sock.sendall(encode_frame(command))
        return opaque

    def receive(self) -> None:
        """Wait for more frames. Raises ConnectionError when the server has closed."""
        data = self.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        for command in self._splitter.feed(data):
            (self._answers if command.is_response else self.pushed).append(command)

    def wait(self, opaque: int) -> RemotingCommand:
        """Wait for the answer to a request."""
        while True:
            for index, command in enumerate(self._answers):
                if command.opaque == opaque:
                    return self._answers.pop(index)
            self.receive()

    def wait_push(self) -> RemotingCommand:
        """Wait for a request of the server."""
        while not self.pushed:
            self.receive()
        return self.pushed.pop(0)

    def call(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b"", **header: int
    ) -> RemotingCommand:
        """Send a request and wait for its answer."""
        return self.wait(self.send(code, fields, body, **header))


def send(raw: Raw, topic: str, queue: int, body: bytes, properties: str = "") -> RemotingCommand:
    """Store one message; returns the answer."""
    response = raw.call(SEND, send_fields(topic, queue, i=properties), body)
    assert response.code == 0, response.remark
    return response


def texts(response: RemotingCommand) -> list[bytes]:
    """The bodies that a pull or a query gave."""
    assert response.code == 0, response.remark
    return [message.body for message in decode_messages(response.body, check_crc=True)]
