#!/usr/bin/env bash
# lm-eval over the completions API: multiple choice by log-probabilities of the prompt, and generation.
# Tasks and tokenizer are local files: nothing is downloaded.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
start_server --max-running-requests 4 --max-queued-requests 64
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 HF_HOME="$work/hf" TOKENIZERS_PARALLELISM=false

# The paths of the questions are relative to where lm-eval is started.
cp -r "$folder/tasks" "$work/tasks"
model=$("$python" -c 'import json, sys, urllib.request as u; print(json.load(u.urlopen(sys.argv[1] + "/v1/models"))["data"][0]["id"])' "$api")
args="model=$model,base_url=$api/v1/completions,tokenizer_backend=huggingface,tokenizer=$model_folder"
# Prompts go as token ids, which is lm-eval's default, and begin as the model expects.
args="$args,num_concurrent=4,max_retries=1,max_length=4096,add_bos_token=True"
(cd "$work/tasks" && "$venv/bin/lm_eval" --model local-completions --model_args "$args" \
  --tasks harbour_choice,harbour_generate --include_path . --log_samples --output_path "$work/out" >"$work/log" 2>&1) ||
  { tail -40 "$work/log"; exit 1; }

PYTHONPATH=tests/clients "$python" "$folder/check.py" "$api" "$work/out" "$model_folder"
report
