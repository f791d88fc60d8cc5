# Sourced: runs named steps, prints the time of each, stops at the first that fails.

step_started=$SECONDS

step() { # name, command...
  local name=$1 started=$SECONDS
  shift
  printf '\n==> %s\n' "$name"
  if ! "$@"; then
    printf '\n==> FAILED: %s (after %d s)\n    again: %s\n' "$name" $((SECONDS - started)) "$*" >&2
    exit 1
  fi
  printf '==> ok: %s (%d s)\n' "$name" $((SECONDS - started))
}

steps_done() { printf '\n==> %s: all steps passed in %d s\n' "$1" $((SECONDS - step_started)); }
