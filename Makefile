# The front door. `make up` runs it, `make test` proves it; everything else is a detail of those.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.PHONY: help up test proof bench fmt generate
.DEFAULT_GOAL := help

# make up MODEL=PATH   serves another checkpoint (a Hugging Face folder or a .gguf file)
# DEMO_LOAD=0          no demo load
# TOPOLOGY=pd          prefill and decode apart, behind a router
# ARGS="..."           further arguments of `sightline up`
MODEL ?=
DEMO_LOAD ?= 1
TOPOLOGY ?= unified
ARGS ?=

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

up: ## build, fetch the demo model once, serve it with live dashboards
	@scripts/toolchain.sh
	@cargo build --release --package stack --bin sightline
	@MODEL='$(MODEL)' DEMO_LOAD='$(DEMO_LOAD)' TOPOLOGY='$(TOPOLOGY)' scripts/up.sh $(ARGS)

test: ## everything that must hold before a commit
	@scripts/test.sh

proof: ## what is slower or needs more of the outside
	@scripts/proof.sh

bench: ## speed, as ratios measured in one run
	@scripts/bench.sh

fmt: ## format the code
	@cargo fmt --all

generate: ## regenerate dashboards, rules and provisioning
	@cargo run --quiet --package dashboards --bin sightline-dashboards -- generate
