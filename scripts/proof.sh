#!/usr/bin/env bash
# What is slower than `make test`, or needs more of the outside: long simulations, Prometheus' rule
# engine on many more rules, and the clients that people use, unchanged and at pinned versions.
# At most 30 minutes on two cores with everything to install; a second run installs nothing.
#
# A client that cannot be installed (no network, no node) prints SKIP and why; with CI set that is
# a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

step "toolchain" scripts/toolchain.sh
step "what the tests need" scripts/test-needs.sh
step "programs" cargo build --locked --workspace --bins
step "simulation, 10,000 seeds" \
  env SIGHTLINE_SIM_SEEDS=10000 cargo test --locked --package engine --lib sim_test::every_seed
step "simulation of KV transfers, 10,000 seeds" \
  env SIGHTLINE_SIM_SEEDS=10000 cargo test --locked --package transfer --lib sim_test::every_seed
step "simulation of clusters, 10,000 seeds" \
  env SIGHTLINE_CLUSTER_SEEDS=10000 cargo test --locked --package tests --test cluster every_seed
step "rules against Prometheus, 150 seeds and all scenarios" \
  env SIGHTLINE_RULES_SEEDS=150 cargo test --locked --package stack --lib rules::differential
step "dashboards against Grafana's types" tests/conformance/run.sh
export SIGHTLINE_TEST_PREBUILT=1
for client in nvml openai-python openai-npm litellm langchain lm-eval aiperf; do
  step "client: $client" "tests/clients/$client/run.sh"
done
for client in openai-python litellm; do
  step "client, prefill and decode apart: $client" "tests/clients/$client/run.sh" pd
done
step "composed stack on a Docker engine" tests/compose/run.sh
steps_done "make proof"
