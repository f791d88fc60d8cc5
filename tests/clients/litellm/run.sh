#!/usr/bin/env bash
# litellm, which many gateways and agents are built on: answers, streams, and its exception types.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
start_server --max-running-requests 4 --max-queued-requests 4
# Its table of prices is then the one in the package.
LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH=tests/clients "$python" "$folder/check.py" "$api" "$worker"
report
