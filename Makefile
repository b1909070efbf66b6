# The commands of this project. "make help" lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build cross tools test lint bench fuzz generate ci clean

# The rules, and tests about them and about text: there is nothing in them to
# race, and they get further without the race detector's cost. STATES is how many
# states of the table are looked at, one by one; SEQUENCES how many random ones it
# is compared in with the model. canal is tested in both ways: without the race
# detector it goes through ten million keys.
PURE      := ./internal/... ./canal
STATES    ?= 5000000
SEQUENCES ?= 60000
FUZZTIME  ?= 5s
BENCH     ?= .
SYSTEMS   := windows/amd64 darwin/arm64 freebsd/amd64
TOOL      := go tool -modfile=tools/go.mod

help: ## list these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

build: ## build the command: bin/lk
	go build -trimpath -ldflags "-X main.stamp=$$(git describe --tags --always --dirty 2>/dev/null || true)" -o bin/lk ./cmd/lk

cross: ## vet and build for Windows, macOS and FreeBSD, where nothing is run
	@for system in $(SYSTEMS); do \
		echo "== $$system"; \
		export GOOS=$${system%/*} GOARCH=$${system#*/}; \
		go vet ./... && go build -o /dev/null ./cmd/lk || exit 1; \
	done

# Some tests sit at a terminal, as a person does. On Debian and Ubuntu this
# installs what they need if it is missing; elsewhere it says what that is.
tools: ## install tmux and vi for the tests, where they are missing (apt-get)
	@if [ "$$(uname)" != Linux ] || { command -v tmux && command -v vi; } >/dev/null; then exit 0; fi; \
	as_root=; [ "$$(id -u)" = 0 ] || as_root=sudo; \
	if ! { command -v apt-get && { [ -z "$$as_root" ] || command -v sudo; }; } >/dev/null; then \
		echo "the tests need tmux and vi: please install them (make does so by apt-get, as root or by sudo)" >&2; exit 1; \
	fi; \
	$$as_root apt-get update -q && $$as_root apt-get install -qy --no-install-recommends tmux vim-tiny

# Tests keep to temporary folders and loopback addresses, and leave no file
# behind outside the Go caches.
test: tools ## run all tests, with the race detector where goroutines meet
	go test -timeout 20m ./table -states $(STATES)
	go test -timeout 20m ./internal/model -sequences $(SEQUENCES)
	go test -timeout 9m $$(go list $(PURE) | grep -v /model$$)
	go test -timeout 9m -race $$(go list ./... | grep -vE "^$$(go list -m)/(table|internal)(/|$$)")

lint: ## gofmt, go vet, staticcheck (chosen in staticcheck.conf), go.mod
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	go mod tidy -diff

bench: ## run the benchmarks; BENCH=Name picks some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

fuzz: ## fuzz every target for FUZZTIME (5s) each
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		echo "== $${file%/*} $${func#func }"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$${file%/*}"; \
	done

generate: ## write the generated parts of README.md
	go test ./internal/readme -count=1 -run TestMatrix -write

ci: lint build cross test ## all that .ci/run checks

clean: ## remove what "make build" made
	rm -rf bin
