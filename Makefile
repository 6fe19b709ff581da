# The newest go-redis is tested beside the one in go.mod, which is the oldest supported.
NEWEST := $(shell mktemp -u)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long each fuzz target looks for new inputs; go test -fuzz has the units.
FUZZTIME ?= 1m

.PHONY: test test-servers lint model fuzz faults soak bench bench-check redis prometheus

test: redis prometheus
	go test -race -shuffle=on ./...
	cd metrics && go test -race -shuffle=on ./...
	cd examples/observed && go test -race -shuffle=on ./...
	cd cmd/delayqueue && go test -race -shuffle=on ./...
	@echo "once more, with the newest go-redis:"
	@trap 'rm -rf $(NEWEST)' EXIT; set -ex; \
	mkdir -p $(NEWEST); cp go.mod go.sum $(NEWEST); \
	go get -modfile=$(NEWEST)/go.mod github.com/redis/go-redis/v9@latest; \
	go list -modfile=$(NEWEST)/go.mod -m github.com/redis/go-redis/v9; \
	go test -race -shuffle=on -modfile=$(NEWEST)/go.mod .

# Which servers: all of .ci/servers unless SERVERS names some, or executables, as in
# make test-servers SERVERS="sid/valkey /opt/redis/bin/redis-server"
test-servers:
	.ci/servers test $(SERVERS)

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	cd bench && go vet ./... && go test ./...
	cd faults && go vet ./... && go test ./...
	cd metrics && go vet ./... && go run $(STATICCHECK) ./...
	cd examples/observed && go vet ./... && go run $(STATICCHECK) ./...
	cd cmd/delayqueue && go vet ./... && go run $(STATICCHECK) ./...

model: redis
	go test -run '^TestModel$$' -v -model.calls 200000 .

fuzz: redis
	@for target in $$(grep -ho '^func Fuzz[A-Za-z]*' *_test.go | cut -c6-); do \
		echo "$$target:"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) . || exit 1; \
	done

bench: redis
	cd bench && go run .

bench-check: redis
	cd bench && go run . -check

faults: redis
	cd faults && go run .

MINUTES ?= 20
soak: redis
	cd faults && go run . -soak $(MINUTES)

redis:
	@.ci/install-redis

prometheus:
	@.ci/install-prometheus
