# A thin front: the work is done by cmake/*.sh and tests/run-*, which can be called by hand as well.
SHELL := /bin/bash
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= 1
RF_SECONDS ?= 600
SIM_SEED ?= 1
export BUILD JOBS PREFIX DESTDIR CMAKE_ARGS QUICK FUZZ FUZZ_SECONDS FUZZ_SEED FUZZ_RUNS RF_SECONDS SIM_SEED SIM_SEEDS FULL

.PHONY: help bench-quick bench-report bench-counts deps demo test bench soak power power-soak bench-command bench-scan scan-soak sim mutants step step-twice storm model fuzz install \
	format format-check clean
.NOTPARALLEL:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

deps: ## install and unpack what the build needs (the other targets do it too)
	@cmake/deps.sh

demo: deps ## build and run the demo
	@cmake/build.sh gcc rf-demo
	@"$(BUILD)/gcc/worker-demo/rf-demo" $(ARGS)

test: ## build and test all: gcc, clang, sanitizers, package (QUICK=1: gcc only)
	@tests/run-all

bench: ## build and run every benchmark (ARGS=... goes to each; ARGS=floor: one of them)
	@cmake/deps.sh bench
	@cmake/build.sh gcc
	@bench/all "$(BUILD)/gcc" $(ARGS)

bench-quick: ## two minutes: every target, and whether it is met
	@cmake/deps.sh bench
	@cmake/build.sh gcc
	@bench/all "$(BUILD)/gcc" --quick --targets $(ARGS)

bench-report: ## run every benchmark and write docs/benchmarks.md (RESUME=1: finish a run that was cut short; RESULTS=FILE: of what is there already)
	@cmake/deps.sh bench
	@results="$(RESULTS)"; failed=0; \
	if [ -z "$$results" ]; then \
	    results="$(BUILD)/results.jsonl"; cmake/build.sh gcc || exit 1; \
	    [ -n "$(RESUME)" ] || rm -f "$$results"; \
	    bench/all "$(BUILD)/gcc" --results="$$results" $(if $(RESUME),--resume) $(ARGS) || failed=1; \
	fi; \
	mkdir -p docs/benchmarks; \
	[ "$$results" -ef docs/benchmarks/results.jsonl ] || cp "$$results" docs/benchmarks/results.jsonl; \
	bench/report docs/benchmarks/results.jsonl docs && exit "$$failed"

bench-counts: deps ## count the instructions of the hot paths again, and keep them in bench/instructions.counts
	@cmake/build.sh gcc rf-bench-count
	@cmake/build.sh clang rf-bench-count
	@bench/instructions --renew
	@bench/instructions --renew --program "$(BUILD)/clang/bench/rf-bench-count"

soak: deps ## run the property tests for RF_SECONDS=600 from RF_SEED (random), then 1,000 seeds of the simulator
	@cmake/build.sh gcc
	@export RF_SOAK=1 RF_SEED="$${RF_SEED:-$$(date +%s)}"; \
	echo "soak: RF_SEED=$$RF_SEED RF_SECONDS=$$RF_SECONDS"; \
	found=; for source in tests/*/test_*property*.c; do \
	    [ -e "$$source" ] || continue; \
	    room=$${source#tests/}; room=$${room%%/*}; name=$${source##*/test_}; name=$${name%.c}; \
	    found=1; echo "-- $$source"; "$(BUILD)/gcc/tests/test_$${room}_$$name" </dev/null || exit 1; \
	done; [ -n "$$found" ] || echo "soak: there is no property test"; \
	SIM_SEED=$$RF_SEED tests/run-sim campaign

sim: deps ## play SIM_SEEDS=100 seeds from SIM_SEED=1 at every level, against the model and the rules
	@tests/run-sim

mutants: deps ## break the library on purpose, one way at a time: the simulator must find each
	@tests/run-mutants $(ARGS)

