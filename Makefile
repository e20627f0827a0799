# hypergate. `make` lists the targets. CI runs `make test`.

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
# BUILD_FLAGS are also the flags of hack/servers/build.sh, with CGO_ENABLED=0: a package compiles once for the servers,
# hypergate and the demo. The linker strips the debug information, which costs a tenth of the time to compile.
BUILD_FLAGS := -trimpath -gcflags=all=-dwarf=false
# RUN are the tests that `make conformance` runs, separated by commas. Empty means all. SETS and SIDES are in
# hack/conformance.sh.
RUN ?=
SETS ?= standard tls
SIDES ?= split in-guest
# MINUTES is the time limit of `make test` on two cores, with cold caches.
MINUTES ?= 75
STORIES ?= race fuzz integration e2e oldest upgrade migration conformance monitoring rotation scale bench mutations \
hostile limited chaos next busy
# CORE, CORE_E2E and CORE_TRAFFIC are the stories that `make test` runs on real servers. They cover the installation, the
# removal, renewals, rotations, drift, migrations and traffic, but not each function. All stories take more than MINUTES
# on two slow cores. `make stories` runs all of them. It also runs the tests that render charts under the race detector.
CORE ?= TestAGatewayClassInstallsBothSides|TestDeletingTheLastClassUninstallsAndKeepsCRDs|TestNoRequestsAtRest|\
TestEachDriftedObjectCostsOneWrite|TestTheLifeOfAHostedControlPlane|TestTheGuestKubeconfigIsReplaced|TestARotationOfTheCA|\
TestARenewalCostsOneTokenAndOneWrite|TestTheGuestsEtcdIsRestoredInPlace|TestStatusWritesAreRateLimited|\
TestAGuestThatIsTheManagementClusterIsRefused|TestCRDsAndThePlatform|TestAMigrationOnTwoAPIServers|\
TestAMigrationOnAStandaloneCluster|TestTheGuestRevertsTheReleaseOfAGateway|TestTheFleet
CORE_TRAFFIC ?= requests_go|tests_of_Gateway_API|istiod_is_replaced|istiod_is_published
CORE_E2E ?= a_GatewayClass|a_proxy|the_guest.s_API_server_calls|manual_changes|killed_at|the_last
# space is a variable with one space, for use in make functions.
space := $(subst ,, )
IMAGE ?= registry.example.com/hypergate:dev
# RELEASE_IMAGE is the name of the image in all files of a release, without the tag.
RELEASE_IMAGE ?= ghcr.io/hypergate/hypergate
# BIN is the folder of the binaries.
BIN ?= bin

# The following variables define which target tests which package. Tests that connect to real servers are skipped with
# -short. `unit` runs all other tests. `integration` runs test/ and each other package that has such a test, the longest
# first. Tests that start a real node also need root.
UNIT := ./pkg/... ./cmd/... ./hack/...
# CONCURRENT are the packages that do I/O with goroutines. `unit` runs only these under the race detector, because it
# makes tests that render charts ten times slower.
CONCURRENT := ./pkg/answer ./pkg/apply ./pkg/controller ./pkg/guest ./pkg/guestconn ./pkg/logs ./pkg/metrics \
./pkg/mgmt ./pkg/tunnel ./pkg/watch
# SLOW are the tests of CONCURRENT that take minutes under the race detector, and seconds without it. They render
# charts, read whole CRDs, or open thousands of connections. `make race` also runs them.
SLOW := TestKubeconfigChangesDoNotLeak|TestPublishingOnEachPlatform|TestClusterIsObserved|TestGoldens|\
TestNamespacesAreListedInPages|TestOnlyRoutesOfOwnGatewaysCount|TestContentOfAGuestCRD|\
TestOLMLookupsAreLimited|TestClassesDisappearWithTheirCRD|TestAnUnrelatedChangeDoesNotRestartTheSearch|TestUnsupportedFieldsInUseAreFound|\
TestOnlyOwnershipLeasesAreRead|TestObjectsThatAreStillLookedFor|TestOperatorOfAnOLMLabel|TestOLMLookupsFollowObjects|\
TestIdleStreamsGiveBackTheirBuffers
WITH_SLOW := ./pkg/guest ./pkg/guestconn ./pkg/mgmt ./pkg/tunnel
# RACES are the tests of test/adversary that run under the race detector. It makes the other tests several times slower.
# `make race` runs all of them.
RACES := TestChecksAndMetricsWhilePassesRun
SHELL_PACKAGES = $(shell grep -rl --include='*_test.go' -F 'testing.Short()' pkg cmd hack | xargs -r -n 1 dirname | sort -u | sed 's,^,./,')
TEST_PACKAGES = $(shell go list ./test/...)
# OWN_TARGET are the packages that have their own target.
OWN_TARGET = $(shell go list ./test/adversary ./test/chaos ./test/hostile ./test/origin)
NEED_ROOT = $(shell go list ./test/... | grep -E '/test/(e2e|cluster)(/|$$)' | grep -vE '/test/cluster/(internal|planes|servers)(/|$$)')

