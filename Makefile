# The commands of this project. "make help" lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help build size cross release-snapshot image tools test test-computing test-engines test-programs long soak parts lint bench benchtest peers peertest fuzz generate schema ci clean

FUZZTIME  ?= 5s
BENCH     ?= .
SOAK      ?= 10m
SYSTEMS   := windows/amd64 darwin/arm64
TOOL      := go tool -modfile=tools/go.mod
BUF       := go tool -modfile=../../../tools/proto/go.mod buf

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 25

build: ## build the command as releases are: bin/lk
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.stamp=$$(git describe --tags --always --dirty 2>/dev/null || true)" -o bin/lk ./cmd/lk

# Something that calls reflect's MethodByName, as templates do, makes the linker keep all methods of
# all types, which is a third more.
size: ## check that lk, built as releases are, has at most 30 MB
	@CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o bin/lk-stripped ./cmd/lk
	@size=$$(wc -c < bin/lk-stripped); echo "lk: $$size bytes"; rm bin/lk-stripped; [ $$size -le 30000000 ]

cross: ## vet and build for Windows and macOS, where nothing is run
	@for system in $(SYSTEMS); do \
		echo "== $$system"; \
		export GOOS=$${system%/*} GOARCH=$${system#*/}; \
		go vet ./... && go build -o /dev/null ./cmd/lk || exit 1; \
	done

release-snapshot: ## build archives, deb, rpm and a Homebrew formula into dist; TARGETS=linux/amd64 for one system alone
	rm -rf dist
	cd tools/release && go run . -out ../../dist -targets '$(TARGETS)'

image: ## build the OCI image lockkeeper, by docker, podman or buildah
	@tools/image

# Some tests sit at a terminal, as a person does; some lose packets between hosts
# of their own; some have system calls fail; some start databases. On Debian and
# Ubuntu this installs what they need if it is missing; elsewhere it says what that is.
tools: ## install what tests need and is missing, by apt-get: tmux, vi, ip, strace, curl, python3, PostgreSQL, MariaDB, PgBouncer, Redis
	@tools/install

# Tests keep to temporary folders and loopback addresses, and leave no file behind outside the Go
# caches. Three streams run side by side. The first computes all the time, so it gives way to the
# others, which mostly wait: for real time, for disks, for databases and for processes. In those one
# package runs at a time, so that TTLs of a second are enough. docs/tests.md says what runs where.
QUICK     := go test -vet=off -timeout 12m
COMPUTING := table|internal/(model|story|mutants|tidy|readme)|engine/quorumlock/.*|engine/redlock/internal/(quorum|script)|semaphore(/.*)?
WAITING   := engine/(sqllock|sqlitelock|remote|redlock|quorumlock)|cmd/lk|internal/(testdb|neighbours|serve/server)

test: tools ## run all tests: 12 minutes on two cores
	@$(MAKE) --no-print-directory -j3 test-computing test-engines test-programs

test-computing:
	nice -n 5 $(QUICK) -p 1 $$(go list ./... | grep -E '/lockkeeper/($(COMPUTING))$$')
	nice -n 5 $(QUICK) -p 2 -race $$(go list ./... | grep -vE '/lockkeeper/($(COMPUTING)|$(WAITING))$$')

test-engines:
	$(QUICK) -p 1 -parallel 6 ./engine/sqllock ./engine/remote ./engine/sqlitelock ./engine/redlock

test-programs:
	$(QUICK) -p 1 -parallel 4 ./cmd/lk ./internal/testdb ./internal/neighbours ./engine/quorumlock
	$(QUICK) -p 1 -race ./internal/serve/server
	$(QUICK) -p 1 -race -run Stress ./engine/sqllock ./engine/remote ./engine/sqlitelock ./engine/redlock ./engine/quorumlock

long: ## run the long tests, or a part of them: PART=databases; see make parts
	@tools/long $(PART)

soak: tools ## load all engines side by side for SOAK (10m); none may grow. SOAK=1h; ENGINES=mem,redis picks some
	go test -vet=off -count=1 -timeout 0 -v -run '^TestSoak$$' ./internal/soak -soak $(SOAK) -engines '$(ENGINES)'

parts: ## list the parts of make long, with the minutes of each on two cores
	@tools/long -list

lint: ## gofmt, go vet, staticcheck (chosen in staticcheck.conf), go.mod
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	go mod tidy -diff

bench: ## run the benchmarks; BENCH=Name picks some
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

peers: ## measure lock servers and limits side by side (bench/README.md); ARGS='-workloads 128'
	cd bench && go run . -setup && go run . $(ARGS)

benchtest: ## lint bench and run the short form of its tests: every server of ours, nothing to install
	cd bench && go vet ./... && go mod tidy -diff && go test -short ./...

peertest: ## lint and test bench, with the servers of others
	cd bench && go vet ./... && go tool -modfile=../tools/go.mod staticcheck ./... && go mod tidy -diff
	cd bench && go run . -setup && LOCKKEEPER_BENCH_NEEDS_SERVERS=1 go test ./...

fuzz: ## fuzz every target for FUZZTIME (5s) each
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		echo "== $${file%/*} $${func#func }"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x "$${file%/*}"; \
	done

generate: ## write the generated parts of docs/engines/README.md and docs/performance.md, and the code of internal/serve/wire/lockkeeper.proto
	cd internal/serve/wire && $(BUF) lint && $(BUF) generate
	go test ./internal/readme -count=1 -run TestMatrix -write
	cd bench && go generate . >/dev/null

schema: ## check internal/serve/wire/lockkeeper.proto and the code generated from it
	cd internal/serve/wire && $(BUF) lint && $(BUF) generate && git diff --exit-code -- .

ci: ## lint, build, test, and as much of make long as fits into 18 minutes
	@.ci/run

clean: ## remove what "make build" and "make release-snapshot" made
	rm -rf bin dist
