# The two commands of the README, and what they need, from a fresh clone.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP = $(BIN)/pip install --quiet --disable-pip-version-check
REPORT ?= demo-report
CLIENTS = $(basename $(notdir $(wildcard tests/clients/*.txt)))
PROGRAMS = chromium:chromium curl:curl promtool:prometheus /usr/lib/postgresql/15/bin/initdb:postgresql ip:iproute2 strace:strace valgrind:valgrind systemd-analyze:systemd unshare:util-linux # and their Debian packages

# Where this is set, hundreds of processes of the tests would compile all modules again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo fast sites test ci-tools clients cluster cluster-tools check site unit unit-plain long slowest hostile bench load processes large paper regret streams trust picture prove teeth mutants kills failover flips dist clean

# Needs no compiler; the compiled kernel of `make fast` is kept, and compiled again if it is older than its source.
demo: $(VENV)/.covey $(wildcard $(VENV)/.fast)
	$(BIN)/covey demo --out $(REPORT)

# The kernel as compiled C: the same decisions, many times as fast.
fast: $(VENV)/.fast
	@$(BIN)/covey --version | grep compiled || { echo "the kernel was not compiled; COVEY_BUILD=compiled $(BIN)/pip install --editable . says why"; exit 1; }

# Four sites over https with fresh keys: one is killed and comes back, and nothing is lost.
sites: $(VENV)/.node
	$(BIN)/python examples/sites/run.py

test: $(VENV)/.docs
	@echo "test, 1 of 3: lint, types, import contracts, documents"
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check site
	@echo "test, 2 of 3: all tests, $$($(BIN)/covey --version)"
	@$(MAKE) --no-print-directory unit
	@echo "test, 3 of 3: the tests of decisions again, on the plain kernel"
	@$(MAKE) --no-print-directory unit-plain

# What tests need beyond the packages of the project: without it they are skipped, in CI they fail.
ci-tools: clients cluster-tools
	@missing=$$(for tool in $(PROGRAMS); do command -v $${tool%%:*} > /dev/null || echo $${tool##*:}; done); \
	if [ -n "$$missing" ]; then apt-get update --quiet=2 && apt-get install --quiet=2 --yes --no-install-recommends $$missing; fi

# Other projects' clients, an environment each: their dependencies conflict.
clients: $(CLIENTS:%=.clients/%/.made)

.clients/%/.made: tests/clients/%.txt | $(VENV)/.tools
	@echo "setting up .clients/$* (once)"
	@$(PYTHON) -m venv --clear --without-pip .clients/$*
	@$(BIN)/pip --python .clients/$*/bin/python install --quiet --no-deps --no-compile --requirement $<
	@touch $@

check: $(VENV)/.tools
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The documentation as a site, in build/site; a warning is an error, and its notebook is run.
site: $(VENV)/.docs
	$(BIN)/python docs/make_site.py

unit: $(VENV)/.tools
	$(BIN)/python -m pytest -n auto --dist worksteal

# Both forms of the kernel have one source: these tests show that it decides the same as plain Python.
PLAIN = tests/golden tests/kernel tests/bandit/test_learner.py
unit-plain: $(VENV)/.tools
	COVEY_KERNEL=plain $(BIN)/python -m pytest -n auto --dist worksteal $(PLAIN)

# The same tests with all their examples, seeds and slots, which `make test` has fewer of.
long: $(VENV)/.tools
	COVEY_LONG=1 $(BIN)/python -m pytest -n auto --dist worksteal
	COVEY_LONG=1 COVEY_KERNEL=plain $(BIN)/python -m pytest -n auto --dist worksteal $(PLAIN)

# What the tests cost: CPU seconds by folder and by test, of TESTS only or of all.
slowest: $(VENV)/.tools
	$(BIN)/python -m pytest -n auto --dist worksteal --slowest 60 $(TESTS)

# Ray, for tests of clusters; without it they are skipped.
cluster-tools: $(VENV)/.cluster

# A Ray cluster of three hosts, in network namespaces: the same results, also while hosts are killed.
# Then two nodes over two PostgreSQL servers, of which some are killed under load.
cluster: $(VENV)/.cluster
	cd tests && ../$(BIN)/python -m chaos.cluster --write
	@$(MAKE) --no-print-directory failover

# Malformed requests in numbers, and schemathesis over the document of a served site.
hostile: $(VENV)/.tools
	$(PIP) --group hostile
	cd tests && ../$(BIN)/python -m support.hostile

bench: $(VENV)/.tools
	$(PIP) --group bench
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/batch.py

# Requests a second of a served site, beside the same server with nothing to do.
load: $(VENV)/.tools
	$(BIN)/python benchmarks/load.py

# A function of a served site in a thread and in two processes, by turns.
processes: $(VENV)/.tools
	$(BIN)/python benchmarks/processes.py

# Replay streamed Parquet logs of up to ROWS rows: rows a second, CPU time and memory.
large: $(VENV)/.tools
	$(BIN)/python benchmarks/large_log.py --rows $(or $(ROWS),100000000)

# Recompute the tables of regret; DATA is a folder of recorded streams (default: COVEY_DATA).
regret: $(VENV)/.fast
	$(BIN)/python experiments/regret/run.py $(if $(DATA),--data $(DATA))

# Real and generated streams with all their features as contexts, beside a linear bandit.
streams: $(VENV)/.tools
	$(BIN)/python experiments/streams/run.py

# Measure trust that is earned: honest sources, and sources with false labels.
trust: $(VENV)/.fast
	$(BIN)/python experiments/trust/run.py

# Recompute the paper's tables; DATA is the folder of its data (default: COVEY_DATA).
paper: $(VENV)/.tools
	$(BIN)/python experiments/paper/run.py $(if $(DATA),--data $(DATA)) --out experiments/paper

# Storms over whole networks: MINUTES=60, or SEEDS=1000, or SEED=17 to see one again; JOBS processes.
JOBS ?= 2
prove: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m chaos.prove --jobs $(JOBS) $(if $(SEED),--seed $(SEED),--write $(if $(SEEDS),--seeds $(SEEDS),--minutes $(or $(MINUTES),10)))

# Every planted bug, and how many seeds find it.
teeth: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m chaos.prove --teeth 600

# Small changes of the code, EACH of a module in ONLY (a package or a file), that some test must notice.
mutants: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m mutants --each $(or $(EACH),25) --jobs $(JOBS) $(ONLY)

# A real site under load, killed again and again.
kills: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m chaos.kill --times $(or $(TIMES),200)

# Two nodes over two PostgreSQL servers: connections, nodes and servers fail under load.
failover: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m chaos.failover --rounds $(or $(ROUNDS),10) --write

# Single bits of a store, flipped one by one: what `covey check` finds.
flips: $(VENV)/.tools
	cd tests && ../$(BIN)/python -m chaos.flips --bits $(or $(BITS),2000) --write

# The page on keys of policies, from their records.
keys: $(VENV)/.tools
	$(BIN)/python docs/make_policy_keys.py

picture: $(VENV)/.fast
	$(BIN)/python docs/make_picture.py

# The source distribution and a wheel for each of PYTHONS, tried in new environments.
PYTHONS ?= $(PYTHON)
dist: $(VENV)/.tools
	$(PIP) --group dist
	$(BIN)/python deploy/dist.py $(PYTHONS)

clean:
	rm -rf $(VENV) .clients build dist demo-report src/covey/kernel/*.so src/*.egg-info

# The kernel runs as plain Python, which takes no compiler and half a minute; `make fast` compiles it.
$(VENV)/.covey: pyproject.toml setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "covey needs Python 3.11 or newer; set PYTHON=/path/to/it")'
	@echo "setting up $(VENV) (once), 1 of 4: a Python environment"
	@$(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV), 2 of 4: numpy and msgspec"
	@$(PIP) --no-compile "setuptools>=77" numpy msgspec
	@echo "setting up $(VENV), 3 of 4: matplotlib and jinja2, for reports"
	@$(PIP) --no-compile matplotlib jinja2
	@echo "setting up $(VENV), 4 of 4: covey"
	@rm -f src/covey/kernel/*.so
	@COVEY_BUILD=plain $(PIP) --no-compile --no-build-isolation --editable ".[report]"
	@touch $@

$(VENV)/.fast: $(VENV)/.covey $(wildcard src/covey/kernel/*.py src/covey/kernel/*.pxd)
	@echo "compiling the kernel (about a minute)"
	@rm -f src/covey/kernel/*.so
	@$(PIP) --editable .
	@touch $@

$(VENV)/.node: $(VENV)/.covey
	@COVEY_BUILD=plain $(PIP) --no-build-isolation --editable ".[node]"
	@touch $@

$(VENV)/.tools: $(VENV)/.fast
	@echo "setting up $(VENV): what the tests need"
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --group check --group test
	@touch $@

$(VENV)/.cluster: $(VENV)/.tools
	@$(PIP) --group cluster
	@touch $@

$(VENV)/.docs: $(VENV)/.tools
	@$(PIP) --group docs
	@touch $@
