#!/usr/bin/env bash
# langchain-openai: invoke, stream with usage, batch, stop.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
start_server --max-running-requests 4 --max-queued-requests 16
PYTHONPATH=tests/clients "$python" "$folder/check.py" "$api"
report
