"""kill -9 in the middle of sync-flushed sends: `python -m tests.sync_flush --messages 1000000`.

A broker in a process of its own is killed again and again while messages are sent to it. At the end
every message that was acknowledged has to be where its answer said, and no message twice. What was
not answered may be there or not, and is not sent again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_fast._core import FrameSplitter, RemotingCommand, decode_messages, encode_frame
from tests.embedded_raw import Raw, pull_fields, send_fields

SEND, PULL, MAX_OFFSET, CREATE = 310, 11, 30, 17
TOPIC, QUEUES, WINDOW = "Flushed", 4, 256


class Broker:
    """A broker process on a store; its address changes with every start."""

    def __init__(self, store: Path) -> None:
        words = [sys.executable, "-m", "rocketmq_fast", "broker", "--namesrv-port", "0",
                 "--broker-port", "0", "--store", str(store), "--json",
                 "--set", "flush_disk_type=SYNC_FLUSH",
                 "--set", "max_transfer_count_on_message_in_memory=4096",
                 "--set", "max_transfer_bytes_on_message_in_memory=4194304"]  # fmt: skip
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the broker did not start: code {self.process.wait(60)}")
        self.address = str(json.loads(line)["broker_addr"])

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass
class History:
    """What was answered, by queue and offset, and how many messages were not."""

    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    unanswered: int = 0
    kills: int = 0

    def take(self, number: int, answer: RemotingCommand) -> None:
        """Keep an answer."""
        assert answer.code == 0, f"message {number}: code {answer.code}, {answer.remark}"
        place = int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
        assert place not in self.acknowledged, f"two messages were stored at {place}"
        self.acknowledged[place] = number


def _send(raw: Raw, numbers: range, history: History, answers: int) -> FrameSplitter:
    """Send a window and wait for so many answers; returns what may hold the beginning of more."""
    frames = [
        encode_frame(RemotingCommand(SEND, send_fields(TOPIC, number % QUEUES),
                                     number.to_bytes(8, "big"), opaque=number))
        for number in numbers
    ]  # fmt: skip
    raw.sock.sendall(b"".join(frames))
    splitter = FrameSplitter()
    while answers > 0:
        data = raw.sock.recv(1 << 20)
        if not data:
            raise ConnectionError("the broker closed the connection")
        for answer in splitter.feed(data):
            history.take(answer.opaque, answer)
            answers -= 1
    return splitter


def _drain(raw: Raw, history: History, splitter: FrameSplitter) -> None:
    """Take the answers that left the broker before its end."""
    with contextlib.suppress(ConnectionError):
        while data := raw.sock.recv(1 << 20):
            for answer in splitter.feed(data):
                history.take(answer.opaque, answer)


def _create(address: str) -> None:
    with Raw(address) as raw:
        fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES),
                  "writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG",
                  "topicSysFlag": "0", "order": "false"}  # fmt: skip
        assert raw.call(CREATE, fields).code == 0


def run(store: Path, messages: int, kills: int, seed: int) -> History:
    """Send, kill and check. Raises AssertionError for what is lost or there twice.

    The last kill is in the middle of the last messages.
    """
    chance = random.Random(seed)
    history = History()
    windows = [range(n, min(n + WINDOW, messages)) for n in range(0, messages, WINDOW)]
    fatal = {len(windows) - 1, *chance.sample(range(len(windows) - 1), kills - 1)}
    broker = Broker(store)
    try:
        _create(broker.address)
        raw = Raw(broker.address)
        for index, numbers in enumerate(windows):
            before = len(history.acknowledged)
            if index in fatal:
                # Some answers are read, others are on their way, others never given.
                splitter = _send(raw, numbers, history, chance.randrange(len(numbers)))
                broker.kill()
                _drain(raw, history, splitter)
                raw.close()
                history.kills += 1
                broker = Broker(store)
                raw = Raw(broker.address)
            else:
                _send(raw, numbers, history, len(numbers))
            history.unanswered += before + len(numbers) - len(history.acknowledged)
        raw.close()
        check(broker.address, history, messages)
    finally:
        broker.kill()
    return history


def check(address: str, history: History, messages: int) -> None:
    """Read everything and compare it with the answers."""
    seen = bytearray(messages)
    found: dict[tuple[int, int], int] = {}
    with Raw(address) as raw:
        for queue in range(QUEUES):
            name = {"topic": TOPIC, "queueId": str(queue)}
            end = int(raw.call(MAX_OFFSET, name).ext_fields["offset"])
            offset = 0
            while offset < end:
                answer = raw.call(PULL, pull_fields(TOPIC, queue, offset, maxMsgNums="4096"))
                assert answer.code == 0, f"queue {queue} at {offset}: {answer.remark}"
                for message in decode_messages(answer.body, check_crc=True):
                    number = int.from_bytes(message.body, "big")
                    assert not seen[number], f"message {number} is there twice"
                    seen[number] = 1
                    found[queue, message.queue_offset] = number
                offset = int(answer.ext_fields["nextBeginOffset"])
    lost = [(place, number) for place, number in history.acknowledged.items()
            if found.get(place) != number]  # fmt: skip
    assert not lost, f"{len(lost)} acknowledged messages are not there: {lost[:5]}"
    assert len(found) <= len(history.acknowledged) + history.unanswered


def main(arguments: list[str] | None = None) -> int:
    """Run once and print the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.sync_flush", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rocketmq-flush-") as folder:
        history = run(Path(folder), options.messages, options.kills, options.seed)
    print(
        f"seed {options.seed}: {options.messages} sent, {len(history.acknowledged)} acknowledged, "
        f"{history.unanswered} not answered, {history.kills} kills; none lost, none twice; "
        f"{time.monotonic() - started:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
