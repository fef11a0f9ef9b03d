"""A broker process that is killed while it takes sync-flushed messages loses none of them."""

from __future__ import annotations

from pathlib import Path

from tests.sync_flush import WINDOW, run


def test_what_was_acknowledged_outlives_kill_9(tmp_path: Path) -> None:
    history = run(tmp_path, messages=2000, kills=1, seed=5)
    assert history.kills == 1
    assert len(history.acknowledged) + history.unanswered == 2000
    assert len(history.acknowledged) >= 2000 - WINDOW
