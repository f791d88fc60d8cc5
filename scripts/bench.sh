#!/usr/bin/env bash
# Speed, as ratios measured in one run. Absolute figures depend on the machine; ratios travel.
# With arguments: only those parts (kernels, peers, metrics, router, exporter,
# dashboards, console).
# SMG_PYTHON: a Python that has the package smg==1.13.0, to measure the router beside it.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(cd "${CARGO_TARGET_DIR:-target}" 2>/dev/null && pwd || echo "$PWD/target")
parts=("$@")
[ "${#parts[@]}" -gt 0 ] || parts=(kernels peers metrics router exporter dashboards console)

# What a request costs that passes through, beside another router in front of the same workers.
router() {
  local python=${SMG_PYTHON:-python3} routers=()
  cargo build --quiet --release --package server --bin sightline-server
  routers+=("sightline=$target/release/sightline-server router --worker {one},{two} --policy round_robin --port {port} --probe-port 0")
  if "$python" -c 'import smg' 2>/dev/null; then
    routers+=("smg=$python -m smg.launch_router --host 127.0.0.1 --port {port} --worker-urls {one} {two} --policy round_robin --prometheus-host 127.0.0.1 --prometheus-port {metrics}")
  else
    echo "SKIP smg: $python has no package smg; pip install smg==1.13.0"
  fi
  cargo bench --quiet --package router --bench relay -- "${routers[@]}"
}

# What generating and checking dashboards costs, beside two generators in Python.
dashboards() {
  # Without what talks to servers: the same commands, and a fraction of the build.
  cargo build --quiet --release --package dashboards --no-default-features --features lint \
    --bin sightline-dashboards --example sixty_panels
  python3 scripts/bench_dashboards.py "$target/release/sightline-dashboards" "$target/release/examples/sixty_panels"
}

for part in "${parts[@]}"; do
  printf '\n==> %s\n' "$part"
  case "$part" in
    kernels) cargo bench --quiet --package kernels ;;
    peers) python3 scripts/bench_peers.py "$(scripts/fetch-model.sh)" ;;
    metrics) python3 scripts/bench_metrics.py "$(scripts/fetch-model.sh)" ;;
    router) router ;;
    console)
      cargo build --quiet --release --package stack
      python3 scripts/bench_console.py "$target/release/sightline" "$(scripts/fetch-model.sh)"
      ;;
    exporter) cargo bench --quiet --package exporter --bench scrape ;;
    dashboards) dashboards ;;
    *) echo "no such part: $part (there are: kernels, peers, metrics, router, exporter, dashboards, console)" >&2; exit 64 ;;
  esac
done
