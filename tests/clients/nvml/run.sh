#!/usr/bin/env bash
# NVIDIA's own Python binding of NVML: it loads the scripted library and reads what the script says,
# with NVIDIA's layouts of structures.
set -euo pipefail
source "$(dirname "$0")/../lib.sh"

python_client
cargo build --quiet --locked --package fake-nvml
cp "${CARGO_TARGET_DIR:-target}/debug/libfake_nvml.so" "$work/libnvidia-ml.so.1"
LD_LIBRARY_PATH="$work" "$python" "$folder/check.py" "$work"
report
