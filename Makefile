# make demo    explains three sentences with several methods, in the terminal and as demo.html
# make test    runs all tests; both set everything up on a fresh machine first
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch .venv/ready

demo: setup
	$(BIN)/tokenlight demo --output demo.html

test: setup
	$(BIN)/python -m pytest -n auto

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
