# Recount. `make` alone lists what there is.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOFLAGS_BUILD := -trimpath -ldflags "-s -w -X recount/internal/app.Version=$(VERSION) -X main.version=$(VERSION)"
TOOLS := .tools

.DEFAULT_GOAL := help
.PHONY: help demo up build test race test-fast fuzz sql lint vuln bench cover fmt image clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build ## the main job: four services, a real erasure, the receipts, and a search for anything left
	@go run ./demo

up: build ## the four services with the sample loaded, left running on four ports from FIRST_PORT (8080)
	@go run ./demo -up -first-port $${FIRST_PORT:-8080}

build: ## bin/coordinator, bin/cell and bin/recount
	@CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o bin/ ./cmd/...

test: build ## everything that proves it: unit, property, over the wire, end to end; with the race detector
	@tools/firestore-emulator.sh
	go vet ./...
	go test -race -shuffle=on -timeout 20m ./...
	$(MAKE) sql

race: ## imports against erasures over HTTP for RACE (default 60s), the services built with the race detector
	RECOUNT_RACE=$${RACE:-60s} go test -race -count=1 -timeout 20m -run 'Hammer' ./internal/e2e ./internal/stores/sqlite

test-fast: ## the tests without the race detector and the long bodies
	go test -short -timeout 10m ./...

fuzz: ## each fuzz target for FUZZTIME (default 10s)
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg 2>/dev/null | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-10s} $$pkg; done; done

sql: ## every SQL statement and DDL file against the real GoogleSQL grammar (a side module; a slow first build)
	cd tools/googlesql && go test -count=1 ./...

$(TOOLS)/golangci-lint: tools/go.mod
	cd tools && go build -o ../$(TOOLS)/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint golang.org/x/tools/cmd/deadcode golang.org/x/vuln/cmd/govulncheck

lint: $(TOOLS)/golangci-lint ## golangci-lint and deadcode
	$(TOOLS)/golangci-lint run ./...
	@dead="$$($(TOOLS)/deadcode -test ./... )"; if [ -n "$$dead" ]; then echo "$$dead"; exit 1; fi

vuln: $(TOOLS)/golangci-lint ## govulncheck (asks the vulnerability database over the network)
	$(TOOLS)/govulncheck ./...

fmt: $(TOOLS)/golangci-lint ## format every Go file
	$(TOOLS)/golangci-lint fmt ./...

bench: build ## the speed table of the design, as a table and in bench/latest.json
	go run ./bench

cover: ## coverage of the whole, in coverage.out
	go test -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -1

image: ## a static, non-root image of each binary
	for binary in coordinator cell recount; do docker build --build-arg BINARY=$$binary --build-arg VERSION=$(VERSION) -t recount-$$binary:$(VERSION) .; done

clean: ## remove what was built
	rm -rf bin $(TOOLS) coverage.out
