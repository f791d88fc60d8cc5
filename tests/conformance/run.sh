#!/usr/bin/env bash
# Every generated dashboard, of all targets and in all formats, against schemas that are derived here
# and now from the types of Grafana's own npm package. Installs that once, at pinned versions.
#
# Where the packages cannot be had (no network, no node) it prints SKIP and why; with CI set that is
# a failure. Checked are the files that the program writes, not those of the checkout.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=tests/conformance
started=$SECONDS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

skip() {
  echo "SKIP conformance: $*"
  [ -z "${CI:-}" ] || exit 69
  exit 0
}

command -v npm >/dev/null || skip "npm is missing (apt-get install npm)"
key=$({ cat "$folder"/package.json "$folder"/package-lock.json; node --version; uname -m; } | sha256sum)
modules="${XDG_CACHE_HOME:-$HOME/.cache}/sightline/clients/conformance-${key:0:12}"
if [ ! -f "$modules/complete" ]; then
  echo "installing the packages of $folder/package.json (once)"
  rm -rf "$modules"
  mkdir -p "$modules"
  cp "$folder"/package.json "$folder"/package-lock.json "$modules/"
  if ! npm ci --silent --no-audit --no-fund --ignore-scripts --prefix "$modules"; then
    rm -rf "$modules"
    skip "its packages cannot be installed (needs network)"
  fi
  touch "$modules/complete"
  echo "installed in $((SECONDS - started)) s, $(du -sm "$modules" | cut -f1) MB"
fi

cargo build --quiet --locked --package dashboards --bin sightline-dashboards
program="${CARGO_TARGET_DIR:-target}/debug/sightline-dashboards"
"$program" generate --out "$work/bundle" --flavor all >/dev/null
"$program" lint --format sarif >"$work/lint.sarif"
# Node looks for packages beside the file that names them.
cp "$folder/check.mjs" "$modules/check.mjs"
node "$modules/check.mjs" "$work/bundle" "$work/lint.sarif"
echo "conformance: done in $((SECONDS - started)) s"
