#!/usr/bin/env bash
# Speed, as ratios measured in one run. Absolute figures depend on the machine; ratios travel.
# With arguments: only those parts (kernels, peers, metrics).
set -euo pipefail
cd "$(dirname "$0")/.."

parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(kernels peers metrics)
model=$(scripts/fetch-model.sh)

for part in "${parts[@]}"; do
  printf '\n==> %s\n' "$part"
  case "$part" in
    kernels) cargo bench --quiet --package kernels ;;
    peers) python3 scripts/bench_peers.py "$model" ;;
    metrics) python3 scripts/bench_metrics.py "$model" ;;
    *) echo "no such part: $part (there are: kernels, peers, metrics)" >&2; exit 64 ;;
  esac
done
