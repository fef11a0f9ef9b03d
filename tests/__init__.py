"""The tests; `tests.apache` also serves the benchmarks."""
