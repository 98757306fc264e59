# make demo     see it work: a real queue, real workers, two fires
# make test     the tests
# make test-all the tests in their full sizes
# make test-agents  an agent program in use, from the npm registry, against a local server in its model's place
# make binary   one file that needs no Python: dist/orch
# make binary-test      the tests of the built file itself
# make binary-test-all  all tests, with the built file in the place of the sources
# make lint     format, lint, types, floors
# make docs     the reference of the library, from its docstrings: build/docs
# make chaos    a minute of kills, wrong clocks and full disks, then an audit
# make bench    ratios against the bare engine

PYTHON ?= python3

.PHONY: demo test test-all test-agents binary binary-test binary-test-all lint docs chaos bench lock clean

.venv/.ready: pyproject.toml scripts/requirements.txt scripts/install
	PYTHON=$(PYTHON) scripts/install
	@touch $@

demo: .venv/.ready
	@scripts/demo

test: .venv/.ready
	.venv/bin/python -m pytest -m "not full"

test-all: .venv/.ready
	.venv/bin/python -m pytest

AGENT_PROGRAM ?= @anthropic-ai/claude-code@2

test-agents: .venv/.ready
	npm install --silent --no-fund --no-audit --prefix .venv/agents $(AGENT_PROGRAM)
	ORCH_TEST_AGENTS=$(CURDIR)/.venv/agents/node_modules/.bin .venv/bin/python -m pytest tests/scenarios/test_real_agents.py

binary:
	VENV=.venv/binary LOCK=scripts/requirements-binary.txt WHEEL=1 PYTHON=$(PYTHON) scripts/install
	.venv/binary/bin/python scripts/binary dist/orch
	dist/orch --version

binary-test: .venv/.ready binary
	BINARY=$(CURDIR)/dist/orch .venv/bin/python -m pytest tests/test_binary.py

# Everything else with it too, where a test starts the program at all.
binary-test-all: .venv/.ready binary
	BINARY=$(CURDIR)/dist/orch .venv/bin/python -m pytest

lint: .venv/.ready
	.venv/bin/ruff format --check orch tests scripts/bench scripts/binary scripts/chaos scripts/docs
	.venv/bin/ruff check orch tests scripts/bench scripts/binary scripts/chaos scripts/docs
	.venv/bin/mypy
	.venv/bin/lint-imports

docs: .venv/.ready
	.venv/bin/python scripts/docs build/docs

chaos: .venv/.ready
	.venv/bin/python scripts/chaos

bench: .venv/.ready
	.venv/bin/python scripts/bench

# Renew the locks; needs pip-tools.
LOCK = pip-compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	--no-header --strip-extras --allow-unsafe --no-annotate pyproject.toml
lock:
	$(LOCK) --extra dev -o scripts/requirements.txt
	$(LOCK) --extra binary -o scripts/requirements-binary.txt

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .hypothesis .import_linter_cache
