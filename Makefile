# hypergate. `make` alone shows what there is; `make test` is what CI runs.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME ?= 10s
SEED ?= 0
DURATION ?= 5m
BENCH_FLAGS ?=
DEMO_FLAGS ?=
GATEWAYS ?= 200
ROUNDS ?= 1
CLUSTERS ?= 100
SCALE_FLAGS ?=
# MINUTES is how long `make test` may take on two cores, with cold caches.
MINUTES ?= 75
STORIES ?= race integration e2e rotation scale hostile limited chaos busy
# CORE and CORE_E2E are the stories that make test runs on real servers: one for each thing that hypergate does. All of them take more than MINUTES on two
# slow cores; make stories has them, and the race detector where charts are rendered.
CORE ?= TestAGatewayClassInstallsBothSides|TestTheLastClassGoneClearsBothSidesAndKeepsCRDs|TestAtRestNothingIsAsked|\
TestEachDriftedObjectCostsOneWrite|TestTheLifeOfAHostedControlPlane|TestTheGuestKubeconfigIsReplaced|TestARotationOfTheCA|\
TestARenewalCostsOneTokenAndOneWrite|TestTheGuestsEtcdIsRestoredInPlace|TestAGuestThatRewritesTheStatusIsDamped|\
TestAGuestThatIsTheManagementClusterIsRefused|TestCRDsAndThePlatform
CORE_E2E ?= a_GatewayClass|a_proxy|the_guest.s_API_server_calls|what_is_changed|killed_at|the_last
# space is a space, as make wants it.
space := $(subst ,, )
IMAGE ?= registry.example.com/hypergate:dev

# Which package is tested where. Tests that talk to real servers skip with -short: `unit` has all others, and `integration` has test/ and each package
# elsewhere that has such a test, what takes longest first. What starts a real node needs root besides.
UNIT := ./pkg/... ./cmd/... ./hack/...
# CONCURRENT are the packages that do I/O with goroutines: unit runs them under the race detector, which makes what renders charts take ten times as long.
CONCURRENT := ./pkg/answer ./pkg/apply ./pkg/controller ./pkg/guest ./pkg/guestconn ./pkg/logs ./pkg/mgmt ./pkg/watch
# SLOW are tests of them that take minutes under the race detector, and seconds without. They render charts, read whole CRDs or make thousands of
# connections. make race runs them, too.
SLOW := TestNothingIsLeftOfAThousandKubeconfigs|TestPublishingOnEachPlatform|TestAClusterIsRead|TestGoldens|TestNamespacesAreLookedAtPageByPage|\
TestRoutesOfOthersAreTheirs|TestWhatACRDSays|TestManyPackagesAreNotLookedFor|TestClassesGoWithTheirCRD|TestAnotherSpecEndsNoSearch|TestFieldsInVain|\
TestOfLeasesLittleIsKept|TestObjectsThatAreStillLookedFor|TestWhoStandsBehindALabel|TestOLMComesAndGoes
WITH_SLOW := ./pkg/guest ./pkg/guestconn ./pkg/mgmt
# RACES are the tests of test/adversary for the race detector. It makes the others several times as slow, and make race runs them all.
RACES := TestChecksAndMetricsWhilePassesRun
SHELL_PACKAGES = $(shell grep -rl --include='*_test.go' -F 'testing.Short()' pkg cmd hack | xargs -r -n 1 dirname | sort -u | sed 's,^,./,')
TEST_PACKAGES = $(shell go list ./test/...)
# Packages that have a target of their own.
OWN_TARGET = $(shell go list ./test/adversary ./test/chaos ./test/hostile)
NEED_ROOT = $(shell go list ./test/... | grep -E '/test/(e2e|cluster)(/|$$)' | grep -vE '/test/cluster/(internal|planes|servers)(/|$$)')

golangci_lint = "$$(tools/build.sh --dir)/golangci-lint"

##@ General

