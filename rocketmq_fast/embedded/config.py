"""Settings of the embedded broker; names and defaults are those of the 4.9.4 broker."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from rocketmq_fast.errors import ConfigError

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return the delays of levels 1, 2, ... in milliseconds. Raises ConfigError."""
    delays = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)([smhd])", word)
        if match is None:
            raise ConfigError(f"delay level {word!r}: expected a number and one of s, m, h, d")
        delays.append(int(match[1]) * _UNITS[match[2]])
    if not delays:
        raise ConfigError("delay_levels is empty")
    return tuple(delays)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30  # where the system does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker does; the times are in seconds unless the name says ms.

    `max_log_bytes` bounds the commit log (0: no bound); whole segments of
    `mapped_file_size_commit_log` bytes are deleted, never the one that is written.
    """

    cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    broker_permission: int = 6
    delay_levels: str = DELAY_LEVELS
    default_topic_queue_nums: int = 8
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    trace_topic_enable: bool = False
    max_message_size: int = 4 << 20
    region_id: str = "DefaultRegion"
    trace_on: bool = True
    enable_property_filter: bool = False
    long_polling_enable: bool = True
    short_polling_time_ms: int = 1000
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_memory: int = 262_144
    max_transfer_count_on_message_in_disk: int = 8
    max_transfer_bytes_on_message_in_disk: int = 65_536
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    default_query_max_num: int = 32
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval: float = 0.5
    flush_consumer_offset_interval: float = 5.0
    file_reserved_time: float = 72 * 3600.0
    max_log_bytes: int = 0
    retention_interval: float = 10.0
    mapped_file_size_commit_log: int = 1 << 30
    lock_expiry_ms: int = 60_000
    transaction_time_out: float = 6.0
    transaction_check_interval: float = 60.0
    transaction_check_max: int = 15
    client_expiry: float = 120.0
    max_connections: int = 10_000

    def __post_init__(self) -> None:
        if self.flush_disk_type not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
            raise ConfigError(f"flush_disk_type {self.flush_disk_type!r} is unknown")
        parse_delay_levels(self.delay_levels)
        for name in (
            "default_topic_queue_nums",
            "max_message_size",
            "mapped_file_size_commit_log",
            "max_transfer_count_on_message_in_memory",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be positive, not {getattr(self, name)}")
        if self.transaction_check_interval <= 0:
            raise ConfigError("transaction_check_interval must be over 0 s")
        if self.max_message_size > 15 << 20:
            raise ConfigError("max_message_size over 15 MiB does not fit into a frame")

    @property
    def memory_window(self) -> int:
        """Bytes behind the end of the log that count as being in memory."""
        return _physical_memory() * self.access_message_in_memory_max_ratio // 100
