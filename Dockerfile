# A static binary on an empty image: docker build --tag llmscen . && docker run --rm llmscen --version
FROM rust:1.95-alpine AS build
# SQLite, zstd and ring are C; the target of this image is musl, so the binary is static.
# hadolint ignore=DL3018
RUN apk add --no-cache ca-certificates gcc make musl-dev
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin llmscen \
    && target/release/llmscen extras /extras

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/llmscen /usr/bin/llmscen
COPY --from=build /extras/share /usr/share
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/llmscen/
# Run folders are written to /work: docker run --rm --user "$(id -u)" --volume "$PWD:/work" llmscen run chat.yaml
WORKDIR /work
USER 65532:65532
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
ENTRYPOINT ["/usr/bin/llmscen"]
