#!/usr/bin/env bash
# Names what is missing to build, one line each, with what to do about it.
set -euo pipefail

missing=0
need() { # command, what to do
  command -v "$1" >/dev/null 2>&1 && return
  echo "missing: $1 ($2)" >&2
  missing=1
}

need cargo "install Rust 1.95 or newer: https://rustup.rs"
need cc "install a C compiler: apt-get install gcc"
[ "$missing" = 0 ] || exit 69

have=$(rustc --version | sed -E 's/^rustc ([0-9]+)\.([0-9]+).*/\1 \2/')
read -r major minor <<<"$have"
if [ "$major" -lt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -lt 95 ]; }; then
  echo "rustc $major.$minor is too old: Rust 1.95 or newer is needed (rustup update)" >&2
  exit 69
fi
