"""Requests of clients about themselves: heartbeats, groups, offsets, locks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rocketmq_fast.embedded.locks import LockKey
from rocketmq_fast.embedded.members import Member, check_kind, compile_filter
from rocketmq_fast.embedded.requests import (
    Refused,
    answer,
    dump,
    int32,
    int64,
    items_of,
    json_body,
    text,
)
from rocketmq_fast.embedded.topics import MAX_TOPIC_LENGTH, RETRY_PREFIX, check_topic_name
from rocketmq_fast.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from rocketmq_fast._core import RemotingCommand
    from rocketmq_fast.embedded.dispatch import Handlers
    from rocketmq_fast.embedded.state import BrokerState
    from rocketmq_fast.remoting.server import Peer


class ClientService:
    """Serves heartbeats, membership, committed offsets and queue locks."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def handlers(self) -> Handlers:
        """Return what this part serves."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.QUERY_CONSUMER_OFFSET: self.query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.commit_offset,
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    # ---------------------------------------------------------------------- membership

    def heartbeat(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """Enter the groups of a client; a consumer group gets its retry topic."""
        body = json_body(request)
        client_id = body.get("clientID")
        if not isinstance(client_id, str):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the heartbeat names no clientID")
        member = Member(client_id, request.language, request.version, time.monotonic())
        for value in items_of(body, "consumerDataSet"):
            name = value.get("groupName")
            notify = True
            config = self._state.groups.get(name) if isinstance(name, str) else None
            if config is not None:
                notify = config.notify_consumer_ids_changed_enable
                self._create_retry_topic(config.name, config.retry_queue_nums)
            self._state.members.heartbeat_consumer(peer, member, value, notify=notify)
        for value in items_of(body, "producerDataSet"):
            self._state.members.heartbeat_producer(peer, member, str(value.get("groupName")))
        return answer(request)

    def _create_retry_topic(self, group: str, queues: int) -> None:
        topic = RETRY_PREFIX + group
        if topic in self._state.topics:
            return
        check_topic_name(topic[:MAX_TOPIC_LENGTH])
        if len(topic) <= MAX_TOPIC_LENGTH:
            self._state.topics.ensure(topic, max(queues, 0))

    def unregister(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """Take a client out of its groups."""
        fields = request.ext_fields
        self._state.members.unregister(
            peer, fields.get("producerGroup"), fields.get("consumerGroup")
        )
        return answer(request)

    def disconnected(self, peer: Peer) -> None:
        """Forget a closed connection.

        Not its locks: a client that was cut off may be in a listener call. They run out.
        """
        self._state.members.disconnect(peer)

    def check_config(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Tell whether a subscription can be served."""
        subscription = json_body(request).get("subscriptionData")
        if not isinstance(subscription, dict):
            return answer(request)
        kind = subscription.get("expressionType") or "TAG"
        check_kind(kind, self._state.config)
        compile_filter(str(subscription.get("topic")), subscription.get("subString"), 0, kind)
        return answer(request)

    def consumer_list(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """List the client ids of a group."""
        name = text(request.ext_fields, "consumerGroup")
        group = self._state.members.consumers.get(name)
        if group is None or not group.members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        ids = [member.client_id for member in group.members.values()]
        return answer(request, ResponseCode.SUCCESS, None, dump({"consumerIdList": ids}))

    # ------------------------------------------------------------------------- offsets

    def query_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Return a committed offset; 0 for a queue whose first message is still in memory."""
        fields = request.ext_fields
        state = self._state
        group, topic = text(fields, "consumerGroup"), text(fields, "topic")
        queue_id = int32(fields, "queueId")
        offset = state.offsets.query(group, topic, queue_id)
        if offset < 0:
            if state.store.min_offset(topic, queue_id) > 0 or not state.store.is_in_memory(
                topic, queue_id, 0
            ):
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND,
                    "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
            offset = 0
        return answer(request, ResponseCode.SUCCESS, {"offset": str(offset)})

    def commit_offset(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Store an offset, whatever was stored before."""
        fields = request.ext_fields
        self._state.offsets.commit(
            text(fields, "consumerGroup"), text(fields, "topic"), int32(fields, "queueId"),
            int64(fields, "commitOffset"),
        )  # fmt: skip
        return answer(request)

    # --------------------------------------------------------------------------- locks

    @staticmethod
    def _lock_request(request: RemotingCommand) -> tuple[str, str, list[LockKey]]:
        body = json_body(request)
        group, client_id = body.get("consumerGroup"), body.get("clientId")
        if not isinstance(group, str) or not isinstance(client_id, str):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, "a lock request names consumerGroup and clientId"
            )
        keys = []
        for value in items_of(body, "mqSet"):
            queue_id = value.get("queueId")
            if not isinstance(queue_id, int):
                raise Refused(ResponseCode.SYSTEM_ERROR, f"queueId {queue_id!r} of a lock request")
            keys.append(LockKey(str(value.get("topic")), str(value.get("brokerName")), queue_id))
        return group, client_id, keys

    def lock(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Lock queues for a client; answers with those that it holds."""
        group, client_id, keys = self._lock_request(request)
        held = [
            {"brokerName": key.broker_name, "queueId": key.queue_id, "topic": key.topic}
            for key in self._state.locks.lock(group, client_id, keys)
        ]
        return answer(request, ResponseCode.SUCCESS, None, dump({"lockOKMQSet": held}))

    def unlock(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Release queues of a client."""
        self._state.locks.unlock(*self._lock_request(request))
        return answer(request)

    # --------------------------------------------------------------------- connections

    def consumer_connections(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """Describe the members of a group."""
        name = text(request.ext_fields, "consumerGroup")
        group = self._state.members.consumers.get(name)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        body: dict[str, Any] = {
            "connectionSet": [member.to_json(peer) for peer, member in group.members.items()],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {t: s.wire for t, s in group.subscriptions.items()},
        }
        return answer(request, ResponseCode.SUCCESS, None, dump(body))

    def producer_connections(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """List the connections of a producer group."""
        name = text(request.ext_fields, "producerGroup")
        members = self._state.members.producers.get(name)
        if not members:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = {"connectionSet": [member.to_json(peer) for peer, member in members.items()]}
        return answer(request, ResponseCode.SUCCESS, None, dump(body))

    def all_producers(self, _: Peer, request: RemotingCommand) -> RemotingCommand:
        """List all producers."""
        now = time.time() - time.monotonic()
        data = {
            name: [
                {
                    "clientId": member.client_id,
                    "language": member.language or "JAVA",
                    "lastUpdateTimestamp": int((now + member.last_seen) * 1000),
                    "remoteIP": f"/{peer.address}",
                    "version": member.version,
                }
                for peer, member in members.items()
            ]
            for name, members in self._state.members.producers.items()
        }
        return answer(request, ResponseCode.SUCCESS, None, dump({"data": data}))
