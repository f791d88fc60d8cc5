#!/bin/sh
# Builds the programs of the images into a folder, or takes them from where they were built already.
set -eu

out=${1:?usage: image-build.sh FOLDER [PREBUILT]}
prebuilt=${2:-}
programs="sightline-server sightline-exporter sightline"

if [ -z "$prebuilt" ]; then
  # The empty sources of the layer before are newer than these; cargo goes by time.
  find . -name '*.rs' -not -path './target/*' -exec touch {} +
  cargo build --profile dist --locked --package server --package exporter --package stack --bins
  prebuilt=target/dist
fi
for program in $programs; do
  [ -f "$prebuilt/$program" ] || { echo "$prebuilt has no $program" >&2; exit 66; }
  install -D -m 0755 "$prebuilt/$program" "$out/$program"
done
