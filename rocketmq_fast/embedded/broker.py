"""The broker: its tables, its timers, and which part serves which request."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rocketmq_fast.embedded.admin import AdminService
from rocketmq_fast.embedded.clients import ClientService
from rocketmq_fast.embedded.dispatch import Dispatcher
from rocketmq_fast.embedded.files import make_directory
from rocketmq_fast.embedded.groups import GroupTable, OffsetTable
from rocketmq_fast.embedded.locks import LockTable
from rocketmq_fast.embedded.members import Membership
from rocketmq_fast.embedded.pull import PullService
from rocketmq_fast.embedded.queries import QueryService
from rocketmq_fast.embedded.replies import ReplyService
from rocketmq_fast.embedded.schedule import ScheduleService
from rocketmq_fast.embedded.scope import LoopScope
from rocketmq_fast.embedded.send import SendService
from rocketmq_fast.embedded.state import BrokerState
from rocketmq_fast.embedded.store import MessageStore, now_ms
from rocketmq_fast.embedded.topics import TopicTable
from rocketmq_fast.embedded.transactions import TransactionService
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode
from rocketmq_fast.remoting.server import RemotingServer, host_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.config import BrokerConfig
    from rocketmq_fast.embedded.faults import Faults
    from rocketmq_fast.embedded.files import Snapshot
    from rocketmq_fast.remoting.loop import EventLoop
    from rocketmq_fast.remoting.server import Peer

log = logging.getLogger(__name__)

_EXPIRY_SCAN = 10.0


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Broker:
    """One broker on one port. `register` tells the name servers about its topics.

    Everything but the constructor and close() runs on the loop's thread.
    """

    def __init__(
        self,
        loop: EventLoop,
        root: Path,
        config: BrokerConfig,
        *,
        host: str,
        port: int,
        advertised_host: str,
        register: Callable[[Broker], None],
        faults: Faults,
        clock: Callable[[], int] = now_ms,
        durable: bool = True,
    ) -> None:
        self.config = config
        self._loop = LoopScope(loop)
        self._durable = durable
        self._register = register
        self._faults = faults
        self.server = RemotingServer(
            loop, self._on_request, on_disconnect=self._on_disconnect,
            max_connections=config.max_connections,
        )  # fmt: skip
        self.server.listen(host, port)
        try:
            self._open(root, advertised_host, clock)
        except BaseException:
            self.server.close()
            raise
        name = f"rocketmq-embedded-{config.broker_name}-io"
        self._io = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._flushing = False
        self._sync_failed = False
        self._waiting: list[tuple[Peer, RemotingCommand, RemotingCommand]] = []

    def _open(self, root: Path, advertised_host: str, clock: Callable[[], int]) -> None:
        config, durable = self.config, self._durable
        settings = make_directory(root / "config")
        port = self.server.port
        address = (
            f"[{advertised_host}]:{port}"
            if ":" in advertised_host
            else (f"{advertised_host}:{port}")
        )
        store = MessageStore(
            root, config, store_host=host_bytes(advertised_host, port), clock=clock,
            durable=durable,
        )  # fmt: skip
        try:
            topics = TopicTable(settings / "topics.json", config, durable=durable)
            store.recover(topics.__contains__)
            self.state = BrokerState(
                config=config,
                loop=self._loop,
                store=store,
                topics=topics,
                groups=GroupTable(
                    settings / "subscriptionGroup.json",
                    auto_create=config.auto_create_subscription_group,
                    durable=durable,
                ),
                offsets=OffsetTable(settings / "consumerOffset.json", durable=durable),
                members=Membership(),
                locks=LockTable(config.lock_expiry_ms, _monotonic_ms),
                address=address,
            )
            self.schedule = ScheduleService(
                store, settings / "delayOffset.json", topics.__contains__
            )
            self.transactions = TransactionService(self.state, settings / "transactionOffset.json")
        except BaseException:
            store.abandon()
            raise
        topics.on_change = self.register
        self.sends = SendService(self.state, self._when_stored, self.transactions.prepare)
        self.pulls = PullService(self.state)
        self.clients = ClientService(self.state)
        self._dispatcher = Dispatcher(
            dict.fromkeys(
                (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2,
                 RequestCode.SEND_BATCH_MESSAGE), self.sends.send,
            ),
            {RequestCode.CONSUMER_SEND_MSG_BACK: self.sends.send_back},
            dict.fromkeys((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
                          self.pulls.pull),
            ReplyService(self.state, self.sends.store_now).handlers(),
            self.transactions.handlers(),
            self.clients.handlers(),
            QueryService(self.state).handlers(),
            AdminService(self.state, self.schedule).handlers(),
        )  # fmt: skip

    @property
    def address(self) -> str:
        """host:port that clients are told."""
        return self.state.address

    def start(self) -> None:
        """Begin to serve. Loop thread."""
        self.register()
        self.server.start()
        self.pulls.start()
        self.schedule.start(self._loop)
        self.transactions.start()
        self._loop.call_later(self.config.flush_interval, self._flush)
        self._loop.call_later(self.config.flush_consumer_offset_interval, self._save_offsets)
        self._loop.call_later(_EXPIRY_SCAN, self._expire_clients)
        self._loop.call_later(self.config.retention_interval, self._expire_messages)

    def register(self) -> None:
        """Tell the name servers the topics of now."""
        self._register(self)

    def _on_request(self, peer: Peer, request: RemotingCommand) -> None:
        if self._loop.ended:
            return
        if self._faults:
            self._faults.serve(
                self.config.broker_name, self._loop, peer, request, self._dispatcher.dispatch
            )
        else:
            self._dispatcher.dispatch(peer, request)

    def _on_disconnect(self, peer: Peer) -> None:
        self.pulls.forget(peer)
        self.clients.disconnected(peer)

    # ---------------------------------------------------------------------- durability

    def _when_stored(self, peer: Peer, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer a send: at once, or with SYNC_FLUSH when its message is on the disk."""
        if self.config.flush_disk_type != "SYNC_FLUSH" or not self._durable:
            peer.reply(request, response)
            return
        self._waiting.append((peer, request, response))
        if not self._flushing:
            self._flush_waiting()

    def _flush_waiting(self) -> None:
        """Sync the log once for all sends that wait; those that come meanwhile go next."""
        group, self._waiting = self._waiting, []
        self._flushing = True
        unsynced = self.state.store.take_unsynced()

        def sync() -> None:
            try:
                unsynced.sync()
            except OSError:
                log.exception("the commit log could not be synced")
                self._sync_failed = True
            self._loop.call_soon(self._flushed, group)

        self._io.submit(sync)

    def _flushed(self, group: list[tuple[Peer, RemotingCommand, RemotingCommand]]) -> None:
        for peer, request, response in group:
            if self._sync_failed:
                response.code = int(ResponseCode.FLUSH_DISK_TIMEOUT)
            peer.reply(request, response)
        self._flushing = False
        if self._waiting:
            self._flush_waiting()

    def _flush(self) -> None:
        """Save the indexes and make the log durable, in the background."""
        try:
            checkpoint = self.state.store.checkpoint()
        except OSError as error:
            log.warning("the index could not be saved: %s", error)
            self._loop.call_later(self.config.flush_interval, self._flush)
            return
        progress = self._progress()

        def write() -> None:
            try:
                checkpoint.write()
                for snapshot in progress:
                    snapshot.save()
            except OSError:
                # A later sync that succeeds does not tell what this one lost.
                log.exception("the checkpoint could not be written")
                self._sync_failed = True
            self._loop.call_later(self.config.flush_interval, self._flush)

        self._io.submit(write)

    def _progress(self) -> list[Snapshot]:
        """What may be saved after the messages that are stored by now."""
        snapshots = self.schedule.take_snapshot(), self.transactions.take_snapshot()
        return [snapshot for snapshot in snapshots if snapshot is not None]

    def _save_offsets(self) -> None:
        offsets = self.state.offsets
        snapshot = offsets.take_snapshot()
        if snapshot is not None:

            def save() -> None:
                try:
                    snapshot.save()
                except OSError:
                    log.exception("the offsets could not be saved")
                    self._loop.call_soon(offsets.mark_unsaved)

            self._io.submit(save)
        self._loop.call_later(self.config.flush_consumer_offset_interval, self._save_offsets)

    def _expire_messages(self) -> None:
        """Delete the oldest segments when they are too old, or the log is too large."""
        self.state.store.expire()
        self._loop.call_later(self.config.retention_interval, self._expire_messages)

    def _expire_clients(self) -> None:
        self.state.members.expire(self.config.client_expiry)
        self._loop.call_later(_EXPIRY_SCAN, self._expire_clients)

    # ---------------------------------------------------------------------------- end

    def stop_serving(self) -> None:
        """Accept nothing more and end all connections. Loop thread."""
        self._loop.end()
        self.server.close()

    def close(self) -> None:
        """Save everything and release the store. After the end of serving. Raises OSError."""
        self._io.shutdown(wait=True)
        try:
            self.state.offsets.save()
            progress = self._progress()
        finally:
            self.state.store.close()
        for snapshot in progress:
            snapshot.save()

    def abandon(self) -> None:
        """Release the store without saving, as if the process had been killed."""
        self._io.shutdown(wait=True, cancel_futures=True)
        self.state.store.abandon()
