"""No recorded vector may lie unused."""

from __future__ import annotations

from pathlib import Path

from tests import golden_data


def test_every_golden_file_belongs_to_a_test() -> None:
    present = {path.name for path in golden_data.GOLDEN.iterdir()} - {"README.md"}
    stored = {f"{name}{end}" for name in golden_data.STORED for end in (".bin", ".jsonl")}
    others = (*golden_data.FRAMES, *golden_data.TAG_HASHES, *golden_data.ELSEWHERE)
    single = {golden_data.OFFSET_FILE}
    assert present == stored | {f"{name}.jsonl" for name in others} | single


def test_golden_files_checked_elsewhere_are_named_there() -> None:
    tests = Path(__file__).parent
    named = {
        name
        for path in tests.rglob("*.py")
        if path.name not in ("golden_data.py", Path(__file__).name)
        for name in golden_data.ELSEWHERE
        if name in path.read_text(encoding="utf-8")
    }
    assert named == set(golden_data.ELSEWHERE)


def test_golden_files_hold_the_recorded_number_of_vectors() -> None:
    counts = {
        path.stem: len(golden_data.rows(path.stem)) for path in golden_data.GOLDEN.glob("*.jsonl")
    }
    assert counts["stored_v4_9_4"] == counts["stored_v5_3_3"] == 200
    assert counts["inner_batch_v5_3_3"] == 51
    assert (counts["frames_v4_9_4_json"], counts["frames_v4_9_4_rocketmq"]) == (95, 99)
    assert counts["tag_hash_v4_9_4"] > 200
