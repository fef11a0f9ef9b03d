"""What a process has used so far."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

_STATUS = Path("/proc/self/status")


def _status_kib(name: str) -> int | None:
    if not _STATUS.is_file():
        return None
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return None


def rss_bytes() -> int:
    """Resident memory now; the peak where the system does not tell it."""
    kib = _status_kib("VmRSS")
    return peak_rss_bytes() if kib is None else kib * 1024


def peak_rss_bytes() -> int:
    """The most resident memory that this process had."""
    kib = _status_kib("VmHWM")
    if kib is not None:
        return kib * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def used() -> dict[str, float]:
    """Peak memory and CPU time since the process began."""
    return {"peak_rss_bytes": peak_rss_bytes(), "cpu_seconds": round(time.process_time(), 3)}
