# `make serve` and `make test` are all a newcomer needs; both set up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HOST ?= 127.0.0.1
PORT ?= 30000

.PHONY: serve test check clean

serve: $(VENV)/.installed
	@exec $(BIN)/slipstream serve --host $(HOST) --port $(PORT) $(ARGS)

test: $(VENV)/.installed-test check
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  "error: %s is Python %d.%d; Slipstream needs 3.11 to 3.13: make PYTHON=python3.12 ..." % (sys.executable, *v))'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV), once; this takes a minute or two"
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[test]'
	$(BIN)/slipstream pull
	@touch $@

clean:
	rm -rf $(VENV)
