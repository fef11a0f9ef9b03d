"""Fuzzes the embedded servers: `python -m tests.fuzz_server --seconds 3600 --seed 7`.

Frames that are right, almost right and not right at all go to a broker and a name server over
sockets. It is a bug when a server logs an exception, stops answering others, or when its memory
grows without bound. The seed of each round is printed with what it found and repeats it.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import socket
import sys
import time
from pathlib import Path
from typing import TypeAlias

from rocketmq_fast._core import RemotingCommand, encode_frame
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol.codes import RequestCode
from tests.embedded_raw import Raw, element, heartbeat, lock_body, pull_fields, send_fields

_Request: TypeAlias = tuple[int, dict[str, str], bytes]
_FRAMES_A_ROUND = 8
_CHECK_EVERY = 50
_MORE_MIB = 300
_ODD = ("", "-1", "0", "2147483648", "9" * 30, "\x00", "T", "%RETRY%CG", "a||b", "x" * 300,
        "true", "TBW102", "SCHEDULE_TOPIC_XXXX", "..", "\u00e4")  # fmt: skip
_NAMES = ("topic", "queueId", "consumerGroup", "group", "producerGroup", "offset", "maxMsgNums",
          "sysFlag", "subscription", "expressionType", "a", "b", "e", "f", "i", "j", "l", "m",
          "namespace", "key", "value", "brokerName", "clusterName", "brokerAddr", "brokerId",
          "timestamp", "commitOffset", "delayLevel", "suspendTimeoutMillis", "cluster",
          "originTopic", "msgId", "clientId", "maxNum", "readQueueNums")  # fmt: skip


class Found(AssertionError):
    """The servers did what they must not."""


class _Errors(logging.Handler):
    """Keeps what is logged with a traceback, or as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = logging.Formatter().format(record)
        self.texts.append(text)


def _resident_mib() -> int:
    pages = Path("/proc/self/statm")
    if not pages.exists():
        return 0
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _seeds() -> list[_Request]:
    """Requests that are right."""
    batch = element(b"a", "TAGS\x01A") + element(b"b")
    registered = (b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,"timestamp":2},'
                  b'"topicConfigTable":{"T":{"topicName":"T","perm":6,"readQueueNums":1,'
                  b'"writeQueueNums":1}}}}')  # fmt: skip
    broker = {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": "0"}
    made: list[_Request] = [
        (310, send_fields("T", i="TAGS\x01A\x02KEYS\x01k"), b"body"),
        (320, send_fields("T", m="true"), batch),
        (11, pull_fields("T"), b""),
        (11, pull_fields("T", subscription="a > 1 AND b IS NOT NULL", expressionType="SQL92"), b""),
        (34, {}, heartbeat("c", "CG", {"T": ("*", [], 1)})),
        (41, {}, lock_body("c", "CG", "T", "broker-a", 0, 1)),
        (36, {"group": "CG", "offset": "0", "delayLevel": "0", "originTopic": "T"}, b""),
        (37, {"tranStateTableOffset": "0", "commitLogOffset": "0", "commitOrRollback": "8",
              "producerGroup": "P", "transactionId": "t"}, b""),
        (103, broker, registered),
        (322, broker, b'{"counter":1,"timestamp":2}'),
        (222, {"topic": "T", "group": "CG", "timestamp": "-1", "isForce": "true"}, b""),
        (100, {"namespace": "n", "key": "k", "value": "v"}, b""),
    ]  # fmt: skip
    topic = {"topic": "T", "queueId": "0", "consumerGroup": "CG", "group": "CG"}
    return made + [(int(code), dict(topic), b"") for code in RequestCode]


def _mutated(chance: random.Random, seed: _Request) -> bytes:
    """A frame that was right before this."""
    code, fields, body = seed[0], dict(seed[1]), bytearray(seed[2])
    for _ in range(chance.randrange(3)):
        name = chance.choice((*fields, *_NAMES))
        if chance.random() < 0.2:
            fields.pop(name, None)
        else:
            fields[name] = chance.choice(_ODD)
    if body and chance.random() < 0.4:
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
    if chance.random() < 0.1:
        body = bytearray(chance.choice((b"{", b"[" * 3000, b"null", b"[1]", b'{"a":' * 200,
                                        b"\xff" * 50, b"x" * 70_000)))  # fmt: skip
    command = RemotingCommand(
        code, fields, bytes(body), opaque=chance.randrange(1 << 31),
        flag=chance.choice((0, 0, 0, 0, 1, 2, 3)), serialize_type=chance.choice((0, 0, 1)),
    )  # fmt: skip
    frame = bytearray(encode_frame(command))
    kind = chance.random()
    if kind < 0.15:
        frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
    elif kind < 0.2:
        frame = bytearray(chance.randbytes(chance.randint(1, 64)))
    elif kind < 0.25:
        del frame[chance.randrange(len(frame)) :]
    return bytes(frame)


def _round(chance: random.Random, address: str, seeds: list[_Request]) -> int:
    """One connection with a few frames in odd pieces. Returns how many frames it was."""
    host, _, port = address.rpartition(":")
    count = chance.randint(1, _FRAMES_A_ROUND)
    data = b"".join(_mutated(chance, chance.choice(seeds)) for _ in range(count))
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        try:
            cut = chance.randrange(len(data) + 1)  # all of it may have been cut away
            sock.sendall(data[:cut])
            sock.sendall(data[cut:])
            if chance.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
        except TimeoutError as error:
            raise Found("the end of a connection is not noticed") from error
        except OSError:
            return count  # the server has had enough of it
    return count


def _check(cluster: Cluster, errors: _Errors, before_mib: int) -> None:
    for address in (cluster.broker_addr, cluster.namesrv_addr):
        with Raw(address) as raw:
            answer = raw.call(4711)
            if answer.code != 3:
                raise Found(f"{address} answers {answer.code} to an unknown request")
    if errors.texts:
        raise Found(f"logged: {errors.texts[0]}")
    grown = _resident_mib() - before_mib
    if grown > _MORE_MIB:
        raise Found(f"the memory grew by {grown} MiB")


def fuzz(seed: int, seconds: float, rounds: int = 0) -> int:
    """Run for a time, or a number of rounds; how many frames were sent. Raises Found."""
    errors = _Errors()
    logger = logging.getLogger("rocketmq_fast")
    logger.addHandler(errors)
    seeds = _seeds()
    sent = done = 0
    try:
        with Cluster(enable_property_filter=True, mapped_file_size_commit_log=1 << 20,
                     max_log_bytes=16 << 20) as cluster:  # fmt: skip
            cluster.create_topic("T", 4)
            before, end = _resident_mib(), time.monotonic() + seconds
            while done < rounds or time.monotonic() < end:
                chance = random.Random(f"{seed}/{done}")
                address = chance.choice((cluster.broker_addr, cluster.broker_addr,
                                         cluster.namesrv_addr))  # fmt: skip
                try:
                    sent += _round(chance, address, seeds)
                    done += 1
                    if done % _CHECK_EVERY == 0:
                        _check(cluster, errors, before)
                except (Found, TimeoutError, OSError) as error:
                    raise Found(f"seed {seed}, round {done}: {error}") from error
            _check(cluster, errors, before)
    finally:
        logger.removeHandler(errors)
    return sent


def main(arguments: list[str] | None = None) -> int:
    """Fuzz and tell; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_server", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.getLogger("rocketmq_fast").addHandler(logging.NullHandler())
    try:
        sent = fuzz(options.seed, options.seconds)
    except Found as error:
        print(f"found: {error}", file=sys.stderr)
        return 1
    print(f"seed {options.seed}: {sent} frames, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
