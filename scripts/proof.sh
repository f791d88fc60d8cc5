#!/usr/bin/env bash
# What is slower than `make test`, or needs more of the outside. Nothing yet.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

steps_done "make proof"
