# The commands of this project. "make help" lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build cross tools test test-rules test-disks test-race long lint bench peers peertest fuzz generate schema ci clean

# Packages without goroutines of ours, and tests about text: there is nothing in them to
# race, and they get further without the race detector's cost. STATES is how many states of
# the table are looked at, one by one; SEQUENCES how many random ones it is compared in with
# the model. semaphore is tested in both ways: without the race detector it goes through ten
# million keys.
PURE      := mutants readme story tidy
STATES    ?= 500000
SEQUENCES ?= 10000
FUZZTIME  ?= 5s
BENCH     ?= .
SYSTEMS   := windows/amd64 darwin/arm64
TOOL      := go tool -modfile=tools/go.mod
BUF       := go tool -modfile=../../../tools/proto/go.mod buf

help: ## list these targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

build: ## build the command: bin/lk
	go build -trimpath -ldflags "-X main.stamp=$$(git describe --tags --always --dirty 2>/dev/null || true)" -o bin/lk ./cmd/lk

cross: ## vet and build for Windows and macOS, where nothing is run
	@for system in $(SYSTEMS); do \
		echo "== $$system"; \
		export GOOS=$${system%/*} GOARCH=$${system#*/}; \
		go vet ./... && go build -o /dev/null ./cmd/lk || exit 1; \
	done

# Some tests sit at a terminal, as a person does; some lose packets between hosts
# of their own; some have system calls fail; some start databases. On Debian and
# Ubuntu this installs what they need if it is missing; elsewhere it says what that is.
tools: ## install what tests need and is missing, by apt-get: tmux, vi, ip, strace, curl, python3, PostgreSQL, MariaDB, PgBouncer
	@tools/install

# Tests keep to temporary folders and loopback addresses, and leave no file behind outside
# the Go caches. Three streams run side by side: the first computes, the others mostly wait for
# real time, for disks and for databases, so in these one package runs at a time.
# The first is done early, so it also has the engines that stand on others.
DISKS := disklock sqlitelock sqllock
WITHOUT = grep -vE "/(table|internal/(model|$(subst $() ,|,$(PURE)))|engine/(remote|$(subst $() ,|,$(DISKS)))|enginetest)$$"

test: tools ## run all tests, with the race detector where goroutines meet
	@$(MAKE) --no-print-directory -j3 test-rules test-disks test-race

test-rules:
	go test -timeout 20m ./table
	go test -timeout 20m ./internal/model
	go test -timeout 15m -p 1 ./semaphore $(PURE:%=./internal/%)
	go test -timeout 15m -p 1 -race ./enginetest ./engine/remote

test-disks:
	go test -timeout 15m -p 1 -race $(DISKS:%=./engine/%)

test-race:
	go test -timeout 15m -p 1 -race $$(go list ./... | $(WITHOUT))

long: ## run the tests with far more states, sequences and fuzzing than make test
	$(MAKE) test STATES=5000000 SEQUENCES=200000
	$(MAKE) fuzz FUZZTIME=2m

lint: ## gofmt, go vet, staticcheck (chosen in staticcheck.conf), go.mod
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	go mod tidy -diff

bench: ## run the benchmarks; BENCH=Name picks some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

peers: ## measure lock servers and limits side by side (bench/README.md); ARGS='-workloads 128'
	cd bench && go run . -setup && go run . $(ARGS)

peertest: ## lint and test bench, with the servers of others
	cd bench && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./... && go mod tidy -diff
	cd bench && go run . -setup && LOCKKEEPER_BENCH_NEEDS_SERVERS=1 go test ./...

fuzz: ## fuzz every target for FUZZTIME (5s) each
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		echo "== $${file%/*} $${func#func }"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$${file%/*}"; \
	done

generate: ## write the generated parts: of README.md, and the code of internal/serve/wire/lockkeeper.proto
	cd internal/serve/wire && $(BUF) lint && $(BUF) generate
	go test ./internal/readme -count=1 -run TestMatrix -write

schema: ## check internal/serve/wire/lockkeeper.proto and the code generated from it
	cd internal/serve/wire && $(BUF) lint && $(BUF) generate && git diff --exit-code -- .

ci: lint schema build cross test peertest ## all that .ci/run checks

clean: ## remove what "make build" made
	rm -rf bin