.PHONY: help
help: ## Show this.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/hypergate.
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X github.com/hypergate/hypergate/cmd/hypergate/app.version=$(VERSION)' -o bin/hypergate ./cmd/hypergate

.PHONY: image
image: build ## Make the image IMAGE in bin/hypergate-image.tar, and its SBOM beside it. Needs neither podman nor docker.
	go run ./hack/image -name $(IMAGE) -version $(VERSION)

.PHONY: servers
servers: ## Build the real servers (etcd, kube-apiserver, istiod, ...) into a cache outside the checkout. The first time takes minutes.
	@hack/servers/build.sh

.PHONY: clean
clean: ## Remove what make built in the checkout. The cache of servers and tools stays: ~/.cache/hypergate or $HYPERGATE_CACHE.
	rm -rf bin

##@ Demo

.PHONY: demo
demo: need-root servers build ## Start a management and a guest cluster, install hypergate, serve a Gateway, show both sides. Needs root.
	@hack/system-packages.sh
	go run ./hack/demo up $(DEMO_FLAGS)

.PHONY: need-root
need-root:
	@if [ "$$(id -u)" -ne 0 ]; then echo "make demo starts a real node (kubelet and containerd in namespaces of their own) and needs root: sudo make demo" >&2; exit 1; fi

.PHONY: demo-down
demo-down: ## Remove everything that make demo started.
	go run ./hack/demo down $(DEMO_FLAGS)

##@ Code

.PHONY: generate
generate: ## Write the generated files anew.
	go generate ./...

.PHONY: fmt
fmt: tools ## Format the Go code.
	$(golangci_lint) fmt

.PHONY: lint
lint: tools ## Check the Go code: format, import rules, size limits, defects; and that go.mod is tidy.
	@go mod tidy -diff || { echo 'go.mod or go.sum is not tidy (the difference is above): run go mod tidy and commit both.' >&2; exit 1; }
	$(golangci_lint) run

.PHONY: tools
tools:
	@tools/build.sh

##@ Test

.PHONY: test
test: ## Everything that CI runs: check-generated, lint, servers, unit, adversary, core. It fails if they take more than MINUTES (75) in all.
	@MAKE='$(MAKE)' hack/step.sh --within $(MINUTES) --keep-going check-generated lint servers unit adversary core

.PHONY: stories
stories: ## What takes longer than CI can bear: STORIES, each once, with a table of what became of them at the end. Takes hours; needs root.
	@MAKE='$(MAKE)' hack/step.sh --keep-going $(STORIES)

.PHONY: busy
busy: ## unit and integration five times, and e2e twice, beside stress-ng on four CPUs. Takes hours; needs root.
	@MAKE='$(MAKE)' hack/busy.sh

.PHONY: check-generated
check-generated: ## Fail if make generate would change a file.
	@hack/check-generated.sh

