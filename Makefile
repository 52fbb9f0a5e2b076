# make run    set up what is missing, then run the quickstart job on the embedded model (no key, no GPU)
# make check  ruff, mypy --strict, import-linter, deptry, the locks against known advisories, each room's lines
# make quick  the checks and the quick unit tests (three minutes)
# make test   what CI runs after the checks: all tests but those of the night
# make night  the tests of the night (over an hour), a part a folder, two at a time, with a line of each at the end; PARTS=tests/ray does one, KILLS=3 tries
#             each kill three times; tests/README.md says what it wants beside .venv
# make setup  the shared part: .venv with pinned packages, the package itself, the embedded model
# make lock   remake cluster/locks from pyproject.toml
# make sbom   results/sbom.json: the locks' packages, as CycloneDX
SHELL := /bin/bash
# Where it is set (in many images), each of the many processes would compile vLLM, torch and the tests anew
unexport PYTHONDONTWRITEBYTECODE
VENV ?= .venv
BIN := $(VENV)/bin
# The first CPython from 3.11 to 3.13 that runs here; name another with PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13; do $$p -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' 2>/dev/null && echo $$p && break; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -q -q --no-deps --no-compile
JOB ?= jobs/quickstart.yaml

.PHONY: run quick test test-unit test-engine test-processes night check sbom setup lock platform model clean

run: setup
	$(BIN)/memray-eval run $(JOB)

# Each test is in exactly one gate, by its folder and its markers (tests/unit/test_gates.py); pyproject.toml leaves out `night`
PYTEST := $(BIN)/python -m pytest
quick: check test-unit
test-unit: $(VENV)/.dev
	$(PYTEST) tests/unit -n 2 -m "not heavy and not night"

test: setup test-unit
	$(PYTEST) tests/unit -n 2 -m "heavy and not night"
	$(PYTEST) tests/wire -n 4 --dist worksteal
	$(PYTEST) tests/local tests/golden -n 4 --dist worksteal
	$(MAKE) --no-print-directory -j2 -Otarget test-engine test-processes
# Two at a time: what shares one engine or has a Ray of its own, and what starts processes
test-engine:
	$(PYTEST) tests/ray --durations=10
	$(PYTEST) tests/e2e tests/gpu --durations=10
test-processes:
	$(PYTEST) tests/processes tests/clusters --durations=20

KILLS ?= 1
PARTS ?= tests/processes tests/clusters tests/e2e tests/ray tests/gpu tests/wire tests/local tests/golden tests/unit
NIGHT := $(VENV)/night
# Two parts at a time, the long ones first; what each printed comes when it is over
night: setup $(VENV)/.dev
	@rm -rf $(NIGHT) && mkdir $(NIGHT); $(MAKE) --no-print-directory -k -j2 -Otarget $(PARTS:%=night/%); code=$$?; \
	  printf '\nThe night:\n'; cat $(PARTS:tests/%=$(NIGHT)/%); exit $$code
# Code 5: the folder has no test of the night
night/%:
	@began=$$(date +%s); MEMRAY_EVAL_KILLS=$(KILLS) $(PYTEST) -m night $* -o faulthandler_timeout=0 --durations=20; code=$$?; \
	  case $$code in 0) how=green;; 5) how="no tests"; code=0;; *) how="RED ($$code)";; esac; \
	  printf '%-16s %4d min  %s\n' $* $$((($$(date +%s) - began + 59) / 60)) "$$how" > $(NIGHT)/$(notdir $*); exit $$code

check: $(VENV)/.cpu $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m tests.supply_chain audit
	$(BIN)/python -m tests.house > /dev/null

sbom: $(VENV)/.cpu $(VENV)/.dev
	$(BIN)/python -m tests.supply_chain sbom > results/sbom.json

setup: $(VENV)/.cpu
	@$(BIN)/python -m memray_eval.models.embedded_model

