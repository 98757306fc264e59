# make demo     see it work: a real queue, real workers, two fires
# make test     the tests
# make test-all the tests in their full sizes
# make lint     format, lint, types, floors
# make chaos    a minute of kills, wrong clocks and full disks, then an audit
# make bench    ratios against the bare engine

PYTHON ?= python3

.PHONY: demo test test-all lint chaos bench lock clean

.venv/.ready: pyproject.toml scripts/requirements.txt scripts/install
	PYTHON=$(PYTHON) scripts/install
	@touch $@

demo: .venv/.ready
	@scripts/demo

test: .venv/.ready
	.venv/bin/python -m pytest -m "not full"

test-all: .venv/.ready
	.venv/bin/python -m pytest

lint: .venv/.ready
	.venv/bin/ruff format --check orch tests scripts/bench scripts/chaos
	.venv/bin/ruff check orch tests scripts/bench scripts/chaos
	.venv/bin/mypy
	.venv/bin/lint-imports

chaos: .venv/.ready
	.venv/bin/python scripts/chaos

bench: .venv/.ready
	.venv/bin/python scripts/bench

# Renew the lock; needs pip-tools.
lock:
	pip-compile -q --upgrade --extra dev --generate-hashes --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --no-header --strip-extras --allow-unsafe --no-annotate \
		-o scripts/requirements.txt pyproject.toml

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .hypothesis .import_linter_cache
