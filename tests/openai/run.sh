#!/usr/bin/env bash
# The official `openai` Python package against the tiny fixture: as one process, or with `pd` as a
# prefill worker, a decode worker and a router.
# Installs the package into target/, so that a second run needs no network.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/serve.sh
source tests/serve.sh

venv=target/openai-venv
if ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check 'openai==3.57.0'; }; then
    echo "SKIP the openai package cannot be installed (needs python3 with venv and network)"
    [ -z "${CI:-}" ] && exit 0
    exit 69
  fi
fi

trap stop_serving EXIT
serve "${1:-unified}" --max-running-requests 4 --max-queued-requests 8
"$venv/bin/python" tests/openai/conformance.py "$api"
stop_serving
