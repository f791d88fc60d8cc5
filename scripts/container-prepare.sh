#!/bin/sh
# Runs once before the workers of a composed stack: makes the secret of the KV links where there is none, and checks the
# flags of both workers against the model and this machine. What is wrong with them ends here, with exit code 78 and a
# message that says what would work; the workers are then not started, let alone restarted.
set -eu

secret=${SIGHTLINE_PD_SECRET_FILE:?is set in docker-compose.yml}
if [ ! -s "$secret" ]; then
  umask 077
  head -c 32 /dev/urandom | base64 >"$secret"
fi

case ${SIGHTLINE_MODEL:?MODEL in .env is empty; see .env.example} in
fake) ;;
*)
  if [ ! -e "$SIGHTLINE_MODEL" ]; then
    echo "MODEL=$SIGHTLINE_MODEL is not there. MODEL in .env is a path below /models, and MODEL_DIR the folder of this" \
      "machine that is mounted there; MODEL=fake needs no model. What is there now:" >&2
    find /models -maxdepth 2 \( -name '*.gguf' -o -name config.json \) >&2
    exit 78
  fi
  ;;
esac

echo "prefill worker:"
sightline-server plan --role prefill --transfer-host 0.0.0.0 --transfer-port 8998 \
  --advertise prefill:8000 --decode-peer decode:8000
echo "decode worker:"
sightline-server plan --role decode --advertise decode:8000 --prefill-peer prefill:8000@8998