.PHONY: unit
unit: ## Tests that need nothing but Go, under the race detector where there are goroutines (but for SLOW).
	@for t in $(subst |, ,$(subst $(space),,$(SLOW))); do \
		grep -q "^func $$t(" $(addsuffix /*_test.go,$(WITH_SLOW)) || { echo "unit: there is no test $$t; correct SLOW in the Makefile" >&2; exit 1; }; \
	done
	go test -race -short -timeout 30m -skip '^($(subst $(space),,$(SLOW)))$$' $(CONCURRENT)
	go test -short -timeout 30m -run '^($(subst $(space),,$(SLOW)))$$' $(WITH_SLOW)
	go test -short -timeout 30m $(filter-out $(shell go list $(CONCURRENT)),$(shell go list $(UNIT)))

.PHONY: race
race: ## All tests of unit and adversary under the race detector, which makes the charts ten times slower to render.
	go test -race -short -timeout 60m $(UNIT)
	@# Memory is measured without the race detector, whose own memory would count.
	go test -race -timeout 60m -skip '^TestEndlessList$$' ./test/adversary

.PHONY: adversary
adversary: ## hypergate against API servers that lie. They need nothing but Go.
	go test -timeout 30m -skip '^($(RACES))$$' ./test/adversary
	go test -race -count=1 -timeout 30m -run '^($(RACES))$$' ./test/adversary

.PHONY: core
core: servers build ## The stories of integration and e2e that stand for the rest, and the tests of what they are made of. Needs root.
	@# One package at a time: on a slow machine, API servers of two packages at once take minutes to start.
	@# make integration has the tests of how the stories start and end their servers, which take five minutes.
	go test -p 1 -count=1 -timeout 30m $(SHELL_PACKAGES) $(filter-out $(NEED_ROOT) $(OWN_TARGET) $(shell go list ./test/integration ./test/cluster/planes),$(TEST_PACKAGES))
	@for story in $(subst |, ,$(subst $(space),,$(CORE))); do \
		grep -q "^func $$story(" test/integration/*_test.go || { echo "core: there is no story $$story; mend CORE in the Makefile" >&2; exit 1; }; \
	done
	@for story in $(subst |, ,$(CORE_E2E)); do \
		grep -q "\"$${story//_/ }" test/e2e/*_test.go || { echo "core: there is no story $$story; mend CORE_E2E in the Makefile" >&2; exit 1; }; \
	done
	go test -count=1 -timeout 50m -run '^($(subst $(space),,$(CORE)))$$' ./test/integration
	@hack/e2e.sh -run '^TestHosted$$/^($(CORE_E2E))' ./test/e2e

.PHONY: integration
integration: servers ## Tests with real API servers and a real istiod as plain processes. No root.
	go test -race -count=1 -timeout 60m ./test/integration $(SHELL_PACKAGES) $(filter-out $(NEED_ROOT) $(OWN_TARGET),$(TEST_PACKAGES))

.PHONY: e2e
e2e: servers build ## Stories on real clusters: a node, pods, istiod from hypergate's own Deployment. Needs root.
	@hack/e2e.sh $(NEED_ROOT)

.PHONY: chaos
chaos: servers ## Cause every fault of test/chaos and check what is left, ROUNDS (1) times. SEED repeats a run; 0 takes a new one. Needs root.
	go test -tags chaos -count=1 -run '^TestTheGuestsAPIIsAwayForTwentyMinutes$$' ./test/integration
	hack/e2e.sh -v -timeout 2h ./test/chaos -args -chaos.all -chaos.seed=$(SEED) -chaos.rounds=$(ROUNDS)

.PHONY: rotation
rotation: servers build ## Rotate the mesh CA under GATEWAYS (200) simulated gateways, and say how long it takes and what fails. Needs root.
	GATEWAYS=$(GATEWAYS) hack/e2e.sh -v -run '^TestHosted$$/^the_mesh_CA_is_rotated_while_the_guest_works$$' ./test/e2e

.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME (10s), and how often each was executed.
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: hostile
hostile: ## A guest that lies, for DURATION (5m), in moves that SEED decides (0: another one each time). It needs nothing but Go.
	go test -count=1 -timeout 0 -v -run '^TestHostile$$' ./test/hostile -seed=$(SEED) -duration=$(DURATION)

.PHONY: limited
limited: ## Every move of make hostile once, in a cgroup with the memory limit of deploy/. Needs root.
	go test -count=1 -timeout 0 -v -run '^TestEveryMove' ./test/hostile -limited -seed=$(SEED)

.PHONY: bench
bench: servers build ## Time, writes and memory against the floor, as a table and as JSON. BENCH_FLAGS are passed on.
	go run ./hack/bench $(BENCH_FLAGS)

.PHONY: scale
scale: servers ## Many hosted clusters (CLUSTERS=100) on one management API server: what each costs, and whether that grows. SCALE_FLAGS are passed on.
	go run ./hack/scale -clusters $(CLUSTERS) $(SCALE_FLAGS)
