# The serving binary on a small image. Needs no BuildKit: `docker build -t sightline-server .` with any builder.
#
# The toolchain is the image's own: rust-toolchain.toml stays outside (.dockerignore), so that nothing is downloaded
# but the crates in Cargo.lock.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --package server --bin sightline-server \
    && install -D -m 0755 target/dist/sightline-server /out/sightline-server

FROM debian:bookworm-slim
RUN groupadd --system --gid 10001 sightline \
    && useradd --system --uid 10001 --gid 10001 --home-dir /nonexistent --no-create-home \
       --shell /usr/sbin/nologin sightline \
    && mkdir /models
COPY --from=build /out/sightline-server /usr/local/bin/sightline-server
USER 10001:10001
# A container is reached from outside; everything else keeps the defaults of `sightline-server serve --help`.
ENV SIGHTLINE_HOST=0.0.0.0
EXPOSE 8000 8100
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=4s --start-period=120s --retries=3 CMD ["sightline-server", "health"]
ENTRYPOINT ["sightline-server"]
CMD ["serve"]