power: deps ## cut the power under a storm: POWER_IMAGES=1000 images from POWER_SEED=1 (POWER_ARGS=--help)
	@cmake/build.sh gcc rf-power
	@"$(BUILD)/gcc/tests/rf-power" --images "$${POWER_IMAGES:-1000}" --seed "$${POWER_SEED:-1}" $(POWER_ARGS)

power-soak: deps ## cut the power at every moment of random histories for RF_SECONDS=600 from RF_SEED (random)
	@cmake/build.sh gcc test_shm_points_power
	@export RF_SOAK=1 RF_SEED="$${RF_SEED:-$$(date +%s)}"; \
	echo "power-soak: RF_SEED=$$RF_SEED RF_SECONDS=$$RF_SECONDS"; \
	"$(BUILD)/gcc/tests/test_shm_points_power" </dev/null

bench-command: ## the command: status of 100,000 shards, work against a loop of the shell, log dump (ARGS=...)
	@cmake/deps.sh
	@cmake/build.sh gcc
	@bench/command "$(BUILD)/gcc" $(ARGS)

bench-scan: ## rf-scan against ripgrep and against itself without a coordinator (ARGS=...)
	@cmake/deps.sh bench
	@cmake/build.sh gcc rf-demo
	@bench/scan "$(BUILD)/gcc" $(ARGS)

scan-soak: ## rf-scan at length: 200,000 files, 2 GB in one, kills and resumption over and over
	@cmake/deps.sh test
	@cmake/build.sh gcc
	@export RF_SOAK=1 RF_SEED="$${RF_SEED:-$$(date +%s)}" RF_SCAN_FILES=200000 RF_SCAN_LARGE=2147483648 \
	    RF_SCAN_REAL="$${RF_SCAN_REAL:-/usr/share /usr/include}" TMPDIR="$${TMPDIR:-/tmp}"; \
	echo "scan-soak: RF_SEED=$$RF_SEED"; \
	for test in files oracle workers resume power; do \
	    echo "-- $$test"; "$(BUILD)/gcc/tests/test_scan_$$test" </dev/null || exit 1; \
	done

step: deps ## kill every operation at every instruction (STEP_ARGS=--help)
	@cmake/build.sh gcc rf-step
	@"$(BUILD)/gcc/tests/rf-step" $(STEP_ARGS)

step-twice: deps ## the same, and kill whoever settles the first death at each of its stores
	@cmake/build.sh gcc rf-step
	@"$(BUILD)/gcc/tests/rf-step" --twice $(STEP_ARGS)

storm: deps ## kill, stop and replace workers for STORM_SECONDS=60 from STORM_SEED=1 (STORM_ARGS=--help)
	@cmake/build.sh gcc rf-storm
	@"$(BUILD)/gcc/tests/rf-storm" --seconds "$${STORM_SECONDS:-60}" --seed "$${STORM_SEED:-1}" $(STORM_ARGS)

model: ## check the models of tests/spin exhaustively, and that each rule left out is missed (FULL=1: larger)
	@cmake/deps.sh model
	@tests/run-model $(ARGS)

fuzz: deps ## fuzz every target for FUZZ_SECONDS=60 from FUZZ_SEED=1 (FUZZ=name: one target; FUZZ_RUNS=n: at most)
	@cmake/build.sh fuzz
	@tests/run-fuzz

install: ## build and install the library and the command (PREFIX=/usr/local, DESTDIR)
	@cmake/deps.sh lib
	@cmake/build.sh install
	@cmake --install "$(BUILD)/install"
	@$(if $(DESTDIR),,$(if $(filter /usr /usr/local,$(abspath $(PREFIX))),if [ "$$(id -u)" = 0 ]; then ldconfig; fi))

format: ## rewrite our sources with clang-format 14
	@cmake/format.sh --available || cmake/deps.sh format
	@cmake/format.sh

format-check: ## say which sources make format would change
	@cmake/format.sh --available || cmake/deps.sh format
	@cmake/format.sh --check

clean: ## remove what was built; build/deps stays
	@rm -rf $(foreach d,gcc clang asan tsan fuzz install package logs,"$(BUILD)/$(d)") "$(BUILD)"/*.lock
