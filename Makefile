# Both targets do all the set-up: a virtual environment in .venv with pinned versions, and Oncurve in it.
PYTHON ?= python3

.PHONY: train test torture soak health-study lint
train: .venv/ready
	.venv/bin/oncurve train recipes/cat_and_dog.toml $(ARGS)

test: .venv/ready
	.venv/bin/python -m pytest $(ARGS)

torture: .venv/ready
	.venv/bin/python tools/torture.py --kills $(or $(KILLS),200) $(ARGS)

soak: .venv/ready
	.venv/bin/python tools/soak.py --answers $(or $(ANSWERS),20000) $(ARGS)

health-study: .venv/ready
	.venv/bin/python tools/health_study.py --runs $(or $(RUNS),40) --real runs/health $(ARGS)

lint: .venv/ready
	.venv/bin/ruff check . && .venv/bin/ruff format --check .

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
