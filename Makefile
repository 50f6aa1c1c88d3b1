# Every target sets itself up in a fresh clone: a virtual environment with the packages of
# requirements/, which are checked by their hashes. See CONTRIBUTING.md.
PYTHON ?= python3
VENV := .venv
BIN = $(VENV)/bin
LIST := dev
RELEASE := build/release
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE :=  # many processes start: compile each module once, at its first import

.PHONY: demo test test-lowest pytest browser lint bench docs look publish lock release clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	$(BIN)/rankfold demo --out demo

test: $(VENV)/.dev browser
	$(MAKE) --jobs 2 pytest lint

# tests/conftest.py orders the files: long ones first.
pytest: $(VENV)/.$(LIST)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The suite with the lowest versions that pyproject.toml declares, torch aside. They warn of what
# later versions changed.
test-lowest:
	PYTEST_ADDOPTS='-W default::DeprecationWarning' $(MAKE) VENV=.venv-lowest LIST=lowest pytest

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

# The site, in site/: every figure and picture anew, links checked, every code block executed.
docs: $(VENV)/.docs
	$(BIN)/python -m benchmarks.figures
	OMP_NUM_THREADS=1 $(BIN)/python docs/pictures.py
	OMP_NUM_THREADS=1 $(BIN)/python docs/diagnosis_pictures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	OMP_NUM_THREADS=1 $(BIN)/python docs/blocks.py

# What a reader of the built site would stumble over, in Chromium; pictures of some pages in site/.
look: $(VENV)/.docs browser
	$(BIN)/python docs/look.py site pictures

# The site of this version beside those of others, in public/: ready for a web server.
publish: docs
	$(BIN)/python docs/versions.py site public

# Choose versions again, for every platform and Python; those in requirements/ are kept if they fit.
COMPILE = $(RELEASE)/bin/uv pip compile --quiet --python-version 3.11 --no-header
LOCK = $(COMPILE) --generate-hashes --no-annotate --output-file requirements/$(1).txt
OURS = $(LOCK) pyproject.toml --constraint requirements/torch.txt --no-emit-package torch --no-emit-package rankfold
lock: $(RELEASE)/.release
	$(call OURS,demo) --universal --extra report
	$(call OURS,dev) --universal --extra dev
	$(call OURS,docs) --universal --extra docs --constraint requirements/dev.txt
	$(call OURS,all) --universal --extra all
	$(call OURS,serve) --universal --extra serve --extra text --constraint requirements/dev.txt
	$(COMPILE) pyproject.toml --extra all --resolution lowest-direct --no-deps --no-emit-package torch \
	  | $(call OURS,lowest) --extra all --extra dev --constraint /dev/stdin
	$(call LOCK,release) --universal --group release

# dist/: a wheel, the sources, and the packages of rankfold[all] as an SBOM and as a list of licences.
release: $(RELEASE)/.release
	rm -rf dist && mkdir dist
	$(RELEASE)/bin/python -m build --outdir dist
	$(RELEASE)/bin/twine check --strict dist/*
	$(MAKE) VENV=build/all build/all/.all
	$(RELEASE)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library \
	  --output-format JSON --output-file dist/rankfold.cdx.json build/all/bin/python
	$(RELEASE)/bin/pip-licenses --python build/all/bin/python --order license --format markdown \
	  --with-urls --ignore-packages rankfold --output-file dist/LICENSES.md

clean:
	rm -rf $(VENV) .venv-lowest build demo dist site

$(RELEASE)/.release: requirements/release.txt
	test -d $(RELEASE) || $(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --require-hashes --no-deps --requirement $<
	touch $@

$(VENV)/.%: requirements/%.txt requirements/torch.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankfold needs Python 3.11 or later")'
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --no-deps --requirement $<
	$(BIN)/pip install --quiet --no-compile --requirement requirements/torch.txt
	$(BIN)/pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
	touch $@
