# Needs Python 3.9 or newer (3.10 for the training examples) and pip's access to a package index; everything goes into .venv.

PYTHON  ?= python3
METHOD  ?= spawn
NODES   ?= $(or $(NODES_$(METHOD)),2)
SLOTS   ?= 2
EPOCHS  ?= 5
N       ?= 3
WORKERS ?= 6

VENV := .venv/bin

# With it, each of a test run's thousands of processes would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

# The example of each METHOD, and the name of its checkpoint if that is not digits.pt.
EXAMPLE_spawn      := examples/ddp_digits.py
EXAMPLE_torchrun   := examples/ddp_digits.py
EXAMPLE_ranktable  := examples/ddp_digits.py
EXAMPLE_pytorch    := examples/ddp_spawn_digits.py --procs_per_node $(SLOTS)
EXAMPLE_plain      := examples/ddp_spawn_digits.py --procs_per_node $(SLOTS)
EXAMPLE_accelerate := examples/accelerate_digits.py
EXAMPLE_deepspeed  := examples/deepspeed_digits.py
EXAMPLE_megatron   := examples/megatron_digits.py
EXAMPLE_mpirun     := examples/mpi_digits.py
EXAMPLE_msrun      := examples/msrun_digits.py
EXAMPLE_tensorflow := examples/tf_ps_digits.py
EXAMPLE_jax        := examples/jax_digits.py
EXAMPLE_ray        := examples/ray_digits.py

CHECKPOINT_accelerate := digits
CHECKPOINT_deepspeed  := digits
CHECKPOINT_mpirun     := digits.npz
CHECKPOINT_msrun      := digits.ckpt
CHECKPOINT_tensorflow := digits
CHECKPOINT_jax        := digits.npz
CHECKPOINT_ray        := digits.npz

# Tensor parallelism over the ranks of a node.
OPTIONS_megatron := --tp $(SLOTS)

# plain passes nothing about other nodes to the program. msrun starts a scheduler on every node that has node 0's address: with simulated
# nodes on one machine, on all of them.
NODES_plain := 1
NODES_msrun := 1

METHODS := $(patsubst EXAMPLE_%,%,$(filter EXAMPLE_%,$(.VARIABLES)))
# Methods that need more than PyTorch: the extra of the same name in pyproject.toml.
WITH_EXTRA := accelerate deepspeed jax mpirun msrun ray tensorflow

EXAMPLE    := $(or $(EXAMPLE_$(METHOD)),$(error METHOD=$(METHOD): make run knows $(sort $(METHODS))))
CHECKPOINT := $(or $(CHECKPOINT_$(METHOD)),digits.pt)
RUN        := runs/$(METHOD)

# Top of the repository: lint fails if git tracks anything else there. CONTRIBUTING.md explains the folders.
TREE  := .ci .github LICENSES adapters benchmarks catalogue charts containers docs entrypoints examples src templates testbench tests tools
FILES := .gitignore .pre-commit-config.yaml CHANGELOG.md CONTRIBUTING.md LICENSE Makefile README.md SECURITY.md pyproject.toml

empty :=
AT_THE_TOP := $(subst $(empty) $(empty),|,$(subst .,\.,$(TREE) $(FILES)))

.DEFAULT_GOAL := help
.NOTPARALLEL:  # one pip at a time
.PHONY: help venv environment run test test-adapters test-launchers tables bench test-charts lint docs dist golden corpus mutations generate hosts pythons test-pythons

help: ## list the targets
	@sed -n '/^[a-z].*## /{s/%/N/;s/:.*## /\t/;s/^/  make /p}' $(firstword $(MAKEFILE_LIST)) | expand -t 24
	@echo "Settings: METHOD=$(METHOD) (or another of $(sort $(METHODS))),"
	@echo "  NODES=$(NODES), SLOTS=$(SLOTS), EPOCHS=$(EPOCHS), N=$(N), WORKERS=$(WORKERS), PYTHON=$(PYTHON)"

venv: .venv/.installed-examples .venv/.installed-test .venv/.installed-rules .venv/.installed-lint
venv: ## install into .venv what tests and lint need, and run nothing

