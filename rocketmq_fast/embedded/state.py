"""What the parts of one broker share. Everything here belongs to the loop's thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketmq_fast.embedded.config import BrokerConfig
    from rocketmq_fast.embedded.groups import GroupTable, OffsetTable
    from rocketmq_fast.embedded.locks import LockTable
    from rocketmq_fast.embedded.members import Membership
    from rocketmq_fast.embedded.scope import LoopScope
    from rocketmq_fast.embedded.store import MessageStore
    from rocketmq_fast.embedded.topics import TopicTable


@dataclass(slots=True)
class BrokerState:
    """The tables of a broker."""

    config: BrokerConfig
    loop: LoopScope
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    members: Membership
    locks: LockTable
    address: str
