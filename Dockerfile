# Three small images from one build: `--target server`, `exporter` or `dashboards`.
#
# Needs no BuildKit. Crates are compiled in a layer of their own, which stays as it is until a manifest or Cargo.lock
# changes. The toolchain is the build image's: rust-toolchain.toml stays outside (.dockerignore), so that nothing is
# downloaded but the crates in Cargo.lock.
#
#   RUST_IMAGE, BASE_IMAGE   what to build with and what to run on (the same release of the same distribution)
#   PREBUILT                 folder of the context with programs that were built outside; then nothing is compiled
ARG RUST_IMAGE=rust:1.95-slim-bookworm
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${RUST_IMAGE} AS manifests
WORKDIR /src
COPY . .
RUN scripts/image-manifests.sh /manifests

FROM ${RUST_IMAGE} AS build
ARG PREBUILT=
WORKDIR /src
COPY --from=manifests /manifests ./
RUN [ -n "$PREBUILT" ] || cargo build --profile dist --locked \
      --package server --package exporter --package stack --bins
COPY . .
RUN scripts/image-build.sh /out "$PREBUILT"

FROM ${BASE_IMAGE} AS base
# Folders that become named volumes belong to the user that writes to them.
RUN groupadd --system --gid 10001 sightline \
    && useradd --system --uid 10001 --gid 10001 --home-dir /nonexistent --no-create-home \
       --shell /usr/sbin/nologin sightline \
    && install -d -o 10001 -g 10001 /models /run/sightline
USER 10001:10001
STOPSIGNAL SIGTERM

# The generator, the console, `doctor` and `bench`: the one program that has everything.
FROM base AS dashboards
COPY --from=build /out/sightline /usr/local/bin/sightline
ENTRYPOINT ["sightline"]
CMD ["--help"]

FROM base AS exporter
COPY --from=build /out/sightline-exporter /usr/local/bin/sightline-exporter
ENV SIGHTLINE_EXPORTER_LISTEN=0.0.0.0:9840
EXPOSE 9840
HEALTHCHECK --interval=5s --timeout=4s --start-period=10s --retries=3 CMD ["bash", "-c", \
    "exec 3<>/dev/tcp/127.0.0.1/9840 && printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q ' 200 ' <&3"]
ENTRYPOINT ["sightline-exporter"]

FROM base AS server
COPY --from=build /out/sightline-server /usr/local/bin/sightline-server
COPY scripts/container-prepare.sh /usr/local/bin/sightline-prepare
# A container is reached from outside; everything else keeps the defaults of `sightline-server serve --help`.
ENV SIGHTLINE_HOST=0.0.0.0
EXPOSE 8000 8100 8998
HEALTHCHECK --interval=5s --timeout=4s --start-period=120s --retries=3 CMD ["sightline-server", "health"]
ENTRYPOINT ["sightline-server"]
CMD ["serve"]