# All that `.ci/run` needs, by one pip: each call of pip takes eight seconds before it installs anything.
EXTRAS := examples test rules lint docs charts launchers
comma  := ,
space  := $(subst ,, )
environment: .venv/.installed-environment ## install into .venv what all targets need except bench; three minutes, 5 GB

.venv/.installed-environment: pyproject.toml | .venv/bin/pip
	@echo "installing ranklaunch[$(subst $(space),$(comma),$(EXTRAS))] into .venv"
	@$(VENV)/python -m pip install -q --no-compile -e '.[$(subst $(space),$(comma),$(EXTRAS))]'
	@touch $(patsubst %,.venv/.installed-%,$(filter-out launchers,$(EXTRAS)))
	@$(MAKE) --no-print-directory .venv/.installed-deepspeed .venv/.installed-horovod
	@touch .venv/.installed-launchers $@

run: .venv/.installed-examples $(patsubst %,.venv/.installed-%,$(filter $(METHOD),$(WITH_EXTRA)))
run: ## train on NODES nodes of SLOTS ranks, simulated on this machine; a second run resumes from the checkpoint
	PATH="$(CURDIR)/$(VENV):$$PATH" $(VENV)/ranklaunch simulate --nodes $(NODES) --slots $(SLOTS) --method $(METHOD) $(OPTIONS_$(METHOD)) \
	  --python $(VENV)/python --log-dir $(RUN)/logs -- $(EXAMPLE) --epochs $(EPOCHS) --checkpoint $(RUN)/$(CHECKPOINT)
	@echo "checkpoint: $(RUN)/$(CHECKPOINT)"

# Most tests mostly wait, so WORKERS of them run at once on two cores.
PYTEST = $(VENV)/pytest -n $(WORKERS) --dist worksteal

# Folders without such tests are not collected: each worker would read them.
test: .venv/.installed-examples .venv/.installed-test .venv/.installed-rules ## run the tests, a few minutes
	$(PYTEST) -m "not chaos and not launchers and not guide and not charts and not specs and not table" $(WITHOUT)
WITHOUT := $(patsubst %,--ignore=tests/%,charts cluster launchers test_guide.py test_benchmark_sections.py test_site.py)

test-adapters: .venv/.installed-test ## run the first tests for a new launcher or platform, half a minute
	$(PYTEST) -m "not processes and not guide" $(ADAPTERS_MEET)
ADAPTERS_MEET := tests/adapters/test_adapters.py tests/adapters/test_detection.py tests/adapters/test_rows.py tests/adapters/test_signs.py tests/render/test_render.py tests/test_docs.py tests/test_golden.py

test-launchers: WORKERS = 5
tables: WORKERS = 3
test-launchers tables: .venv/.installed-launchers .venv/.installed-horovod .venv/.installed-test
test-launchers: ## run the other tests: real launchers, and failures on several hosts (CONTRIBUTING.md has what they need)
	$(PYTEST) -m "(chaos or launchers or guide) and not table" $(WITH_LAUNCHERS)
WITH_LAUNCHERS := tests/cluster tests/containers tests/control tests/evidence tests/launchers tests/muster tests/placement \
  tests/processes tests/rankside tests/report tests/restarts tests/supervise tests/tune \
  tests/test_benchmark_sections.py tests/test_benchmarks.py tests/test_dist.py tests/test_guide.py tests/test_site.py tests/test_stranger.py

tables: ## run all cases of failures and launchers (CI runs one of each kind) and write docs/tables.md; an hour. K=mpirun: a part
	@mkdir -p build
	@$(VENV)/python tools/tables.py --cases >build/tables.txt
	@rm -f build/hangs.jsonl
	RANKLAUNCH_HANG_TABLE=$(CURDIR)/build/hangs.jsonl $(PYTEST) @build/tables.txt $(if $(K),-k "$(K)") -o junit_family=xunit1 --junitxml=build/tables.xml; \
	ended=$$?; $(VENV)/python tools/tables.py build/tables.xml; $(VENV)/python tools/scripts_table.py build/tables.xml; $(VENV)/python tools/hang_table.py build/hangs.jsonl; exit $$ended

