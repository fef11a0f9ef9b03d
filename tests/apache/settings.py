"""Broker presets, the logging configuration and free ports."""

from __future__ import annotations

import random
import socket

# A default broker hands out 32 messages or 256 KiB a pull; with these it follows the client.
RAISED_LIMITS: dict[str, str] = {
    "maxTransferCountOnMessageInMemory": "2048",
    "maxTransferBytesOnMessageInMemory": "4194304",
    "maxTransferCountOnMessageInDisk": "2048",
    "maxTransferBytesOnMessageInDisk": "4194304",
}

# All 18 levels, short: 16 retries take about half a minute instead of 4 h 45 min.
SHORT_DELAYS: dict[str, str] = {
    "messageDelayLevel": "1s 1s 1s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s 2s",
}

# Questions about transactions every second, and no more than ten about one. Decisions 5.x notes in
# batches; by default 3 s go by, in which it asks again.
QUICK_CHECKS: dict[str, str] = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "10",
    "transactionOpBatchInterval": "100",
}

# Messages of a queue that one file of its index holds.
INDEX_FILE_MESSAGES = 4000

# Small files and patience with a busy machine; throughput runs keep the broker's own values.
TEST_BROKER: dict[str, str] = {
    "mappedFileSizeConsumeQueue": str(20 * INDEX_FILE_MESSAGES),
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "waitTimeMillsInSendQueue": "5000",
    "osPageCacheBusyTimeOutMills": "10000",
    "registerNameServerPeriod": "10000",
}

# The wheel of timed messages, which no test sends, is 48 MB that the broker compares byte by byte
# at each flush: by default every second, a third of a core.
TEST_BROKER_5X: dict[str, str] = {"timerFlushIntervalMs": "600000"}

LOGBACK = """<?xml version="1.0" encoding="UTF-8"?>
<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{path}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %logger{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="FILE"/></root>
</configuration>
"""

# Below the range that the kernel hands out to connecting sockets.
_PORTS = range(12000, 32000)
# Handed out but perhaps not bound yet: a JVM needs a second before it binds.
_given: set[int] = set()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))  # noqa: S104 - the brokers bind every interface
        except OSError:
            return False
    return True


def free_port(around: tuple[int, ...] = (0,)) -> int:
    """A port such that ``port + n`` is free for every ``n`` of ``around``."""
    generator = random.SystemRandom()
    for _ in range(1000):
        port = generator.choice(_PORTS)
        wanted = {port + offset for offset in around}
        if not wanted & _given and all(_is_free(number) for number in wanted):
            _given.update(wanted)
            return port
    raise OSError("no free ports found on this machine")
