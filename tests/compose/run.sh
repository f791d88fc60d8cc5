#!/usr/bin/env bash
# The composed stack on a real Docker engine: builds the images, starts everything, asks the API, looks at what Prometheus
# and Alertmanager make of it, stops a worker and waits for the alert, tries what is wrong, and takes everything down.
#
# Needs root on Debian: an engine of its own is started, with its own folder and socket, and ended again. There may be no
# registry: the base image is made by debootstrap, the programs are those of target/debug (or of $SIGHTLINE_PREBUILT), and
# the images of others are stood in for by images of the same name: Prometheus and Alertmanager are Debian's own; Grafana's
# only answers its health route and lists what was mounted, and Python's has a shell and sha256sum, no Python.
set -euo pipefail
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
project=sightline-test
export DOCKER_HOST="unix://$work/docker.sock"
export COMPOSE_PROJECT_NAME=$project DOCKER_BUILDKIT=0 COMPOSE_DOCKER_CLI_BUILD=0
unset DOCKER_CONTEXT
engine=

finish() {
  local code=$?
  if [ -n "$engine" ]; then
    if [ "$code" != 0 ]; then
      echo "--- what the containers said last"
      (cd "$work/checkout" && docker-compose --profile load logs --no-color --tail 25) 2>&1 | tail -150 || true
    fi
    (cd "$work/checkout" && docker-compose --profile load down --volumes --timeout 5) >/dev/null 2>&1 || true
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  rm -rf "$work" || { umount "$work"/engine/overlay2/*/merged 2>/dev/null || true; rm -rf "$work"; }
}
trap finish EXIT

skip() { # what cannot be had here is a failure in CI
  echo "SKIP composed stack: $*"
  [ -z "${CI:-}" ] || exit 69
  exit 0
}

say() { echo "--- $*"; }

# --- the engine and what it needs

needs() {
  local packages=() command package
  while read -r command package; do
    command -v "$command" >/dev/null 2>&1 || packages+=("$package")
  done <<'NEEDS'
dockerd docker.io
docker docker.io
docker-compose docker-compose
debootstrap debootstrap
prometheus prometheus
prometheus-alertmanager prometheus-alertmanager
busybox busybox-static
NEEDS
  [ "${#packages[@]}" = 0 ] && return
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "needs ${packages[*]} and root"
  say "installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null ||
    skip "apt-get install ${packages[*]} failed"
}

start_engine() {
  [ "$(id -u)" = 0 ] || skip "needs root, to start an engine"
  dockerd --host "$DOCKER_HOST" --data-root "$work/engine" --exec-root "$work/exec" --pidfile "$work/engine.pid" \
    >"$work/engine.log" 2>&1 &
  engine=$!
  until docker version >/dev/null 2>&1; do
    kill -0 "$engine" 2>/dev/null || { tail -5 "$work/engine.log"; engine=; skip "no Docker engine can be started here"; }
    sleep 0.2
  done
}

base_image() {
  local suite mirror
  suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: '"$suite" | head -1)
  say "base image: Debian $suite, minimal"
  debootstrap --variant=minbase "$suite" "$work/root" ${mirror:+"$mirror"} >"$work/debootstrap.log" 2>&1 ||
    { tail -3 "$work/debootstrap.log"; skip "debootstrap failed"; }
  tar -C "$work/root" -c . | docker import - sightline-test/base:1 >/dev/null
  rm -rf "$work/root"
}

# Images of others, by the names and tags of docker-compose.yml, with their programs under the same paths.
stand_ins() {
  local context=$work/stand-ins name image
  mkdir -p "$context"
  cp tests/compose/stand-ins/* "$context"
  cp "$(command -v prometheus)" "$(command -v promtool)" "$(command -v amtool)" "$(command -v busybox)" "$context"
  cp "$(command -v prometheus-alertmanager)" "$context/alertmanager"
  # Debian's does not bring its templates along.
  cp /usr/share/prometheus/alertmanager/*.tmpl "$context"
  for name in prometheus alertmanager grafana python; do
    image=$(sed -nE "s|^ +image: (.*/)?($name:.*)|\1\2|p" docker-compose.yml)
    docker build --quiet --build-arg BASE_IMAGE=sightline-test/base:1 --tag "${image:?$name is not in the file}" \
      --file "$context/$name.Dockerfile" "$context" >/dev/null
  done
}

