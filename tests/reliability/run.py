"""Carries a plan out and checks what came of it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketmq_fast as rmq
from rocketmq_fast._core import RemotingCommand
from rocketmq_fast._core.consume import ConsumeContext
from rocketmq_fast.embedded import Cluster
from rocketmq_fast.protocol.codes import PullSysFlag, RequestCode
from rocketmq_fast.protocol.names import RETRY_PREFIX
from tests.consuming import SUCCESS
from tests.history import History, Place
from tests.ordering import Call, overlaps
from tests.reliability.plan import BROKERS, MEMBERS, NAME_SERVERS, ORDERLY, QUEUES, Plan, Step
from tests.waiting import wait_for

TOPIC, GROUP = "Trouble", "trouble"
# Everything is over and done this long after the last fault (I9).
SETTLE_SECONDS = 90.0
_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
_BATCH = 20
_PAUSE = 0.02
_SEND_TIMEOUT = 1.0
_FAST: dict[str, Any] = {
    "poll_name_server_interval": 300,
    "heartbeat_broker_interval": 500,
    "persist_consumer_offset_interval": 100,
    "pull_time_delay_millis_when_exception": 50,
    "suspend_current_queue_time_millis": 20,
    "mq_client_api_timeout": 2_000,
}


@dataclass
class Report:
    """What a round came to."""

    seed: int
    mode: str
    sent: int = 0
    unanswered: int = 0
    deliveries: int = 0
    duplicates: int = 0
    commits: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    settled_seconds: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return json.dumps(self.__dict__)


class Witness(rmq.RpcHook):
    """Notes what a member asks, commits and sends back."""

    def __init__(self, name: str, history: History, brokers: dict[str, str]) -> None:
        self._name = name
        self._history = history
        self._brokers = brokers

    def _queue(self, address: str, request: RemotingCommand) -> rmq.MessageQueue:
        fields = request.ext_fields
        return rmq.MessageQueue(fields["topic"], self._brokers[address], int(fields["queueId"]))

    def before_request(self, address: str, request: RemotingCommand) -> None:
        """Commits, by themselves and with pulls."""
        fields = request.ext_fields
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET or (
            request.code == RequestCode.PULL_MESSAGE
            and int(fields["sysFlag"]) & PullSysFlag.COMMIT_OFFSET
        ):
            queue = self._queue(address, request)
            self._history.note_commit(queue, int(fields["commitOffset"]), self._name)

    def after_response(
        self, address: str, request: RemotingCommand, response: RemotingCommand | Exception
    ) -> None:
        """Where a member goes on, and what brokers took back."""
        if isinstance(response, Exception) or response.code != 0:
            return
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            offset = int(response.ext_fields["offset"])
            self._history.note_owner(self._name, self._queue(address, request), offset)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            place = self._brokers[address], int(request.ext_fields["offset"])
            self._history.note_sent_back(*place)
        elif request.code in _SENDS and self._topic_of(request).startswith(RETRY_PREFIX):
            self._history.note_copied(request.body)

    @staticmethod
    def _topic_of(request: RemotingCommand) -> str:
        fields = request.ext_fields
        return fields.get("topic") or fields.get("b") or ""


class Round:
    """One round: a cluster, a producer, up to three members, and trouble."""

    def __init__(self, plan: Plan, store: Path) -> None:
        self.plan = plan
        self.history = History()
        self.calls: list[Call] = []
        self._orderly = plan.mode == ORDERLY
        self._brokers: dict[str, str] = {}  # names by address, also those of before
        self._members: dict[str, rmq.PushConsumer] = {}
        self._refused: set[bytes] = set()
        self._calls_lock = threading.Lock()
        self._producing = threading.Event()
        self._producing.set()
        self._trouble: list[BaseException] = []
        self.cluster = Cluster(
            store,
            brokers=BROKERS,
            name_servers=NAME_SERVERS,
            fault_seed=plan.seed,
            delay_levels=" ".join(["1s"] * 18),
            flush_disk_type="SYNC_FLUSH",
        )

    # ------------------------------------------------------------------------------- clients

    def _listener(self, member: str) -> Any:
        """Refuses one message in thirty, the first time that it comes."""

        def verdict(messages: list[rmq.MessageExt], queue: rmq.MessageQueue) -> bool:
            for message in messages:
                place: Place = queue, message.queue_offset
                self.history.note_delivered(place, message.body, message.commit_log_offset)
            for message in messages:
                body = message.body
                chance = random.Random(self.plan.seed * 1_000_003 + hash_of(body)).random()
                if chance < 1 / 30 and body not in self._refused:
                    self._refused.add(body)
                    if chance < 1 / 90:
                        raise ValueError("the listener fails on purpose")
                    return False
            for message in messages:
                self.history.note_acked((queue, message.queue_offset), message.body)
            return True

        def listen(messages: list[rmq.MessageExt], context: ConsumeContext) -> rmq.ConsumeStatus:
            good = verdict(messages, context.message_queue)
            return SUCCESS if good else rmq.ConsumeStatus.RECONSUME_LATER

        def listen_in_order(
            messages: list[rmq.MessageExt], context: rmq.OrderlyContext
        ) -> rmq.OrderlyStatus:
            begun, good = time.monotonic_ns(), False
            try:
                good = verdict(messages, context.message_queue)
            finally:
                queue = context.message_queue
                number = self.cluster.broker_names.index(queue.broker_name) * 1000
                offsets = tuple(message.queue_offset for message in messages)
                times = tuple(message.reconsume_times for message in messages)
                ended = time.monotonic_ns()
                call = Call(member, number + queue.queue_id, offsets, times, begun, ended, good)
                with self._calls_lock:
                    self.calls.append(call)
            if good:
                return rmq.OrderlyStatus.SUCCESS
            return rmq.OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

        return listen_in_order if self._orderly else listen

    def _join(self, member: str) -> None:
        consumer = rmq.PushConsumer(
            GROUP,
            namesrv_addr=self.cluster.namesrv_addr,
            instance_name=member,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            consume_message_batch_max_size=4,
            rpc_hooks=Witness(member, self.history, self._brokers),
            **_FAST,
        )
        consumer.subscribe(TOPIC, "*")
        consumer.register_listener(self._listener(member), orderly=self._orderly)
        consumer.start()
        self._members[member] = consumer

    def _produce(self) -> None:
        try:
            with rmq.Producer(
                "troubled",
                namesrv_addr=self.cluster.namesrv_addr,
                poll_name_server_interval=300,
            ) as producer:
                number = 0
                while self._producing.is_set():
                    bodies = [b"%d" % at for at in range(number, number + _BATCH)]
                    number += _BATCH
                    for body in bodies:
                        self._send(producer, body)
                    time.sleep(_PAUSE)
        except BaseException as error:  # noqa: BLE001 - told at the end of the round
            self._trouble.append(error)

    def _send(self, producer: rmq.Producer, body: bytes) -> None:
        try:
            result = producer.send(rmq.Message(TOPIC, body), timeout=_SEND_TIMEOUT)
        except rmq.RocketMQError:
            self.history.note_doubtful([body])
        else:
            self.history.note_sent([result], [body])

    # ----------------------------------------------------------------------------------- run

    def _note_addresses(self) -> None:
        self._brokers |= zip(self.cluster.broker_addrs, self.cluster.broker_names, strict=True)

    def _carry_out(self, step: Step) -> None:
        values = step.values
        if step.action == "toggle":
            member = values["member"]
            consumer = self._members.pop(member, None)
            if consumer is None:
                self._join(member)
            else:
                consumer.shutdown()
        elif step.action == "start_broker":
            self.cluster.start_broker(values["number"], values["port"])
            self._note_addresses()
        elif step.action.startswith(("stop_", "kill_", "start_")) or step.action == "forget_locks":
            getattr(self.cluster, step.action)(**values)
        else:
            getattr(self.cluster.faults, step.action)(**values)

    @contextmanager
    def _started(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.cluster)
            self._note_addresses()
            self.cluster.create_topic(TOPIC, queues=QUEUES)
            stack.callback(self._leave)
            for member in MEMBERS[:2]:
                self._join(member)
            producing = threading.Thread(target=self._produce, name="producing")
            producing.start()
            stack.callback(producing.join, 60)
            stack.callback(self._producing.clear)
            yield
            self._producing.clear()
            producing.join(60)

    def _leave(self) -> None:
        for consumer in self._members.values():
            consumer.shutdown()

    def _committed(self) -> dict[tuple[int, int], int]:
        return {
            (broker, queue): self.cluster.committed(GROUP, TOPIC, queue, broker)
            for broker in range(BROKERS)
            for queue in range(QUEUES)
        }

    def run(self) -> Report:
        """Carry the plan out; what is wrong stands in the report."""
        report = Report(self.plan.seed, self.plan.mode)
        with self._started():
            begun = time.monotonic()
            for step in self.plan.steps:
                time.sleep(max(0.0, begun + step.at - time.monotonic()))
                self._carry_out(step)
            self.cluster.faults.clear()
            for number in range(BROKERS):
                self.cluster.start_broker(number)
            for number in range(NAME_SERVERS):
                self.cluster.start_namesrv(number)
            self._note_addresses()
            self._producing.clear()
            self._settle(report)
        self._judge(report)
        return report

    def _settle(self, report: Report) -> None:
        over = time.monotonic()

        def settled() -> bool:
            return not self.history.unacked() and sum(
                self._committed().values()
            ) == self.cluster.message_count(TOPIC)

        try:
            wait_for(settled, "the end", SETTLE_SECONDS)
        except AssertionError:
            unacked = self.history.unacked()
            report.violations.append(
                f"not over {SETTLE_SECONDS:.0f} s after the last fault: {len(unacked)} messages "
                f"are not consumed, as {unacked[:3]}; committed {self._committed()} of "
                f"{self.cluster.message_count(TOPIC)}"
            )
        report.settled_seconds = round(time.monotonic() - over, 2)

    def _judge(self, report: Report) -> None:
        history = self.history
        report.sent = len(history.sent)
        report.unanswered = len(history.doubtful)
        report.deliveries = len(history.deliveries)
        report.duplicates = sum(history.duplicates().values())
        report.commits = len(history.commits)
        report.strikes = dict(Counter(strike.kind for strike in self.cluster.faults.strikes))
        # Members die with their brokers' memory of offsets here, so duplicates are counted only.
        report.violations += history.violations(duplicates=report.duplicates)
        report.violations += [f"the producer ended: {error!r}" for error in self._trouble]
        if not history.sent or not history.commits:
            report.violations.append("nothing was sent, or nothing committed")
        if self._orderly:
            report.violations += disorder(self.calls)


def hash_of(body: bytes) -> int:
    """The same in every process."""
    return int.from_bytes(body, "big")


def disorder(calls: list[Call]) -> list[str]:
    """Listener calls of one queue that overlap, and offsets that were passed over.

    An owner begins at or below what was done before it, for the commit may be behind; from there
    on each offset follows the one before, or comes again after a refusal.
    """
    found = [f"two calls for a queue at a time: {pair}" for pair in overlaps(calls)]
    due: dict[int, int] = {}
    for call in sorted(calls, key=lambda call: call.begun):
        reached = due.get(call.queue, 0)
        for offset in call.offsets:
            if offset > reached:
                found.append(f"queue {call.queue}: offset {offset} where {reached} was due: {call}")
            reached = max(reached, offset + 1)
        if call.good:
            due[call.queue] = reached
    return found
