# One static, non-root image for each binary: docker build --build-arg BINARY=coordinator|cell|recount .
FROM golang:1.26-bookworm AS build
ARG BINARY
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN test -n "$BINARY" && CGO_ENABLED=0 go build -trimpath \
      -ldflags "-s -w -X recount/internal/app.Version=$VERSION -X main.version=$VERSION" -o /out/service ./cmd/$BINARY && mkdir /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /usr/local/go/lib/time/zoneinfo.zip
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build /out/service /service
ENV DATA_DIR=/data
USER 65532:65532
ENTRYPOINT ["/service"]
