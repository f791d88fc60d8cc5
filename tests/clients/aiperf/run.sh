#!/usr/bin/env bash
# aiperf: a load of streamed chats whose lengths it counts itself, and the server's metrics beside them.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
start_server --max-running-requests 4 --max-queued-requests 64
# With HF_HUB_OFFLINE set, a local path would be taken for the name of a repository.
unset HF_HUB_OFFLINE
export HF_HOME="$work/hf"
model=$("$python" -c 'import json, sys, urllib.request as u; print(json.load(u.urlopen(sys.argv[1] + "/v1/models"))["data"][0]["id"])' "$api")
(cd "$work" && "$venv/bin/aiperf" profile --model "$model" --url "$api" --endpoint-type chat --streaming \
  --tokenizer "$model_folder" --concurrency 3 --request-count 24 --synthetic-input-tokens-mean 40 \
  --synthetic-input-tokens-stddev 0 --output-tokens-mean 8 --output-tokens-stddev 0 \
  --extra-inputs ignore_eos:true --extra-inputs temperature:0 --random-seed 1 \
  --artifact-dir "$work/out" --ui none >"$work/log" 2>&1) || { tail -60 "$work/log"; exit 1; }

PYTHONPATH=tests/clients "$python" "$folder/check.py" "$api" "$work/out"
report
