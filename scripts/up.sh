#!/usr/bin/env bash
# Runs the built stack in the foreground: the model from MODEL, else the demo model, else the tiny
# fixture. Arguments are passed to `sightline up`.
set -euo pipefail
cd "$(dirname "$0")/.."

model=${MODEL:-}
if [ -z "$model" ] && ! model=$(scripts/fetch-model.sh); then
  model=tests/fixtures/models/tiny-llama
  echo "warning: serving $model instead, a test fixture with random weights: its answers are noise" >&2
fi

args=(up --model "$model" --topology "${TOPOLOGY:-unified}")
[ "${DEMO_LOAD:-1}" = 0 ] && args+=(--no-demo-load)

# On a terminal the stack gets the foreground to itself, so that Ctrl-C reaches it alone: it drains,
# exits 0, and so does make.
if [ -t 0 ]; then
  set -m
  target/release/sightline "${args[@]}" "$@"
else
  exec target/release/sightline "${args[@]}" "$@"
fi