# CPO_MODULES are the Go modules of the component for HyperShift and of the stand-in for HyperShift.
CPO_MODULES := deploy/cpo/component test/hypershift/stub

golangci_lint = "$$(tools/build.sh --dir)/golangci-lint"

##@ General

.PHONY: help
help: ## List the targets.
	@# A text that ends with a backslash continues after the next line's ##.
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9-]+:.*## / { \
			while (sub(/\\$$/, "") && (getline more) > 0) $$0 = $$0 substr(more, length("## ") + 1); \
			printf "  %-16s %s\n", $$1, $$2 \
		}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/hypergate and bin/hypergate-tunnel.
	@for name in hypergate hypergate-tunnel; do \
		echo "building $(BIN)/$$name"; \
		CGO_ENABLED=0 go build $(BUILD_FLAGS) -buildvcs=false \
			-ldflags "-s -w -X github.com/hypergate/hypergate/cmd/$$name/app.version=$(VERSION)" \
			-o "$(BIN)/$$name" "./cmd/$$name"; \
	done

.PHONY: image
image: build ## Build the image IMAGE as bin/hypergate-image.tar, and its SBOM. Needs neither podman nor docker.
	go run ./hack/image -name $(IMAGE) -version $(VERSION)

.PHONY: release
release: ## Make the files of a release in bin/release/VERSION, on two builds that must be equal: VERSION=v0.1.0.
	@MAKE='$(MAKE)' hack/release.sh "$(VERSION)" "$(RELEASE_IMAGE)"

.PHONY: servers
servers: ## Build the real servers (etcd, kube-apiserver, istiod, ...) into a cache. The first build takes minutes.
	@hack/servers/build.sh

.PHONY: clean
clean: ## Remove build results in the checkout. Keep the cache: $HYPERGATE_CACHE or ~/.cache/hypergate.
	rm -rf bin

##@ Demo

.PHONY: screenshots
screenshots: ## Show the pages of `-o html` in headless Chromium, as PNG files in bin/screenshots. Needs chromium.
	@hack/screenshots.sh

.PHONY: demo
demo: need-root servers build ## Start a management and a guest cluster, and show hypergate on both. Needs root.
	@hack/system-packages.sh
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent
	CGO_ENABLED=0 go run $(BUILD_FLAGS) ./hack/demo up $(DEMO_FLAGS)

.PHONY: need-root
need-root:
	@if [ "$$(id -u)" -ne 0 ]; then \
		echo "make demo starts a real node (kubelet and containerd in namespaces of their own) and needs root: sudo make demo" >&2; \
		exit 1; \
	fi

.PHONY: demo-down
demo-down: ## Remove everything that `make demo` started.
	CGO_ENABLED=0 go run $(BUILD_FLAGS) ./hack/demo down $(DEMO_FLAGS)

