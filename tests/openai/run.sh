#!/usr/bin/env bash
# The official `openai` Python package against a real server on the tiny fixture.
# Installs the package into target/, so that a second run needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=target/openai-venv
if ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check 'openai==3.57.0'; }; then
    echo "SKIP the openai package cannot be installed (needs python3 with venv and network)"
    [ -z "${CI:-}" ] && exit 0
    exit 69
  fi
fi

[ -n "${SIGHTLINE_TEST_PREBUILT:-}" ] || cargo build --quiet --package server --bin sightline-server
ready=$(mktemp)
target/debug/sightline-server serve --model tests/fixtures/models/tiny-llama --host 127.0.0.1 --port 0 \
  --probe-port 0 --max-running-requests 4 --max-queued-requests 8 --log-level warn >"$ready" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -f "$ready"' EXIT
exec 3< <(tail -n +1 --follow --pid="$server" "$ready" 2>/dev/null)
read -r line <&3 || { echo "the server ended before it was ready" >&2; exit 70; }
api=$("$venv/bin/python" -c 'import json, sys; print(json.loads(sys.argv[1])["api"])' "$line")

"$venv/bin/python" tests/openai/conformance.py "$api"