bench: .venv/.installed-launchers .venv/.installed-horovod .venv/.installed-bench
bench: ## measure against other launchers, an hour. QUICK=1: small, once. ONLY=start,failure: some sections
	$(VENV)/python -m benchmarks.bench $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY)) $(if $(PEERS),--peers $(PEERS))

test-charts: .venv/.installed-charts .venv/.installed-test ## render the Helm charts and specifications, and validate the results
	@$(VENV)/python tools/crds.py --hint
	$(PYTEST) -m "charts or specs" tests/charts tests/specs

lint: .venv/.installed-lint .venv/.installed-test ## check style and types of Python, shell scripts, and GitHub's workflows
	$(VENV)/ruff check
	$(VENV)/ruff format --check
	$(VENV)/mypy
	shellcheck --exclude=SC1091 .ci/run $(shell find . -path './.?*' -prune -o -name '*.sh' -print)
	$(VENV)/actionlint .github/workflows/*.yml
	@[ -x $(VENV)/zizmor ] || { echo "lint: zizmor needs a .venv of Python 3.11 or newer, so workflows were not checked; remove .venv, then make lint PYTHON=python3.11" >&2; exit 1; }
	$(VENV)/zizmor --offline --no-progress .github
	@! git ls-files | grep -Ev '^($(AT_THE_TOP))(/|$$)' || { echo "lint: the entries above are at the top of the repository; remove them, or add them to TREE or FILES in the Makefile" >&2; exit 1; }

dist: .venv/.installed-test ## build wheel and source distribution into dist/, compare two builds, and install them by pip, pipx and uv; TAG=v0.2.0: as a release
	$(VENV)/python tools/dist.py $${TAG:+--tag "$$TAG"}

golden: .venv/.installed-test ## rewrite the golden files; read their diff before you commit it
	$(VENV)/pytest --update-golden tests/test_golden.py tests/specs/test_spec_golden.py

corpus: .venv/.installed-test ## print how often the known errors are right on the outputs in tests/corpus
	$(VENV)/python tools/corpus.py

mutations: .venv/.installed-test ## break launchers, platforms and templates line by line in a copy, and check that a test fails
	$(VENV)/python tools/mutations.py

generate: .venv/.installed-test .venv/.installed-rules .venv/.installed-charts
generate: ## rewrite generated files: pages, schemas, the charts' values, examples for platforms, patterns of secrets, known errors
	$(VENV)/python tools/known_errors.py
	$(VENV)/python tools/starters.py
	$(VENV)/python tools/platforms.py
	$(VENV)/python docs/make_reference.py
	$(VENV)/python tools/pod_fields.py
	$(VENV)/python tools/chart_values.py
	$(VENV)/python tools/render_examples.py
	$(VENV)/python tools/secret_patterns.py
	$(VENV)/python tools/commands.py
	$(VENV)/python tools/tables.py
	$(VENV)/python tools/schemas.py

hosts: .venv/.installed-test $(patsubst %,.venv/.installed-%,$(filter msrun,$(METHOD)))
hosts: ## start N hosts on this machine, show how to enter them and a job over all (METHOD=spawn or msrun); needs root and iproute2
	@$(VENV)/python -m testbench.hosts $(N) $(METHOD)

.venv/bin/pip:
	@$(call make-venv,$(PYTHON),.venv)

.venv/.installed-%: pyproject.toml | .venv/bin/pip
	@echo "installing ranklaunch[$*] into .venv (a minute, or four and 5 GB with all launchers)"
	@$(VENV)/python -m pip install -q --no-compile -e '.[$*]'
	@touch $@

# In no extra: DeepSpeed must see the installed PyTorch, and Horovod must be built for it.
DEEPSPEED := deepspeed==0.19.8

.venv/.installed-deepspeed: Makefile .venv/.installed-examples
	@echo "installing $(DEEPSPEED) into .venv"
	@$(VENV)/python -m pip install -q --no-compile "setuptools<81" wheel
	@$(VENV)/python -m pip install -q --no-compile --no-build-isolation $(DEEPSPEED)
	@touch $@

.venv/.installed-horovod: tools/horovod_wheel.sh .venv/.installed-examples
	@wheel=$$(tools/horovod_wheel.sh $(VENV)/python) && $(VENV)/python -m pip install -q --no-compile "$$wheel"
	@touch $@

.venv/.installed-launchers: .venv/.installed-examples .venv/.installed-deepspeed

# $(call make-venv,PYTHON,FOLDER). Debian and Ubuntu have venv in a separate package: root (mostly in a container) installs it, other users
# get the command. Before 23.3, pip takes three times as long to choose versions; before 21.3, it cannot install an editable project without
# setup.py.
define make-venv
set -e; if ! $(1) -c 'import ensurepip, venv' 2>/dev/null; then \
  package=$$($(1) -c 'import sys; print("python3.%d-venv" % sys.version_info[1])'); \
  if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
    echo "$(1) cannot make a virtual environment; on Debian and Ubuntu: sudo apt-get install $$package" >&2; exit 1; fi; \
  apt-get update -q; apt-get install -y -q "$$package"; fi; \
$(1) -m venv $(2); $(2)/bin/python -m pip install -q 'pip>=23.3'
endef

# Other Pythons of this machine, each with its .venv-3.N. They have no PyTorch, so no example is trained.
MINORS := 9 10 11 12 13 14
SITE := build/site
docs: .venv/.installed-docs ## build the site of the documentation in build/site, and check its links
	@rm -rf build/site
	$(VENV)/sphinx-build --quiet --fail-on-warning --keep-going --nitpicky --fresh-env --conf-dir docs . $(SITE)
	$(VENV)/python tools/check_site.py $(SITE)

# A name on PATH may be a shim of an inactive version: only a Python that runs counts.
find-python = $(firstword $(foreach python,python3.$(1) $(wildcard $(HOME)/.pyenv/versions/3.$(1).*/bin/python3.$(1)),\
  $(shell $(python) -c 'import sys; print(sys.executable)' 2>/dev/null)))
