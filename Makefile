# make demo    explains three sentences with several methods, in the terminal and as demo.html
# make test    runs all tests; both set everything up on a fresh machine first
# make catalogue  writes what the command line knows of methods, metrics, protocols and tasks without importing torch
# make notebooks  runs the notebooks and writes them with their results to build/notebooks, as .ipynb and HTML
# make families   tries every family of the installed transformers and writes docs/families.md: about twenty minutes
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup browser demo test lint types public-types catalogue notebooks families

setup: .venv/ready

# Python compiles what it imports, once, if it may keep it; pip would compile everything first.
export PYTHONDONTWRITEBYTECODE :=
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
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

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 types public-types

types: setup
	$(BIN)/pyright

public-types: setup
	$(BIN)/python -m tests.house.public_types

catalogue: setup
	$(BIN)/python -m tokenlight.cli.write_catalogue

notebooks: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,notebooks]"
	mkdir -p build/notebooks
	for notebook in notebooks/*.py; do \
		$(BIN)/jupytext --quiet --to ipynb --execute --output build/$${notebook%.py}.ipynb $$notebook || exit 1; \
	done
	$(BIN)/jupyter nbconvert --log-level WARN --to html --HTMLExporter.mathjax_url= --HTMLExporter.require_js_url= \
		build/notebooks/*.ipynb

families: setup
	$(BIN)/tokenlight families --jobs 2 --output docs/families.md
