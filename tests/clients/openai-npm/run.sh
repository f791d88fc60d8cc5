#!/usr/bin/env bash
# The official openai package for Node.js.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

node_client
start_server --max-running-requests 2 --max-queued-requests 2
# Node looks for packages beside the file that names them.
cp "$folder/check.mjs" "$modules/check.mjs"
node "$modules/check.mjs" "$api"
report