# --- the stack

free_ports() { # how many
  python3 - "$1" <<'PY'
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in sockets))
PY
}

# A checkout as a user has it, with the programs beside it and a model in a folder.
checkout() {
  local from=${SIGHTLINE_PREBUILT:-${CARGO_TARGET_DIR:-target}/debug} program
  mkdir -p "$work/checkout/prebuilt" "$work/models"
  git ls-files -z --cached --others --exclude-standard | grep -zv '^tests/fixtures/' |
    tar -c --null --files-from - | tar -x -C "$work/checkout"
  for program in sightline-server sightline-exporter sightline; do
    [ -x "$from/$program" ] || { echo "$from has no $program; cargo build --workspace --bins"; exit 66; }
    strip --strip-debug -o "$work/checkout/prebuilt/$program" "$from/$program"
  done
  cp -r tests/fixtures/models/tiny-llama "$work/models/tiny"
  cd "$work/checkout"
  export BASE_IMAGE=sightline-test/base:1 RUST_IMAGE=sightline-test/base:1 PREBUILT=prebuilt
  export MODEL_DIR="$work/models" MODEL=/models/tiny KV_POOL_BYTES=16MiB WORKER_MEMORY=1g LOAD_RATE=4
  read -r API_PORT PROMETHEUS_PORT ALERTMANAGER_PORT GRAFANA_PORT < <(free_ports 4)
  export API_PORT PROMETHEUS_PORT ALERTMANAGER_PORT GRAFANA_PORT
}

compose() { docker-compose --profile load "$@"; }

# Runs a check until it holds; what it printed last is the reason if it never does.
eventually() { # seconds, what, command...
  local deadline=$((SECONDS + $1)) what=$2 reason
  shift 2
  until reason=$("$@" 2>&1); do
    [ "$SECONDS" -lt "$deadline" ] || { echo "not so: $what: $reason"; exit 1; }
    sleep 0.5
  done
  say "$what${reason:+: $reason}"
}

check() { python3 tests/compose/check.py "$@"; }

bad_settings() {
  say "what is wrong ends with a message, and starts nothing"
  check refused "/models/none is not there" "MODEL=fake" -- env MODEL=/models/none docker-compose up --detach
  check refused "HIC008" "the largest that fits" -- env HICACHE_RATIO=100000 docker-compose up --detach
  check refused "$PROMETHEUS_PORT" -- env API_PORT="$PROMETHEUS_PORT" sh -c \
    'docker-compose up --detach prometheus && docker-compose up --detach'
  compose down --volumes --timeout 5 >/dev/null 2>&1
  # A model that is there but is not what it should be.
  echo broken >"$work/models/SmolLM2-135M-Instruct.Q4_1.gguf"
  check refused "python3" -- env MODEL=/models/SmolLM2-135M-Instruct.Q4_1.gguf docker-compose up --detach
  compose down --volumes --timeout 5 >/dev/null 2>&1
}

started=$SECONDS
needs
start_engine
base_image
stand_ins
checkout
say "images"
compose build --quiet 2>&1 | grep -v '^WARNING' || true
docker images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep -v '<none>' | sort
bad_settings

say "up"
compose up --detach --no-color >"$work/up.log" 2>&1 || { tail -20 "$work/up.log"; exit 1; }
eventually 150 "every service is healthy" check healthy "$project"
check chat "http://127.0.0.1:$API_PORT"
eventually 60 "every target is up, rules are loaded, Alertmanager is known" check prometheus "http://127.0.0.1:$PROMETHEUS_PORT"
check grafana "http://127.0.0.1:$GRAFANA_PORT"
eventually 90 "every board has its series" check boards "http://127.0.0.1:$PROMETHEUS_PORT"
check hardened "$project"

say "the decode worker stops"
compose stop decode >/dev/null 2>&1
eventually 300 "the alert fires and reaches Alertmanager" check alert TargetDown \
  "http://127.0.0.1:$PROMETHEUS_PORT" "http://127.0.0.1:$ALERTMANAGER_PORT"
compose start decode >/dev/null 2>&1
eventually 90 "the stack serves again" check chat "http://127.0.0.1:$API_PORT"

say "down"
compose stop >/dev/null 2>&1
check ended "$project"
compose down --volumes >/dev/null 2>&1
check nothing "$project"
say "the composed stack holds ($((SECONDS - started)) s)"
