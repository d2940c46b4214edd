# make demo    explains three sentences with several methods, in the terminal and as demo.html
# make test    runs all tests; both set everything up on a fresh machine first
# make catalog  writes what the command line knows of methods, metrics, protocols and tasks without importing torch
# make test-oldest  runs all tests with the oldest versions that pyproject.toml allows; make test-newest with the newest
# make test-core  tries the package where nothing but its core is installed
# make release-check  builds wheel and sdist, looks at what they hold and say, and tries the wheel: before every release
# make notebooks  runs the notebooks and writes them with their results to build/notebooks, as .ipynb and HTML
# make docs    builds the documentation site into site/; a link that leads nowhere fails
# make families   tries every family of the installed transformers and writes docs/families.md: about twenty minutes
PYTHON ?= python3
BIN := .venv/bin

# How packages are installed. torch without CUDA, by uv: make test INSTALL="uv pip install --torch-backend cpu"
INSTALL ?= $(ENVIRONMENT)/bin/pip install
ENVIRONMENT = $(@D)
INTO = VIRTUAL_ENV=$(CURDIR)/$(ENVIRONMENT) $(INSTALL) --quiet --no-compile
# Another torch than the oldest or newest one, such as TORCH=2.13.0
TORCH ?=

.PHONY: setup browser demo test test-oldest test-newest test-core release-check
.PHONY: lint types public-types catalog notebooks docs families

setup: .venv/ready

# Python compiles what it imports, once, if it may keep it; pip would compile everything first.
export PYTHONDONTWRITEBYTECODE :=
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(INTO) --upgrade pip
	$(INTO) --constraint constraints.txt torch
	$(INTO) --constraint constraints.txt --editable ".[dev]"
	touch .venv/ready

# The page is tested in a real browser. Where there is no Debian, or no right to install, those tests are skipped.
browser:
	@command -v chromium > /dev/null || (apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends -y chromium > /dev/null) || \
		echo "Chromium is not here and cannot be installed: the tests of the page in a browser will be skipped"

demo: setup
	$(BIN)/tokenlight demo --output demo.html

test: setup browser
	$(BIN)/python -m pytest -n auto --dist loadgroup

# An old library may call what a newer one that it needs has deprecated: that is no fault of ours.
test-oldest: .venv-oldest/ready browser
	.venv-oldest/bin/python -m pytest -n auto --dist loadgroup -W default::DeprecationWarning -W default::FutureWarning

.venv-oldest/ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(@D)
	sed '$(if $(TORCH),s/^torch==.*/torch==$(TORCH)/)' constraints-oldest.txt > $(@D)/constraints.txt
	$(INTO) --upgrade pip
	$(INTO) --constraint $(@D)/constraints.txt torch
	$(INTO) --constraint $(@D)/constraints.txt --editable ".[dev]"
	touch $@

# Made anew each time: what is newest changes.
test-newest: ENVIRONMENT = .venv-newest
test-newest: browser
	$(PYTHON) -m venv --clear $(ENVIRONMENT)
	$(INTO) --upgrade pip
	$(INTO) torch$(if $(TORCH),==$(TORCH))
	$(INTO) --editable ".[dev]"
	$(ENVIRONMENT)/bin/python -m pytest -n auto --dist loadgroup

# Made anew, too: what an earlier try left there would not be missed. PACKAGE may be a wheel.
test-core: ENVIRONMENT = .venv-core
test-core: PACKAGE ?= .
test-core:
	$(PYTHON) -m venv --clear $(ENVIRONMENT)
	$(INTO) --upgrade pip
	$(INTO) --constraint constraints.txt torch
	$(INTO) --constraint constraints.txt $(PACKAGE)
	$(ENVIRONMENT)/bin/python tests/house/core_alone.py

release-check: setup
	rm -rf dist build/lib
	$(BIN)/python -m build --outdir dist > /dev/null
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.house.release_contents dist
	$(MAKE) test-core PACKAGE="$$(echo dist/*.whl)"

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types public-types

types: setup
	$(BIN)/pyright

public-types: setup
	$(BIN)/python -m tests.house.public_types

catalog: setup
	$(BIN)/python -m tokenlight.cli.write_catalog

notebooks: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,notebooks]"
	mkdir -p build/notebooks
	for notebook in notebooks/*.py; do \
		$(BIN)/jupytext --quiet --to ipynb --execute --output build/$${notebook%.py}.ipynb $$notebook || exit 1; \
	done
	$(BIN)/jupyter nbconvert --log-level WARN --to html --HTMLExporter.mathjax_url= --HTMLExporter.require_js_url= \
		build/notebooks/*.ipynb

# The warning is about versions of MkDocs and Material to come; the extra `docs` installs the present ones.
docs: export NO_MKDOCS_2_WARNING := 1
docs: setup
	$(BIN)/python -m mkdocs build --strict
	@echo "Read it with: $(BIN)/python -m http.server --directory site"

families: setup
	$(BIN)/tokenlight families --jobs 2 --output docs/families.md
