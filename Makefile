# Every target sets itself up in a fresh clone: a virtual environment with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=  # many processes start: compile each module once, at its first import

.PHONY: demo test pytest browser lint bench docs clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	$(BIN)/rankfold demo --out demo

test: $(VENV)/.dev browser
	$(MAKE) --jobs 2 pytest lint

# tests/conftest.py orders the files: long ones first.
pytest: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Chromium for the tests of the page, from apt: as root, or where sudo asks for no password.
browser:
	@have() { command -v chromedriver && { command -v chromium || command -v chromium-browser || command -v google-chrome; }; }; \
	get() { command -v apt-get && apt update && apt install -y --no-install-recommends chromium chromium-driver; }; \
	apt() { $$as timeout 300 env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=60 "$$@"; }; \
	as=; test "$$(id -u)" = 0 || as='sudo -n'; \
	{ have || get || true; } >/dev/null 2>&1 </dev/null; \
	have >/dev/null 2>&1 || echo 'browser tests skipped: no chromium; apt-get install chromium chromium-driver'

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow
	$(BIN)/python -m benchmarks.run

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo site

$(VENV)/.demo: EXTRA := report
$(VENV)/.dev: EXTRA := dev
$(VENV)/.docs: EXTRA := docs
$(VENV)/.demo $(VENV)/.dev $(VENV)/.docs: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankfold needs Python 3.11 or later")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[$(EXTRA)]'
	touch $@
