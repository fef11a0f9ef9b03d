"""Members of a round: consumers on threads of this process, or each in a process of its own.

As a program: one member, which notes its facts in a file and ends by SIGTERM.
"""

from __future__ import annotations

import json
import logging
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import rocketmq_fast as rmq
from rocketmq_fast._core.consume import ConsumeContext
from tests.consuming import SUCCESS
from tests.member import Member
from tests.ordering import SUCCESS as SUCCESS_IN_ORDER
from tests.ordering import SUSPEND
from tests.reliability.facts import FactFile, FactReader
from tests.reliability.grounds import LOCK_MILLIS
from tests.witness import Note, Witness, listener, orderly_listener

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parent.parent.parent
_FAST: dict[str, Any] = {
    "poll_name_server_interval": 300,
    "heartbeat_broker_interval": 500,
    "persist_consumer_offset_interval": 100,
    "pull_time_delay_millis_when_exception": 50,
    "suspend_current_queue_time_millis": 20,
    "mq_client_api_timeout": 2_000,
}
# Half of the time that the brokers keep a lock is relied on.
LOCK_LIFE_SECONDS = LOCK_MILLIS / 2000
SHORT_LOCKS = {
    "rocketmq_fast.consumer.running.RENEW_SECONDS": LOCK_LIFE_SECONDS / 3,
    "rocketmq_fast.consumer.assigned.LOCK_LIFE_SECONDS": LOCK_LIFE_SECONDS,
}


class Where(Protocol):
    """What a member is told of its round."""

    @property
    def seed(self) -> int:
        """Which messages are refused."""

    @property
    def orderly(self) -> bool:
        """How messages are consumed."""

    @property
    def topic(self) -> str:
        """Where they are."""

    @property
    def group(self) -> str:
        """Whose members they are."""


def hash_of(body: bytes) -> int:
    """The same in every process."""
    return int.from_bytes(body, "big")


class Refusals:
    """Refuses one message in thirty, the first time that it comes to this process."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._refused: set[bytes] = set()

    def good(self, messages: list[rmq.MessageExt]) -> bool:
        """Whether the call succeeds; some that do not, raise."""
        for message in messages:
            body = message.body
            chance = random.Random(self._seed * 1_000_003 + hash_of(body)).random()
            if chance < 1 / 30 and body not in self._refused:
                self._refused.add(body)
                if chance < 1 / 90:
                    raise ValueError("the listener fails on purpose")
                return False
        return True

    def answer(self, messages: list[rmq.MessageExt], _: ConsumeContext) -> object:
        """Of a concurrent listener."""
        return SUCCESS if self.good(messages) else rmq.ConsumeStatus.RECONSUME_LATER

    def answer_in_order(self, messages: list[rmq.MessageExt], _: rmq.OrderlyContext) -> object:
        """Of an orderly listener."""
        return SUCCESS_IN_ORDER if self.good(messages) else SUSPEND


def consumer(
    where: Where, name: str, namesrv_addr: str, note: Note, brokers: Mapping[str, str],
    refusals: Refusals,
) -> rmq.PushConsumer:  # fmt: skip
    """A member, not started."""
    made = rmq.PushConsumer(
        where.group,
        namesrv_addr=namesrv_addr,
        instance_name=name,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        consume_message_batch_max_size=4,
        rpc_hooks=Witness(name, note, brokers),
        **_FAST,
    )
    made.subscribe(where.topic, "*")
    if where.orderly:
        called: Any = orderly_listener(note, name, refusals.answer_in_order)
    else:
        called = listener(note, refusals.answer)
    made.register_listener(called, orderly=where.orderly)
    return made


class ProcessMember:
    """A member in a process, from its start to its end. A name may come again in another one."""

    def __init__(
        self, where: Where, name: str, namesrv_addr: str, brokers: Mapping[str, str],
        folder: Path,
    ) -> None:  # fmt: skip
        folder.mkdir()
        self.name = name
        self.facts = FactReader(folder / "facts")
        task = {
            "seed": where.seed,
            "orderly": where.orderly,
            "topic": where.topic,
            "group": where.group,
            "name": name,
            "namesrv_addr": namesrv_addr,
            "brokers": dict(brokers),
            "facts": str(folder / "facts"),
        }
        with open(folder / f"{name}.err", "wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.reliability.members", json.dumps(task)],
                cwd=_ROOT,
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )
        self.process = Member(name, folder, process)

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.process.send_signal(signal.SIGCONT)

    def stop(self) -> list[str]:
        """SIGTERM; what was wrong with its end."""
        self.resume()
        code = self.process.terminate()
        if code == -signal.SIGTERM and not self.process.lines("R"):
            return []  # it had not come so far as to take the signal
        said = self.process.errors.read_text(errors="replace")
        wrong = [
            f"member {self.name} said {text!r}: {said[-2000:]}"
            for text in ("Exception ignored", "Fatal Python error", "never awaited")
            if text in said
        ]
        if code != 0:
            wrong.append(f"member {self.name} ended with {code}: {said[-2000:]}")
        return wrong

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()


def _main(task: dict[str, Any]) -> None:
    """What the process does."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(threadName)s %(message)s")

    class Told:
        seed, orderly = task["seed"], task["orderly"]
        topic, group = task["topic"], task["group"]

    for name, value in SHORT_LOCKS.items():
        mock.patch(name, value).start()
    facts = FactFile(Path(task["facts"]))
    made = consumer(
        Told(), task["name"], task["namesrv_addr"], facts.note, task["brokers"],
        Refusals(task["seed"]),
    )  # fmt: skip
    while True:
        try:
            made.start()
            break
        except rmq.RocketMQError as error:
            logger.warning("not started yet: %s", error)
            time.sleep(0.1)  # as who restarts a program that could not start

    def announce() -> None:
        made.wait_assigned(600.0)
        log = Path(task["facts"]).with_name(f"{task['name']}.log")
        log.write_text("R ready\n")

    threading.Thread(target=announce, daemon=True).start()
    made.run()


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]))
