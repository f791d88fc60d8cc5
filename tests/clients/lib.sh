# Sourced by the run scripts of the clients: installs a client once, starts a server for it. Their
# argument is a topology, `unified` (also where there is none) or `pd`.
#
# Environments lie in ${XDG_CACHE_HOME:-~/.cache}/sightline/clients, one for each set of pinned
# versions, so that a second run installs nothing.

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
# shellcheck source=tests/serve.sh
source tests/serve.sh
topology=${1:-unified}
client=$(basename "$(dirname "$0")")
folder="tests/clients/$client"
clients_cache="${XDG_CACHE_HOME:-$HOME/.cache}/sightline/clients"
work=$(mktemp -d)
export PIP_DISABLE_PIP_VERSION_CHECK=1
client_started=$SECONDS

finish() {
  stop_serving 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

skip() { # a client that cannot be installed here is none in CI
  echo "SKIP $client: $*"
  [ -n "${CI:-}" ] && exit 69
  exit 0
}

# The folder for an environment of these inputs; complete when it holds the file `complete`.
environment() { # text that names the runtime
  local key
  key=$({ cat "$folder"/{requirements.txt,constraints.txt,package.json} 2>/dev/null; echo "$1"; } | sha256sum)
  echo "$clients_cache/$client-${key:0:12}"
}

installed() { # environment
  touch "$1/complete"
  echo "installed $client in $((SECONDS - client_started)) s, $(du -sm "$1" | cut -f1) MB"
}

# Sets $python to an interpreter that has the client; $venv to its environment.
python_client() {
  command -v python3 >/dev/null || skip "python3 is missing (apt-get install python3 python3-venv)"
  venv=$(environment "$(python3 --version) $(uname -m)")
  python="$venv/bin/python"
  [ ! -f "$venv/complete" ] || return 0
  echo "installing $(grep -v '^#' "$folder/requirements.txt" | tr '\n' ' ')(once)"
  rm -rf "$venv"
  mkdir -p "$clients_cache"
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet \
    --requirement "$folder/requirements.txt" --constraint "$folder/constraints.txt"; }; then
    rm -rf "$venv"
    skip "its packages cannot be installed (needs python3 with venv, and network)"
  fi
  installed "$venv"
}

# Sets $modules to a folder with node_modules that has the client.
node_client() {
  command -v npm >/dev/null || skip "npm is missing (apt-get install npm)"
  modules=$(environment "$(node --version) $(uname -m)")
  [ ! -f "$modules/complete" ] || return 0
  echo "installing the packages of $folder/package.json (once)"
  rm -rf "$modules"
  mkdir -p "$modules"
  cp "$folder/package.json" "$modules/"
  if ! npm install --silent --no-audit --no-fund --prefix "$modules"; then
    rm -rf "$modules"
    skip "its packages cannot be installed (needs network)"
  fi
  installed "$modules"
}

# Serves the tiny fixture with these further flags, in the topology that the run script was given
# (unified or pd, see tests/serve.sh); sets $api and $worker.
start_server() {
  model_folder="$PWD/tests/fixtures/models/tiny-llama"
  serve "$topology" "$@"
}

report() {
  stop_serving
  echo "$client, $topology: done in $((SECONDS - client_started)) s"
}
