# One virtual environment with everything, shared by every target.
#
#   make test    build and run all tests          make demo   build and run the demonstration
#   make bench   time the hot paths               make wheel  build, repair and test a wheel
#   make bench-report   measure everything that the documents show (long; wants the machine alone)
#   make fuzz    mutate the decoders' corpora     make lint   ruff and mypy
#   make build   the extension, in place          make clean  remove what was built
#
# PYTHON=...        interpreter for the environment (3.11 or newer; else the first one found)
# DEMO_ARGS=...     options of `rocketmq-fast demo`
# TEST_ARGS=...     options of pytest, instead of the whole suite on three processes
# BENCH_ARGS=...    options of the benchmark run
# FUZZ_SECONDS=...  how long `make fuzz` runs each decoder
# FUZZ_ARGS=...     further options of it: --target messages --seed 7

SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
# Keyed by the file that names the dependencies: a change installs what is new.
KEY := $(firstword $(shell cksum pyproject.toml scripts/requirements.py | cksum))
VENV_STAMP := $(VENV)/.installed-$(KEY)
LINK_STAMP := $(VENV)/.linked-$(KEY)
FUZZ_SECONDS ?= 60
# Half of what tests do is to wait, so three keep two cores busy. Files are given out as
# tests/fix_schedule.py says.
TEST_ARGS ?= --numprocesses 3 --dist loadfile --no-loadscope-reorder
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.PHONY: help venv build demo test bench bench-report fuzz lint wheel clean distclean
.DELETE_ON_ERROR:

help:
	@sed -n '/^#/!q;s/^# \{0,1\}//p' Makefile

venv: $(VENV_STAMP)

$(VENV_STAMP):
	@python=$$(sh scripts/find_python.sh "$(PYTHON)") || exit 1; \
	if [ ! -x $(PY) ]; then \
		echo "creating $(VENV) with $$python"; \
		"$$python" -m venv $(VENV) || exit 1; \
	fi
	@echo "installing what pyproject.toml names into $(VENV)"
	@$(PIP) install --upgrade 'pip>=24'
	@$(PY) scripts/requirements.py dev > $(VENV)/requirements.txt
	@$(PIP) install -r $(VENV)/requirements.txt
	@rm -f $(VENV)/.installed-*
	@touch $@

# The extension first; then, once, the path entry in the environment that makes the command and
# the imports work from anywhere (Spark finds pyspark_rocketmq by looking along the path).
build: $(VENV_STAMP)
	@ls rocketmq_fast/_core/*.so >/dev/null 2>&1 || echo "compiling the extension (about a minute)"
	@$(PY) setup.py -q build_ext --inplace
	@$(MAKE) --no-print-directory -s $(LINK_STAMP)

$(LINK_STAMP):
	@$(PIP) install --no-deps --no-build-isolation -e .
	@rm -f $(VENV)/.linked-*
	@touch $@

demo: build
	@$(VENV)/bin/rocketmq-fast demo $(DEMO_ARGS)

# Hundreds of short processes import the package: its bytecode is kept, whatever the environment says.
test: build
	@PYTHONDONTWRITEBYTECODE= $(PY) -m pytest $(TEST_ARGS)

bench: build
	@$(PY) -m pytest benchmarks --benchmark-enable --benchmark-only $(BENCH_ARGS)

fuzz: $(VENV_STAMP)
	@$(PY) -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

# What the documents show: each command writes its JSON below benchmarks/results.
bench-report: build
	@$(PY) -m benchmarks.hot_paths
	@$(PY) -m benchmarks.end_to_end
	@$(PY) -m benchmarks.consumer_kinds
	@$(PY) -m benchmarks.memory
	@$(PY) -m benchmarks.embedded --connections 10000
	@$(PY) -m benchmarks.spark
	@$(PY) -m benchmarks.publish

lint: build
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy

wheel: $(VENV_STAMP)
	@$(PY) scripts/build_wheel.py
	@$(PY) scripts/test_wheel.py

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -f rocketmq_fast/_core/*.so rocketmq_fast/_core/*.pyd rocketmq_fast/_core/*.c
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) wheelhouse/*.whl wheelhouse/*.tar.gz