##@ Code

.PHONY: generate
generate: ## Regenerate the generated files.
	go generate ./...

.PHONY: fmt
fmt: tools ## Format the Go code.
	$(golangci_lint) fmt

.PHONY: lint
lint: tools ## Check the Go code (format, import rules, size limits, defects), and that go.mod is tidy.
	@go mod tidy -diff || { \
		echo 'go.mod or go.sum is not tidy (the difference is above): run go mod tidy and commit both.' >&2; \
		exit 1; \
	}
	$(golangci_lint) run
	@cd test/envoy && go mod tidy -diff || { \
		echo 'test/envoy: go.mod or go.sum is not tidy: run go mod tidy there and commit both.' >&2; \
		exit 1; \
	}
	linter=$(golangci_lint) && cd test/envoy && "$$linter" run -c ../../.golangci.yml
	@cd test/monitoring && go mod tidy -diff || { \
		echo 'test/monitoring: go.mod or go.sum is not tidy: run go mod tidy there and commit both.' >&2; \
		exit 1; \
	}
	linter=$(golangci_lint) && cd test/monitoring && "$$linter" run -c ../../.golangci.yml
	@for dir in $(CPO_MODULES); do \
		(cd "$$dir" && go mod tidy -diff) || { \
			echo "$$dir: go.mod or go.sum is not tidy: run go mod tidy there and commit both." >&2; \
			exit 1; \
		}; \
	done
	linter=$(golangci_lint) && for dir in $(CPO_MODULES); do \
		(cd "$$dir" && "$$linter" run -c "$(CURDIR)/deploy/cpo/component/.golangci.yml") || exit 1; \
	done
	@cd test/conformance && go mod tidy -diff || { \
		echo 'test/conformance: go.mod or go.sum is not tidy: run go mod tidy there and commit both.' >&2; \
		exit 1; \
	}
	linter=$(golangci_lint) && cd test/conformance && "$$linter" run -c ../../.golangci.yml

.PHONY: tools
tools:
	@tools/build.sh

##@ Test

.PHONY: test
test: ## Run all CI checks: check-generated, lint, servers, unit, adversary, core. Fail after MINUTES (75).
	@MAKE='$(MAKE)' hack/step.sh --within $(MINUTES) --keep-going check-generated lint servers unit adversary core

.PHONY: stories
stories: ## Run each target in STORIES once, and print a table of the results. Takes hours. Needs root.
	@MAKE='$(MAKE)' hack/step.sh --keep-going $(STORIES)

.PHONY: busy
busy: ## Run unit and integration five times, and e2e twice, with stress-ng on four CPUs. Takes hours. Needs root.
	@MAKE='$(MAKE)' hack/busy.sh 4 $(BUSY)

.PHONY: check-generated
check-generated: ## Fail if `make generate` changes a file.
	@hack/check-generated.sh

.PHONY: envoy-test
envoy-test: ## Vet and test test/envoy, the stand-in for Envoy. It has a Go module of its own. Only needs Go.
	cd test/envoy && go vet ./... && go test -timeout 10m ./...

.PHONY: cpo-test
cpo-test: ## Vet and test deploy/cpo/component against a stand-in for HyperShift. It has a Go module of its own. Only needs Go.
	cd deploy/cpo/component && go vet ./... && go test -timeout 10m ./...

.PHONY: hypershift-drift
hypershift-drift: ## Say which rules of HyperShift are new or have changed in a newer tree of it: HYPERSHIFT=<path>.
	@go run ./hack/hypershift-drift -tree "$(HYPERSHIFT)"

.PHONY: monitoring-test
monitoring-test: ## Vet and test deploy/monitoring with the engine of Prometheus. It has a Go module of its own. Only needs Go.
	cd test/monitoring && go vet ./... && go test -timeout 10m ./...

