#!/bin/sh
# Copies the workspace's manifests to a folder, each with empty sources: what compiles to the crates of Cargo.lock and
# nothing else. An image layer made from it stays valid while only sources change.
set -eu

to=${1:?usage: image-manifests.sh FOLDER}
mkdir -p "$to"
cp Cargo.toml Cargo.lock "$to"

find . -name target -prune -o -name Cargo.toml -print | while read -r manifest; do
  from=$(dirname "$manifest")
  [ "$from" != . ] || continue
  mkdir -p "$to/$from/src"
  cp "$manifest" "$to/$from/Cargo.toml"
  : >"$to/$from/src/lib.rs"
  # Whatever cargo takes for a program of its own.
  for source in build.rs src/main.rs benches/*.rs benches/*/main.rs tests/*.rs tests/*/main.rs; do
    for found in "$from"/$source; do
      [ -f "$found" ] || continue
      mkdir -p "$(dirname "$to/$found")"
      echo 'fn main() {}' >"$to/$found"
    done
  done
done
