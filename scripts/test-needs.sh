#!/usr/bin/env bash
# Installs what the tests drive from outside (Debian packages), or names what to install.
set -euo pipefail

packages=()
command -v promtool >/dev/null 2>&1 || packages+=(prometheus)
command -v amtool >/dev/null 2>&1 || packages+=(prometheus-alertmanager)
command -v chromium >/dev/null 2>&1 || packages+=(chromium)
command -v chromedriver >/dev/null 2>&1 || packages+=(chromium-driver)
[ "${#packages[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  for attempt in 1 2 3; do # another package manager may hold the lock for a moment
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null; then
      exit 0
    fi
    echo "apt-get failed (attempt $attempt of 3)" >&2
  done
fi
echo "some tests need: ${packages[*]}  (apt-get install ${packages[*]})" >&2
# Without them those tests print SKIP; in CI that is a failure.
[ -z "${CI:-}" ] || exit 69