OWN_MINOR = $(shell $(PYTHON) -c 'import sys; print(sys.version_info[1])')
OTHERS = $(foreach minor,$(filter-out $(OWN_MINOR),$(MINORS)),$(if $(call find-python,$(minor)),3.$(minor)))

pythons: ## list the other Pythons of this machine
	@echo $(OTHERS)

test-pythons: ## run the tests on each of them
	@set -e; for version in $(OTHERS); do $(MAKE) --no-print-directory test-$$version; done

# Another Python may lack a feature or behave differently; both show wherever a line runs. So every line runs there, but not with many
# values. --other-python (tests/conftest.py) skips tests marked one_python, and all cases but the first of each test that starts processes.
# Whole files are skipped too: tests of texts or of code for one Python only (pages, workflows, Dockerfiles, sources, the test bench,
# benchmarks), of signals in shells, and tests that try hundreds of values on code that another test covers.
ON_ONE_PYTHON := --other-python $(patsubst %,--ignore=tests/%,cluster containers test_architecture.py test_benchmarks.py test_conftest.py \
  test_dist.py test_docs.py test_workflows.py supervise/test_shells.py \
  test_any_environment.py catalogue/test_corpus.py ranktable/test_ranktable_properties.py muster/test_any_order.py specs/test_spec_fuzz.py)

.PRECIOUS: .venv-3.%/.installed
test-3.%: .venv-3.%/.installed ## run the tests on one of them
	.venv-3.$*/bin/pytest -n $(WORKERS) --dist worksteal $(WITHOUT) $(ON_ONE_PYTHON) \
	  -m "not training and not chaos and not launchers and not guide and not charts and not specs and not table"

.venv-3.%/.installed: pyproject.toml
	@[ -n "$(call find-python,$*)" ] || { echo "no python3.$* on PATH or in pyenv: install it" >&2; exit 1; }
	@[ -x .venv-3.$*/bin/pip ] || { $(call make-venv,$(call find-python,$*),.venv-3.$*); }
	@echo "installing ranklaunch[test,rules] into .venv-3.$*"
	@.venv-3.$*/bin/python -m pip install -q --no-compile -e '.[test,rules]'
	@touch $@