platform:
	@if [ "$$(uname -s) $$(uname -m)" != "Linux x86_64" ]; then \
	  echo "error: the embedded vLLM runs on Linux x86_64; this is $$(uname -s) $$(uname -m)."; \
	  echo "What works here: python3 -m venv .venv && .venv/bin/pip install . ; start any OpenAI-compatible server (Ollama, LM Studio,"; \
	  echo "a vLLM server elsewhere); .venv/bin/memray-eval run jobs/server.yaml, with its base_url and model put in."; exit 2; fi
	@if [ -z "$(PYTHON)" ]; then echo "error: no CPython 3.11, 3.12 or 3.13 found; install one, or name it: make run PYTHON=/path/to/python"; exit 2; fi

$(BIN)/python: | platform
	$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) has no venv module (Debian: apt-get install python3-venv)"; exit 2; }

$(VENV)/.cpu: cluster/locks/cpu.txt cluster/locks/cpu-torch.txt pyproject.toml | $(BIN)/python
	@echo "Installing the pinned packages (about two minutes, 4 GB) ..."  # Python compiles what is imported; all of it takes a minute
	@$(INSTALL) --require-hashes -r cluster/locks/cpu.txt
	@$(INSTALL) -r cluster/locks/cpu-torch.txt || { \
	  echo "error: torch could not be installed. If pip did not find torch ...+cpu, tell it where CPU builds of PyTorch are:"; \
	  echo "PIP_EXTRA_INDEX_URL=<PyTorch's CPU wheel index> or PIP_FIND_LINKS=<a folder with the wheel>, then make again."; exit 2; }
	@$(PIP) install -q -q --no-deps --editable .
	@touch $@

$(VENV)/.dev: cluster/locks/dev.txt $(VENV)/.cpu
	@$(INSTALL) --require-hashes -r cluster/locks/dev.txt
	@touch $@

# uv resolves; pip installs. No lock holds an index address. GPU torch has other wheels, so each lock is resolved by itself.
# Each has the hash of every wheel for Linux on x86_64; cpu-torch.txt has none, because CPU torch may come from any folder of wheels.
UV := $(BIN)/uv pip compile -q --python-version 3.11
FROM_PROJECT := pyproject.toml --no-header --no-annotate --no-emit-index-url --no-emit-find-links
CPU := --override cluster/locks/cpu-overrides.txt --find-links "$${PIP_FIND_LINKS:-.}"
LINUX := --python-platform x86_64-manylinux_2_35
define HASHED
import re, sys, tomllib
fits = re.compile(r"-(py[\w.]+|cp3\d+-abi3|cp31[123])-.*(any|linux\S*_x86_64)\.whl$$")
for package in tomllib.load(sys.stdin.buffer)["packages"]:
    wheels = [file for file in package.get("wheels", ()) if fits.search(file["url"]) and "musl" not in file["url"]]
    hashes = sorted(file["hashes"]["sha256"] for file in wheels or [package["sdist"]])
    print(" \\\n    --hash=sha256:".join([f"{package['name']}=={package['version']}", *hashes]))
endef
export HASHED
WITH_HASHES = $(UV) - --no-deps $(1) --format pylock.toml | $(BIN)/python -c "$$HASHED" > $(VENV)/lock.txt && mv $(VENV)/lock.txt
lock: | $(BIN)/python
	@$(PIP) install -q -q uv
	$(UV) $(FROM_PROJECT) $(CPU) --extra cpu --extra google -o $(VENV)/cpu.txt
	grep ^torch== $(VENV)/cpu.txt > cluster/locks/cpu-torch.txt
	grep -v ^torch== $(VENV)/cpu.txt | $(call WITH_HASHES,--universal) cluster/locks/cpu.txt
	$(UV) $(FROM_PROJECT) $(CPU) --override cluster/locks/dev-overrides.txt --extra cpu --extra google --extra dev -c $(VENV)/cpu.txt -o $(VENV)/dev.txt
	grep -vxFf $(VENV)/cpu.txt $(VENV)/dev.txt | $(call WITH_HASHES,--universal) cluster/locks/dev.txt
	$(UV) $(FROM_PROJECT) --extra gpu --extra google --extra launcher $(LINUX) -c cluster/locks/gpu-constraints.txt -o $(VENV)/gpu.txt
	cat $(VENV)/gpu.txt | $(call WITH_HASHES,$(LINUX)) cluster/locks/gpu.txt

clean:
	rm -rf $(VENV) build dist *.egg-info
