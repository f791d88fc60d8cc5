#!/usr/bin/env bash
# Everything that must hold before a commit. At most 35 minutes cold on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

demo_model() { # its tests print SKIP where it is not to be had; in CI that is a failure
  SIGHTLINE_TEST_MODEL=$(scripts/fetch-model.sh) && export SIGHTLINE_TEST_MODEL || [ -z "${CI:-}" ]
}

compose() {
  if ! command -v docker-compose >/dev/null 2>&1; then
    echo "SKIP docker-compose is not installed"
    return
  fi
  docker-compose --file docker-compose.yml config --quiet
}

step "toolchain" scripts/toolchain.sh
step "what the tests need" scripts/test-needs.sh
step "demo model" demo_model
step "format" cargo fmt --all --check
step "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
# The programs that tests start are built by the same command.
export SIGHTLINE_TEST_PREBUILT=1
step "tests and doc tests" cargo test --workspace --locked
step "pages over S3" cargo test --package kv-store --features s3 --locked
step "generated files" target/debug/sightline-dashboards check
step "compose file" compose
step "openai client" tests/openai/run.sh
step "openai client, prefill and decode apart" tests/openai/run.sh pd
steps_done "make test"
