# Everything a developer runs. `make` and `make help` explain the targets.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help build lab man demo test test-long test-race exercises exercises-long stress test-browser \
	pictures sim sim-mutants torture lint vuln generate verify bench fuzz ci clean

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
FUZZTIME    ?= 30s
BENCHFLAGS  ?=
FS          ?= ext4
CRASH       ?=
SEED        ?= 1
CYCLES      ?= 1000

help: ## explain every target
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

man: ## write the manual pages of all commands into bin/man
	$(GO) run ./cmd/sagenbaum man bin/man

build: ## build bin/sagenbaum, and the offline verifier bin/sagenbaum-verify
	$(GO) build -trimpath -o bin/sagenbaum ./cmd/sagenbaum
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/sagenbaum-verify ./cmd/sagenbaum-verify

lab: ## build bin/sagenbaum-lab, for those who develop Sagenbaum: benchmarks and simulation
	$(GO) build -trimpath -o bin/sagenbaum-lab ./cmd/sagenbaum-lab

demo: ## run the demo: an agent's real git work, undone three ways (< 60 s)
	$(GO) run ./cmd/sagenbaum demo

test: ## run every test, as the README says
	$(GO) test ./...

test-long: ## run every test with all random cases (docs/guide/testing.md)
	SAGENBAUM_LONG=1 $(GO) test -count=1 -timeout 30m ./...

test-race: ## run the tests of what has goroutines under the race detector (3 min)
	.ci/race

exercises: ## run a sample of the exercises: clusters, kills, disks, browser, upgrades (8 min)
	.ci/exercises

exercises-long: ## run all cases of the exercises (an hour)
	SAGENBAUM_LONG=1 .ci/exercises

stress: ## run tests and exercises TESTS (10) and EXERCISES (5) times, half of them beside load
	.ci/stress

test-browser: ## drive the console in a real Chromium (docs/guide/console.md)
	@.ci/browser
	SAGENBAUM_BROWSER=1 $(GO) test -tags exercise ./executor/host/console -run TestTheConsoleInABrowser -v -count 1

pictures: ## take the pictures of docs/pictures anew
	@.ci/browser
	SAGENBAUM_BROWSER=1 SAGENBAUM_PICTURES=$(CURDIR)/docs/pictures KEEP=overview,plan,quarantine $(GO) test -tags exercise ./executor/host/console -run TestPicturesOfTheConsole -v -count 1
	SAGENBAUM_PICTURES=$(CURDIR)/docs/pictures $(GO) test -tags exercise ./cmd/sagenbaum/exercise/mcp -run TestThePictureOfTheDemo -v -count 1

SIMFOR ?= 60s
sim: ## run worlds by seed for SIMFOR (60s), the graveyard first (docs/guide/simulation.md)
	$(GO) test ./executor/sim -v -timeout 0 -run 'TestGraveyard|TestNewSeeds' -for $(SIMFOR)

sim-mutants: ## plant bugs, one at a time: the simulator, or the tests of a package, find each
	$(GO) run ./executor/sim/mutants

lint: ## gofmt, go vet and staticcheck; the house rules are tests: cmd/sagenbaum-lab/tidy
	@.ci/lint "$(GO)" "$(STATICCHECK)"

vuln: ## look for known vulnerabilities; says so loudly when the database cannot be reached
	@.ci/vuln "$(GO)" "$(GOVULNCHECK)"

generate: ## compile the .proto files (docs/adr/0006) and the console's pages (docs/adr/0026) to Go
	cd proto/gen && $(GO) run . .. ../..
	cd executor/host/console/web/gen && $(GO) run . ..

verify: ## prove that the generated Go is current, and that the schema breaks no stored record
	@.ci/verify "$(GO)"

bench: ## measure against the embedded server and print the figures (docs/performance.md)
	$(GO) run ./cmd/sagenbaum-lab bench $(BENCHFLAGS)
	$(GO) test -run '^$$' -bench 'BesideCEL|CompileShape|KnownShape' ./triggers
	$(GO) test -run '^$$' -bench Verify ./cmd/sagenbaum-verify
	$(GO) test -run '^$$' -bench TheTreeBeside ./executor/host

fuzz: ## run every fuzz target for FUZZTIME (30s)
	@.ci/fuzz "$(GO)" "$(FUZZTIME)"

torture: ## crash the real binary: FS=ext4|xfs CRASH=kill,power,syscall,pebble,pause,flip,disk,clock SEED=1 CYCLES=1000 (as root)
	SAGENBAUM_TORTURE=$(CYCLES) SAGENBAUM_TORTURE_FS=$(FS) SAGENBAUM_TORTURE_CRASH=$(CRASH) SAGENBAUM_TORTURE_SEED=$(SEED) SAGENBAUM_TORTURE_JUMPS=1 \
		$(GO) test -tags exercise ./cmd/sagenbaum/exercise/torture -run '^TestTortureLosesNothing$$' -v -count 1 -timeout 12h

ci: ## what has to pass before a change goes in: tests, exercises, race detector, lint, demo
	.ci/run

clean: ## remove what the targets above built
	rm -rf bin
