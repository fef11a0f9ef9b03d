"""Consumer groups: their settings and their committed offsets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketmq_fast.embedded.files import Snapshot, StoreError, load_json, save_json
from rocketmq_fast.embedded.requests import Refused
from rocketmq_fast.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from pathlib import Path

MAX_GROUP_LENGTH = 255
# Groups that every broker has, for tools.
SYSTEM_GROUPS = (
    "TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Settings of a consumer group on one broker."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the form of subscriptionGroup.json and of the wire."""
        return {
            "brokerId": self.broker_id,
            "consumeBroadcastEnable": self.consume_broadcast_enable,
            "consumeEnable": self.consume_enable,
            "consumeFromMinEnable": self.consume_from_min_enable,
            "groupName": self.name,
            "notifyConsumerIdsChangedEnable": self.notify_consumer_ids_changed_enable,
            "retryMaxTimes": self.retry_max_times,
            "retryQueueNums": self.retry_queue_nums,
            "whichBrokerWhenConsumeSlowly": self.which_broker_when_consume_slowly,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> GroupConfig:
        """Read the form of to_json(); missing fields have their defaults.

        Raises ValueError, TypeError for what is no group.
        """
        name = value.get("groupName")
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_GROUP_LENGTH:
            raise ValueError(f"groupName {name!r}")
        return cls(
            name=name,
            consume_enable=bool(value.get("consumeEnable", True)),
            consume_from_min_enable=bool(value.get("consumeFromMinEnable", True)),
            consume_broadcast_enable=bool(value.get("consumeBroadcastEnable", True)),
            retry_queue_nums=int(value.get("retryQueueNums", 1)),
            retry_max_times=int(value.get("retryMaxTimes", 16)),
            broker_id=int(value.get("brokerId", 0)),
            which_broker_when_consume_slowly=int(value.get("whichBrokerWhenConsumeSlowly", 1)),
            notify_consumer_ids_changed_enable=bool(
                value.get("notifyConsumerIdsChangedEnable", True)
            ),
        )


class GroupTable:
    """All consumer groups of a broker, kept in subscriptionGroup.json."""

    def __init__(self, path: Path, *, auto_create: bool, durable: bool) -> None:
        self._path = path
        self._auto_create = auto_create
        self._durable = durable
        self._groups = {name: GroupConfig(name) for name in SYSTEM_GROUPS}
        saved = load_json(path) or {}
        for value in (saved.get("subscriptionGroupTable") or {}).values():
            config = GroupConfig.from_json(value)
            self._groups[config.name] = config
        self.version = int((saved.get("dataVersion") or {}).get("counter", 0))

    def get(self, name: str) -> GroupConfig | None:
        """Return a group's settings; created when the broker does so by itself, else None."""
        config = self._groups.get(name)
        if config is None and self._auto_create and 0 < len(name) <= MAX_GROUP_LENGTH:
            config = GroupConfig(name)
            self.put(config)
        return config

    def peek(self, name: str) -> GroupConfig | None:
        """Return a group's settings without creating it."""
        return self._groups.get(name)

    def all(self) -> list[GroupConfig]:
        """Return all groups."""
        return list(self._groups.values())

    def put(self, config: GroupConfig) -> None:
        """Create or replace a group."""
        self._groups[config.name] = config
        self._changed()

    def delete(self, name: str) -> bool:
        """Remove a group; False when there was none."""
        if self._groups.pop(name, None) is None:
            return False
        self._changed()
        return True

    def to_json(self) -> dict[str, Any]:
        """Return the content of subscriptionGroup.json."""
        return {
            "dataVersion": {"counter": self.version, "timestamp": 0},
            "subscriptionGroupTable": {name: c.to_json() for name, c in self._groups.items()},
        }

    def _changed(self) -> None:
        self.version += 1
        save_json(self._path, self.to_json(), durable=self._durable)


class OffsetTable:
    """Committed offsets, kept in consumerOffset.json: topic@group -> queue id -> next offset."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._table: dict[str, dict[int, int]] = {}
        self._dirty = False
        saved = load_json(path) or {}
        try:
            for key, offsets in (saved.get("offsetTable") or {}).items():
                self._table[key] = {int(queue): int(offset) for queue, offset in offsets.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise StoreError(f"{path}: {error}") from error

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset, whatever was stored before."""
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self._dirty = True

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return a stored offset, -1 without one."""
        offsets = self._table.get(f"{topic}@{group}")
        return -1 if offsets is None else offsets.get(queue_id, -1)

    def topics_of(self, group: str) -> list[str]:
        """Return the topics that a group has offsets for."""
        pairs = (key.rpartition("@") for key in self._table)
        return [topic for topic, _, owner in pairs if owner == group]

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets for a topic."""
        pairs = (key.rpartition("@") for key in self._table)
        return [group for name, _, group in pairs if name == topic]

    def delete_group(self, group: str) -> None:
        """Forget a group's offsets."""
        for key in [key for key in self._table if key.rpartition("@")[2] == group]:
            del self._table[key]
            self._dirty = True

    def clone(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets of another one for a topic."""
        offsets = self._table.get(f"{topic}@{source}")
        if offsets:
            self._table[f"{topic}@{target}"] = dict(offsets)
            self._dirty = True

    def tables(self) -> dict[str, dict[int, int]]:
        """Return a copy of everything."""
        return {key: dict(offsets) for key, offsets in self._table.items()}

    def take_snapshot(self) -> Snapshot | None:
        """Return what is to be saved, None when nothing changed; its save() may run anywhere."""
        if not self._dirty:
            return None
        self._dirty = False
        return Snapshot(self._path, {"offsetTable": self.tables()}, durable=self._durable)

    def mark_unsaved(self) -> None:
        """Save again next time: what was taken did not reach the disk."""
        self._dirty = True

    def save(self) -> None:
        """Save now. Raises OSError."""
        snapshot = self.take_snapshot()
        if snapshot is not None:
            snapshot.save()


def group_or_refuse(groups: GroupTable, name: str) -> GroupConfig:
    """Return a group's settings; refuses when it does not exist and may not be created."""
    config = groups.get(name)
    if config is None:
        raise Refused(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{name}] does not exist"
        )
    return config
