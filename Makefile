# `make serve`, `make demo` and `make test` are all a newcomer needs; each sets up what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 30000
PIP := $(BIN)/pip install --disable-pip-version-check -q
NATIVE := CMakeLists.txt $(wildcard slipstream/kernels/native/src/*)

.PHONY: serve demo test check native sanitize clean

serve: $(VENV)/.installed
	@exec $(BIN)/slipstream serve --host $(HOST) --port $(PORT) $(ARGS)

# Does speculation pay on this machine? A small verdict of some minutes; the page is its last line.
demo: $(VENV)/.installed
	@$(BIN)/slipstream pull
	@mkdir -p build
	@$(BIN)/slipstream verdict self:off self:fixed self:adaptive --side-by-side --time-limit 4 \
	  --concurrency 1 8 --max-tokens 24 --answers 4 --html build/demo.html --json build/demo.json $(ARGS)

test: $(VENV)/.installed-test check
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(wildcard slipstream/kernels/native/src/* tests/kernels/native/*)

# Compile what has changed of the native kernels. Unlike installing, it fails if they cannot be built.
native: $(VENV)/.build-tools
	SLIPSTREAM_REQUIRE_NATIVE=1 $(PIP) --no-build-isolation --no-deps -e .

# The native kernels' own tests, in C++, under the compiler's checks.
sanitize: build/sanitize-address,undefined build/sanitize-thread
build/sanitize-%: $(VENV)/.build-tools FORCE
	PATH="$(abspath $(BIN)):$$PATH" cmake -S . -B $@ -G Ninja -DSLIPSTREAM_SANITIZE=$*
	$(BIN)/cmake --build $@
	$@/kernel_tests
FORCE:

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  "error: %s is Python %d.%d; Slipstream needs 3.11 to 3.13: make PYTHON=python3.12 ..." % (sys.executable, *v))'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# What builds the package stays in the environment, so that building again takes seconds.
BUILD_REQUIRES = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])
$(VENV)/.build-tools: pyproject.toml | $(VENV)/bin/python
	$(PIP) $$($(BIN)/python -c '$(BUILD_REQUIRES)') cmake ninja
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(NATIVE) | $(VENV)/.build-tools
	@echo "installing into $(VENV), once; this takes a minute or two"
	$(PIP) -c constraints.txt --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -c constraints.txt --no-build-isolation -e '.[test]'
	$(BIN)/slipstream pull
	@touch $@

clean:
	rm -rf $(VENV)