.PHONY: conformance-test
conformance-test: ## Vet test/conformance, and test how it judges results. It has a Go module of its own. Only needs Go.
	cd test/conformance && go vet ./... && go test -short -timeout 10m ./...

.PHONY: unit
unit: envoy-test monitoring-test conformance-test cpo-test ## Run the tests that only need Go. \
## Packages with goroutines run under the race detector, except SLOW.
	@for t in $(subst |, ,$(subst $(space),,$(SLOW))); do \
		grep -q "^func $$t(" $(addsuffix /*_test.go,$(WITH_SLOW)) || { \
			echo "unit: there is no test $$t; correct SLOW in the Makefile" >&2; \
			exit 1; \
		}; \
	done
	go test -race -short -timeout 30m -skip '^($(subst $(space),,$(SLOW)))$$' $(CONCURRENT)
	go test -short -timeout 30m -run '^($(subst $(space),,$(SLOW)))$$' $(WITH_SLOW)
	go test -short -timeout 30m $(filter-out $(shell go list $(CONCURRENT)),$(shell go list $(UNIT)))

.PHONY: race
race: ## Run all tests of unit and adversary under the race detector. Charts render ten times slower with it.
	@# These two tests measure memory. The memory of the race detector would count.
	go test -race -short -timeout 60m -skip '^TestIdleStreamsGiveBackTheirBuffers$$' $(UNIT)
	go test -race -timeout 60m -skip '^TestEndlessList$$' ./test/adversary

.PHONY: adversary
adversary: ## Run hypergate against API servers that return false responses. Only needs Go.
	go test -timeout 30m -skip '^($(RACES))$$' ./test/adversary
	go test -race -count=1 -timeout 30m -run '^($(RACES))$$' ./test/adversary
	@# A guest that lies, for half a minute, and until it has lied in each way. The same seed gives the same order.
	go test -race -count=1 -timeout 20m -run '^TestHostile$$' ./test/hostile -seed=1 -duration=30s

.PHONY: core
core: servers build ## Run a selection of the stories of integration and e2e, and the tests of their tools. Needs root.
	@# Run one package at a time: on a slow machine, API servers of two packages at once take minutes to start.
	@# Only `make integration` tests how the stories start and stop their servers, because that takes five minutes.
	@# A shallow clone lacks the history that TestThePreviousTunnel builds.
	go test -p 1 -count=1 -timeout 30m -skip '^TestThePreviousTunnel$$' $(SHELL_PACKAGES) \
		$(filter-out $(NEED_ROOT) $(OWN_TARGET) $(shell go list ./test/integration ./test/cluster/planes),$(TEST_PACKAGES))
	@for story in $(subst |, ,$(subst $(space),,$(CORE))); do \
		grep -q "^func $$story(" test/integration/*_test.go || { \
			echo "core: there is no story $$story; correct CORE in the Makefile" >&2; \
			exit 1; \
		}; \
	done
	@for story in $(subst |, ,$(CORE_E2E) $(CORE_TRAFFIC)); do \
		grep -q "\"$${story//_/ }" test/e2e/*_test.go || { \
			echo "core: there is no story $$story; correct CORE_E2E in the Makefile" >&2; \
			exit 1; \
		}; \
	done
	go test -count=1 -timeout 50m -run '^($(subst $(space),,$(CORE)))$$' ./test/integration
	@hack/e2e.sh -run '^TestHosted$$/^($(CORE_E2E))' ./test/e2e
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent
	@hack/e2e.sh -v -run '^TestTraffic$$/^($(CORE_TRAFFIC))' ./test/e2e

.PHONY: integration
integration: servers ## Run the tests with real API servers and a real istiod as plain processes. Does not need root.
	@# On a busy machine, this takes more than an hour.
	go test -race -count=1 -timeout 150m ./test/integration $(SHELL_PACKAGES) \
		$(filter-out $(NEED_ROOT) $(OWN_TARGET),$(TEST_PACKAGES))

.PHONY: e2e
e2e: servers build ## Run the stories on real clusters: a node, pods, istiod from hypergate's own Deployment. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent kubectl helm
	@hack/e2e.sh -timeout 4h -skip '^Test(Upgrade|Speed|Migration|Alerts)' $(NEED_ROOT)
	@# The quick faults, in two minutes. `make chaos` causes all of them.
	@hack/e2e.sh -run '^TestChaos$$' ./test/chaos

.PHONY: oldest
oldest: servers build ## Run integration, parity and e2e's main stories with a guest of Kubernetes 1.30, the oldest one. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent $(addsuffix -1.30,kube-apiserver kube-controller-manager \
		kube-scheduler kubelet kube-proxy)
	GUEST_KUBERNETES=1.30 go test -count=1 -timeout 60m ./test/integration
	GUEST_KUBERNETES=1.30 go test -count=1 -timeout 30m ./test/parity
	@# One after the other: on a small machine, requests of one would wait for the other's servers.
	GUEST_KUBERNETES=1.30 hack/e2e.sh -v -timeout 2h -parallel 1 -run '^Test(Hosted|Traffic|StandaloneTLSProfile)$$' ./test/e2e

.PHONY: quickstarts
quickstarts: servers ## Run the commands of docs/quickstart-*.md on real clusters, as they are there. A part of make e2e. Needs root.
	@hack/servers/build.sh kubectl helm
	hack/e2e.sh -v -run '^TestQuickstart$$' ./test/e2e

.PHONY: upgrade
upgrade: servers ## Change Istio's version under load: 1.28.2 to the embedded one, and back. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent pilot-discovery-1.28 pilot-agent-1.28
	go test -tags upgrade -count=1 -run '^TestAnotherVersion$$' ./test/xds
	hack/e2e.sh -v -run '^TestUpgrade$$' ./test/e2e

.PHONY: conformance
conformance: servers ## Run Gateway API's conformance suite with hypergate and with an istiod in the guest. Accepts RUN. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent
	@RUN='$(RUN)' SETS='$(SETS)' SIDES='$(SIDES)' UPDATE='$(UPDATE)' hack/conformance.sh

.PHONY: chaos
chaos: servers ## Roll gateways, and cause every fault of test/chaos ROUNDS (1) times. SEED repeats a run, 0 is random. Needs root.
	go test -tags chaos -count=1 -timeout 60m ./test/integration \
		-run '^Test(GuestAPIOutageOfTwentyMinutes|NoGatewayIsReleasedRightAfterAnOutage|TenMinutesBesideTheIngressOperator)$$'
	hack/e2e.sh -v -run '^TestGatewaysRollOneByOne$$' ./test/chaos
	hack/e2e.sh -v -timeout 2h -run '^TestChaos$$' ./test/chaos -args -chaos.all -chaos.seed=$(SEED) -chaos.rounds=$(ROUNDS)

.PHONY: next
next: servers ## Install development snapshots of Istio with a newer Gateway API, and upgrade to one under load. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent pilot-discovery-next pilot-agent-next pilot-discovery-later
	hack/e2e.sh -v -run '^TestTheNextIstio$$' ./test/chaos
	hack/e2e.sh -v -run '^TestUpgradeToTheNextIstio$$' ./test/e2e

.PHONY: migration
migration: servers ## Move Gateways from an istiod in the guest, of 1.29 and of 1.28, and back. Takes hours. Needs root.
	@hack/servers/build.sh pilot-agent proxy-server proxy-agent pilot-discovery-1.28 sail-operator ingress-operator helm
	go test -count=1 -timeout 20m ./test/origin
	hack/e2e.sh -v -timeout 30m -run '^TestMigration$$' ./test/e2e
	hack/e2e.sh -v -timeout 3h -run '^TestMigrationFromOLM$$' ./test/e2e
	hack/e2e.sh -v -timeout 1h -run '^TestMigrationReplaced$$' ./test/e2e
	hack/e2e.sh -v -timeout 2h -run '^TestMigrationFromSail$$' ./test/e2e
	hack/e2e.sh -v -timeout 1h -run '^TestMigrationFromHelm$$' ./test/e2e
	hack/e2e.sh -v -timeout 1h -run '^TestMigrationStandalone$$' ./test/e2e
	hack/e2e.sh -v -timeout 1h -run '^TestMigrationByTunnel$$' ./test/e2e
	@# The main stories again with an older istiod in the guest.
	ORIGIN_ISTIO=1.28.2 hack/e2e.sh -v -timeout 1h -run '^TestMigrationFromOLM$$/(an_OLM|three_Gateways|rolled_back_from_Roll)' ./test/e2e
	ORIGIN_ISTIO=1.28.2 hack/e2e.sh -v -timeout 1h -run '^TestMigrationFromSail$$/(a_guest|rolled_back)' ./test/e2e
	ORIGIN_ISTIO=1.28.2 hack/e2e.sh -v -timeout 1h -run '^TestMigrationFromHelm$$/(a_guest|three_Gateways|rolled_back)' ./test/e2e

.PHONY: monitoring
monitoring: servers build ## Run a real Prometheus beside hypergate, with the rules of deploy/monitoring, through five faults. Needs root.
	@hack/servers/build.sh prometheus
	hack/e2e.sh -v -timeout 30m -run '^TestAlerts$$' ./test/e2e

.PHONY: rotation
rotation: servers build ## Rotate the mesh CA with GATEWAYS (200) simulated gateways. Print time and failures. Needs root.
	GATEWAYS=$(GATEWAYS) hack/e2e.sh -v -run '^TestHosted$$/^the_mesh_CA_is_rotated_while_the_guest_works$$' ./test/e2e

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (10s), and print the number of executions.
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: fuzz-corpus
fuzz-corpus: ## Add inputs that `make fuzz` has found to the corpora that each test run repeats.
	@hack/fuzz-corpus.sh

.PHONY: mutations
mutations: ## Take the code behind each guarantee out, and check that its test fails. Only needs Go.
	go run ./hack/mutations

.PHONY: hostile
hostile: ## Run hypergate against a hostile guest for DURATION (5m). SEED repeats a run, 0 is random. Only needs Go.
	go test -count=1 -timeout 0 -v -run '^TestHostile$$' ./test/hostile -seed=$(SEED) -duration=$(DURATION)

.PHONY: limited
limited: ## Run every move of `make hostile` once, in a cgroup with the memory limit of deploy/. Needs root.
	go test -count=1 -timeout 0 -v -run '^TestEveryMoveWithinTheMemoryLimit$$' ./test/hostile -limited -seed=$(SEED)

.PHONY: bench
bench: servers build ## Measure time, writes, memory, commands and a scrape, and compare with the lower bound. \
## Fails if a bar is missed. Accepts BENCH_FLAGS. The end needs root.
	@hack/servers/build.sh proxy-server proxy-agent pilot-agent
	@# Each part runs, also after one that missed a bar.
	missed=0; \
	go run ./hack/bench $(BENCH_FLAGS) || missed=1; \
	go test -run '^$$' -bench '^BenchmarkWays$$' -benchtime 500x -timeout 30m ./test/tunnel || missed=1; \
	go test -run '^$$' -bench '^Benchmark(APIServer|Stalled|Gateways)$$' -benchtime 1x -timeout 30m ./test/tunnel || missed=1; \
	MODULE=test/conformance hack/e2e.sh -v -run '^TestSpeed$$' . || missed=1; \
	exit $$missed

.PHONY: scale
scale: servers ## Measure the cost of CLUSTERS (100) hosted clusters on one management API server. Accepts SCALE_FLAGS.
	go run ./hack/scale -clusters $(CLUSTERS) $(SCALE_FLAGS)
