#!/usr/bin/env bash
# The official openai package for Python: every surface it has for this server.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
start_server --max-running-requests 4 --max-queued-requests 4
PYTHONPATH=tests/clients "$python" "$folder/check.py" "$api" "$worker"
report
