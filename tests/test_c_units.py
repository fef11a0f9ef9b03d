"""The C units under the address and undefined behaviour sanitizers; a short round of fuzzing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import c_build, fuzz, fuzz_corpus

ENGINE = c_build.engine().name
ITERATIONS = 4000
SEED = 20240501

# Which program tests a unit, where its name does not say so.
TESTED_BY = {
    "utf8": "tags",
    "properties": "message",
    "json": "header",
    "arrow": "columns",
    "entries": "columns",
    "host_text": "columns",
    "columns_fill": "columns",
    "vector": "columns",
}


@pytest.mark.parametrize("source", c_build.test_sources(), ids=lambda source: source.stem)
def test_c_unit(source: Path) -> None:
    done = c_build.run(c_build.build_test(source), timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith(" tests\n")


@pytest.mark.parametrize(
    "target", [pytest.param(t, id=f"{t}-{ENGINE}") for t in c_build.fuzz_targets()]
)
def test_fuzz_entry_survives_its_corpus_and_mutations_of_it(target: str, tmp_path: Path) -> None:
    command = fuzz.command(target, seconds=0, iterations=ITERATIONS, seed=SEED, work=tmp_path)
    done = subprocess.run(
        command, capture_output=True, timeout=300, env=c_build.ENVIRONMENT, check=False
    )
    found = [path.read_bytes().hex() for path in tmp_path.glob(f"{target}-c*") if path.is_file()]
    assert done.returncode == 0, (done.stderr.decode(errors="replace")[-4000:], found)


def test_every_c_unit_is_tested() -> None:
    programs = {path.stem.removeprefix("test_") for path in c_build.test_sources()}
    units = {path.stem.removeprefix("rmf_") for path in c_build.library_sources()}
    assert units
    assert {TESTED_BY.get(unit, unit) for unit in units} <= programs


def test_every_fuzz_entry_has_seeds_and_all_seeds_are_current() -> None:
    expected = fuzz_corpus.seeds()
    targets = c_build.fuzz_targets()
    assert targets
    assert set(targets) <= set(expected)
    for target in targets:
        committed = {path.name: path.read_bytes() for path in (c_build.CORPUS / target).iterdir()}
        made = {f"seed-{n:03}": data for n, data in enumerate(expected[target])}
        # Further files are inputs that once found something.
        assert made.items() <= committed.items()
    assert {path.name for path in c_build.CORPUS.iterdir()} == set(targets)


def test_the_fuzz_corpus_stays_small() -> None:
    total = sum(path.stat().st_size for path in c_build.CORPUS.rglob("*") if path.is_file())
    assert 0 < total < fuzz_corpus.MAX_TOTAL


PLANTED = {
    "read beyond a block": 'uint8_t *p = exact_copy("abc", 3); CHECK(p[n + 2] == 0); free(p);',
    "a leak": 'CHECK(exact_copy("abc", 3)[n] != 0);',
    "signed overflow": "int v = INT32_MAX; CHECK(v + n != 5);",
    "a wrong shift": "CHECK((1 << (31 + n)) != 5);",
    "a null copy": (
        "uint8_t b[1]; const uint8_t *volatile from = NULL;"
        " memcpy(b, from, (size_t)n - 1); CHECK(n == 1);"
    ),
    "a block that is not freed": "CHECK(rmf_alloc((size_t)n) != NULL);",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_sanitizers_see_a_planted_fault(fault: str, tmp_path: Path) -> None:
    source = tmp_path / "test_planted.c"
    source.write_text(
        '#include "tests/harness.h"\n#include "rmf_alloc.h"\n'
        "static volatile int hidden = 1;\n"
        f"static void planted(void) {{ int n = hidden; {PLANTED[fault]} }}\n"
        'const struct test tests[] = {{"planted", planted}, {NULL, NULL}};\n',
        encoding="utf-8",
    )
    done = c_build.run(c_build.build_test(source), timeout=60)
    assert done.returncode != 0, f"{fault} was not seen"


FUZZ_PLANTED = """
#include "fuzz.h"
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 4 && data[0] == 'f' && data[1] == 'u' && data[2] == 'z' && data[3] == 'z') {
        CHECK(size == 0);
    }
    return 0;
}
"""


def test_the_driver_finds_a_planted_fault_and_keeps_its_input(tmp_path: Path) -> None:
    entry = tmp_path / "fuzz_planted.c"
    entry.write_text(FUZZ_PLANTED, encoding="utf-8")
    seeds = tmp_path / "seeds"
    seeds.mkdir()
    (seeds / "seed").write_bytes(b"fxxxxx")
    program = c_build.build_fuzzer_from(entry, c_build.driver())
    crash = tmp_path / "crash"
    done = c_build.run(
        program, str(seeds), "--iterations", "2000000", "--crash", str(crash), timeout=120
    )
    assert done.returncode != 0
    assert crash.read_bytes()[:4] == b"fuzz"
    assert c_build.run(program, str(crash), timeout=60).returncode != 0
