# go.mod has the oldest go-redis that is supported; this is the newest that is known to work.
NEWEST_GOREDIS ?= v9.23.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
# All modules of this tree; go.work has the same. Those whose tests take longest come first.
MODULES := cmd/delayqueue web . schedule metrics outbox web/browsertest outbox/databases examples/observed examples/reports examples/orders bench faults release

# The packages of the root module that have tests. FACE: their tests go through the face. CALLERS: they call go-redis
# or send scripts, so another go-redis or another server can break them. TESTED: all but examples, which test-all has.
FACE := . ./tests/features ./tests/weather
CALLERS := $(FACE) ./internal/link ./internal/script ./internal/shard ./internal/wake ./ops
TESTED := . ./tests/... ./internal/... ./ops/... ./typed/... ./delayqueuetest/...

# Tests mostly wait, so more packages run at a time than there are cores.
GOTEST := go test -p 4

# What make check changes: SHORT=-short makes tests do less of what they repeat (testkit.Size), RACE= leaves out the
# race detector.
SHORT ?=
RACE ?= -race

# How long each fuzz target looks for new inputs; go test -fuzz has the units.
FUZZTIME ?= 1m

# make check-all, in parts; .ci/part runs one of them, and notes in docs/reliability.md when it has passed.
PARTS := lint test-all test-web test-outbox test-senders test-release test-shards test-goredis test-oldest test-servers model fuzz zones \
	schedules bench-check bench-peers faults

.PHONY: $(PARTS) $(PARTS:%=check-%) api tidy release lanes test check check-all check-beside pictures \
	test-goredis-latest test-newest vulnerabilities faults-fast soak bench redis luacheck prometheus chromium senders databases peers

# Before every commit.
test: redis
	$(GOTEST) -race -short -shuffle=on -timeout 30m $(TESTED)

# What CI runs. It may take 25 minutes on two cores. Only test-all has the race detector: all others share one build.
check:
	$(MAKE) redis luacheck prometheus chromium databases senders # one after another, because apt-get runs once at a time
	$(MAKE) -j2 faults-fast check-beside
	$(MAKE) test-all SHORT=-short
	$(MAKE) -j2 test-web test-outbox SHORT=-short RACE=
	$(MAKE) -j2 test-shards test-senders SHORT=-short RACE=
	$(MAKE) test-newest SHORT=-short RACE= NEWER="$(CALLERS)"
	$(MAKE) bench-check

# Verdicts that do not depend on how fast the machine is: these compute while the faults mostly wait.
check-beside:
	$(MAKE) lint
	$(MAKE) test-release

# Before a release, and before a change of scripts, link or consume is done: everything, in full. make -k goes on after
# a part that fails.
check-all: $(PARTS:%=check-%)

$(PARTS:%=check-%): check-%:
	@.ci/part $*

# All modules, in one call, because packages are compiled while the tests of others wait.
test-all: redis prometheus
	$(GOTEST) $(RACE) $(SHORT) -shuffle=on -timeout 30m \
		$(patsubst %,./%/...,$(filter-out web/browsertest outbox/databases examples/orders bench faults release,$(MODULES)))

# The pages in a real browser. Results are not cached, because go test does not see that there is another browser.
test-web: redis chromium
	cd web/browsertest && go test -count=1 $(RACE) -timeout 30m -v .

# The outbox on real databases. SQLite is a large program to compile, so CI shares the build without the race detector.
test-outbox: redis databases
	$(GOTEST) $(RACE) $(SHORT) -shuffle=on -timeout 30m ./outbox/databases/... ./examples/orders/...

# Programs of other languages that send. Results are not cached, because go test does not see the languages.
test-senders: redis senders
	go test -count=1 -tags senders ./examples/senders

# The pictures of the page in docs/.
pictures: redis chromium
	cd web/browsertest && ../../.ci/named go test -run '^TestPictures$$' -pictures "$(CURDIR)/docs" .

# The tests of NEWER with another go-redis; a workspace takes no other go.mod.
NEWER ?= $(TESTED)
test-goredis: export GOWORK = off
test-goredis: redis
	@other=$$(mktemp -d); trap 'rm -rf "$$other"' EXIT; set -ex; \
	cp go.mod go.sum "$$other"; \
	go get -modfile="$$other/go.mod" github.com/redis/go-redis/v9@$(NEWEST_GOREDIS); \
	go list -modfile="$$other/go.mod" -m github.com/redis/go-redis/v9; \
	$(GOTEST) $(RACE) $(SHORT) -shuffle=on -timeout 30m -modfile="$$other/go.mod" $(NEWER)

# The oldest Go that go.mod allows; the other jobs have the one that is installed.
test-oldest: redis
	GOTOOLCHAIN=go$$(awk '$$1 == "go" { print $$2 }' go.mod) $(GOTEST) $(SHORT) -shuffle=on -timeout 30m $(TESTED)

