# Sourced: serves the tiny fixture to a script, as one process (`unified`) or as a prefill worker, a
# decode worker and a router (`pd`), on free ports of loopback.

servers=()

# Starts one process with these arguments; sets $ready to the line that says that it is ready.
start_process() { # subcommand, flags...
  local output=${serve_work:?}/ready-${#servers[@]}
  "${CARGO_TARGET_DIR:-target}/debug/sightline-server" "$@" --host 127.0.0.1 --port 0 --probe-port 0 \
    --log-level warn >"$output" &
  servers+=($!)
  # Held open until the script ends: tail follows the process, and nobody waits for it.
  exec {ready_fd}< <(tail -n +1 --follow --pid="$!" "$output" 2>/dev/null)
  read -r ready <&"$ready_fd" || { echo "sightline-server $1 ended before it was ready" >&2; exit 70; }
}

address() { sed -E "s|.*\"$1\":\"(http://)?([^\"]+)\".*|\2|" <<<"$ready"; }

# Serves with these flags for each worker. Sets $api, whom clients ask, and $worker, who answers:
# base URLs of the same process where it is one.
serve() { # unified or pd, flags...
  local topology=$1 model="$PWD/tests/fixtures/models/tiny-llama" prefill decode tries
  shift
  serve_work=$(mktemp -d)
  [ -n "${SIGHTLINE_TEST_PREBUILT:-}" ] || cargo build --quiet --package server --bin sightline-server
  case $topology in
    unified)
      start_process serve --model "$model" "$@"
      worker="http://$(address api)"
      api=$worker
      ;;
    pd)
      start_process serve --model "$model" --role prefill --transfer-port 0 "$@"
      prefill=$(address api)
      local link
      link=$(address transfer)
      start_process serve --model "$model" --role decode --prefill-peer "$prefill@${link##*:}" "$@"
      decode=$(address api)
      start_process router --prefill "$prefill" --decode "$decode" --poll-interval 100ms
      api="http://$(address api)" worker="http://$decode"
      for tries in {1..600}; do
        [ "$tries" -lt 600 ] || { echo "the pair is not ready" >&2; exit 70; }
        "${CARGO_TARGET_DIR:-target}/debug/sightline-server" health --address "$(address probes)" \
          >/dev/null 2>&1 && break
        sleep 0.1
      done
      ;;
    *)
      echo "$topology: give unified or pd" >&2
      exit 64
      ;;
  esac
}

# Ends what was started, the last one first, and fails where one of them does not end in good order.
stop_serving() {
  local at status=0
  for ((at = ${#servers[@]} - 1; at >= 0; at--)); do
    kill "${servers[at]}" 2>/dev/null || true
    wait "${servers[at]}" || status=$?
  done
  rm -rf "${serve_work:-}"
  servers=()
  return "$status"
}