# The newest go-redis on the newest server at once. If that fails, test-goredis and test-servers say which it is.
test-newest:
	server=$$(.ci/servers path "$$(.ci/servers newest)") && DELAYQUEUE_REDIS_SERVER=$$server $(MAKE) test-goredis

# What came out since: may fail for reasons that are not ours.
test-goredis-latest:
	$(MAKE) test-goredis NEWEST_GOREDIS=latest

# The face's tests, each queue with three shards on a Cluster; .ci/shards-exceptions says which are left out, and why.
test-shards: redis
	$(GOTEST) $(RACE) $(SHORT) -shuffle=on -timeout 30m -skip "$$(.ci/shards-skip)" $(FACE) -args -shards 3

# The tests of SERVED on other servers: all of .ci/servers unless SERVERS names some, or executables, as in
# make test-servers SERVERS="sid/valkey /opt/redis/bin/redis-server"
SERVED ?= $(TESTED)
test-servers:
	.ci/servers test "$(SHORT) $(SERVED)" $(SERVERS)

lint: vulnerabilities redis luacheck
	@unformatted=$$(gofmt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	go vet $(MODULES:%=./%/...)
	go vet -tags senders ./examples/senders
	go run $(STATICCHECK) $(MODULES:%=./%/...)
	for arch in 386 arm; do GOARCH=$$arch go vet . ./internal/... ./ops/... ./typed/... ./schedule/... || exit 1; done
	go test ./bench/... ./faults/...
	.ci/named go test ./internal/script -run '^TestScriptBounds$$'
	luacheck --no-config --no-color -q --std lua51 --read-globals redis KEYS --globals ARGV --no-max-line-length --ignore 42 43 \
		-- internal/script/assembled
	cd release && go run . check

# What users can name, of each module; lint compares it.
api:
	cd release && go run . api

# go mod tidy everywhere, with the siblings of this tree.
tidy:
	cd release && go run . tidy

# A release in a copy of this tree, and who installs it from a module proxy, in fresh folders. Results are not cached,
# because go test does not see changes outside of the module.
test-release:
	cd release && go test -count=1 -timeout 30m ./...

# make release VERSION=v0.1.0 commits the versions and sets the tags; it pushes nothing. DRY=-n only shows it.
release:
	cd release && go run . $(DRY) tag $(VERSION)

# Known defects of what is called. Without the network there is no list of them: that is said, and is no failure.
vulnerabilities:
	@for module in $(MODULES); do \
		found=$$(cd $$module && go run $(GOVULNCHECK) ./... 2>&1); code=$$?; \
		case "$$found" in \
		*"fetching vulnerabilities"*) echo "NOT CHECKED for known vulnerabilities: their database cannot be reached"; exit 0 ;; \
		esac; \
		echo "$$module: $$found"; [ $$code = 0 ] || exit 1; \
	done

model: redis
	.ci/named go test ./internal/script -run '^TestModel$$' -v -timeout 30m -model.calls 200000

fuzz: redis
	@set -e; files=$$(grep -rl '^func Fuzz' --include='*_test.go' .); for file in $$files; do \
		for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$file | cut -c6-); do \
			echo "$$target:"; .ci/named go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file); \
		done; \
	done

# Each half hour of ten years in every zone.
zones:
	cd schedule && ../.ci/named go test -run '^TestEveryHalfHourOfEveryZone$$' -v -zones .

# 16 replicas with 200 entries, killed and frozen at random for five minutes over a failover of Redis.
schedules: redis
	cd schedule && ../.ci/named go test -run '^TestReplicasAreKilled$$' -v -timeout 20m -replicas 16 -entries 200 -for 5m .

# A lane of a million messages, of which half are handled one at a time, in some ten minutes.
lanes: redis
	.ci/named go test ./ops -run '^TestLongLane$$' -v -timeout 60m -lane 1000000

# An hour, on a machine that does nothing else.
bench: redis databases peers
	cd bench && go run . peers -full
	cd bench && go run .

bench-check: redis
	cd bench && go run . -check

# That each contender of the comparison can be measured.
bench-peers: redis databases peers
	cd bench && go run . peers -quick

faults: redis databases
	cd faults && go run .

# The ten faults that found most.
faults-fast: redis
	cd faults && go run . -fast

MINUTES ?= 20
soak: redis
	cd faults && go run . -soak $(MINUTES)

redis:
	@.ci/install-redis

luacheck:
	@.ci/install-luacheck

senders:
	@.ci/install-senders

prometheus:
	@.ci/install-prometheus

databases:
	@.ci/install-databases

peers:
	@.ci/install-peers

chromium:
	@.ci/install-chromium
	@.ci/install-axe >/dev/null
