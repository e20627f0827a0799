package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/hypergate/hypergate/test/cluster"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"

	"github.com/hypergate/hypergate/test/conformance"
)

var (
	side       = flag.String("side", string(conformance.Split), "where istiod runs: split or in-guest")
	set        = flag.String("set", string(conformance.Standard), "what runs: standard or tls")
	selected   = flag.String("tests", "", "names of tests, separated by commas; empty: all")
	out        = flag.String("out", "", "folder for the results and the report; empty: a temporary one")
	version    = flag.String("hypergate-version", "dev", "the version of hypergate in the report")
	kubeconfig = flag.String("kubeconfig-of-the-guest", "", "use this cluster, which has the class; empty: start one")
	// istiod names a Gateway's Service after the Gateway and its class, and the suite has Gateways with long names.
	// With the class openshift-default, one of these names is longer than the 63 characters that a Service can have.
	class = flag.String("class", "edge", "the GatewayClass")
)

func TestMain(m *testing.M) {
	cluster.MaybeRunNode()
	ctrllog.SetLogger(logr.Discard())
	flag.Parse()
	os.Exit(m.Run())
}

// TestConformance runs Gateway API's conformance suite with one side, and writes what it saw.
func TestConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters: run without -short")
	}
	run := &run{
		side: conformance.Side(*side), set: conformance.Set(*set), names: namesOf(*selected), outcomes: map[string]conformance.Test{},
	}
	run.check(t)
	config := run.cluster(t)
	folder := *out
	if folder == "" {
		folder = t.TempDir()
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	// The results are written also if the suite ends the test.
	t.Cleanup(func() { run.write(t, filepath.Join(folder, string(run.set)+"-"+string(run.side))) })
	run.suite(t, config)
}

// run is one run of the suite.
type run struct {
	side conformance.Side
	set  conformance.Set
	// names are the selected tests. Without any, all are.
	names    []string
	outcomes map[string]conformance.Test
	// report is the suite's report. It is nil until the suite has ended.
	report   []byte
	finished bool
}

func namesOf(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ","), func(name string) bool { return name == "" })
}

// check ends the test if a flag has an unknown value.
func (r *run) check(t *testing.T) {
	t.Helper()
	if r.side != conformance.Split && r.side != conformance.InGuest {
		t.Fatalf("-side: unknown side %q", r.side)
	}
	if r.set != conformance.Standard && r.set != conformance.TLS {
		t.Fatalf("-set: unknown set %q", r.set)
	}
	for _, name := range r.names {
		if !slices.ContainsFunc(tests.ConformanceTests, func(test suite.ConformanceTest) bool { return test.ShortName == name }) {
			t.Fatalf("-tests: there is no test %s", name)
		}
	}
}

// cluster returns the administrator's configuration of a guest in which Gateways are served.
func (r *run) cluster(t *testing.T) *rest.Config {
	t.Helper()
	if *kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	w := r.start(t)
	t.Logf("the clusters run; the guest's kubeconfig: %s", w.GuestKubeconfig)
	return rest.CopyConfig(w.GuestConfig)
}

// write writes the results to FILE.json and, after a complete run, the report to FILE.yaml.
func (r *run) write(t *testing.T, file string) {
	t.Helper()
	results := conformance.Results{Side: r.side, Set: r.set, Finished: r.finished}
	for _, test := range r.outcomes {
		results.Tests = append(results.Tests, test)
	}
	if err := results.Write(file + ".json"); err != nil {
		t.Error(err)
	}
	if r.report != nil && len(r.names) == 0 {
		if err := os.WriteFile(file+".yaml", r.report, 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Log("\n" + results.String())
}

// record notes the outcome of a test that ran. A second record of a test replaces the first.
func (r *run) record(test suite.ConformanceTest, outcome conformance.Outcome, why string, took time.Duration) {
	r.outcomes[test.ShortName] = conformance.Test{
		Name: test.ShortName, Profiles: r.profilesOf(test), Outcome: outcome, Why: why, Seconds: float64(took.Milliseconds()) / 1000,
	}
}

// observed returns the tests of the suite, each of which also records its outcome.
func (r *run) observed(claimed suite.FeaturesSet) []suite.ConformanceTest {
	all := slices.Clone(tests.ConformanceTests)
	for i := range all {
		test := all[i]
		if !r.selects(test) {
			continue
		}
		if missing := missingFeatures(test, claimed); len(missing) > 0 {
			r.record(test, conformance.Skipped, reasonOf(missing), 0)
			continue
		}
		// It fails unless it reaches its end: the suite may end it before, while it applies the manifests.
		r.record(test, conformance.Failed, "its manifests were not applied; see the log", 0)
		all[i].Test = func(t *testing.T, s *suite.ConformanceTestSuite) {
			t.Helper()
			begin := time.Now()
			t.Cleanup(func() {
				switch took := time.Since(begin); {
				case t.Failed():
					r.record(test, conformance.Failed, "see the log", took)
				case t.Skipped():
					r.record(test, conformance.Skipped, "the test skipped itself; see the log", took)
				default:
					r.record(test, conformance.Passed, "", took)
				}
			})
			test.Test(t, s)
		}
	}
	return all
}

// selects reports whether a test is part of the run.
func (r *run) selects(test suite.ConformanceTest) bool {
	if len(r.names) > 0 {
		return slices.Contains(r.names, test.ShortName)
	}
	if r.set == conformance.TLS {
		return needsTLSRoutes(test) || slices.Contains(profilesOf(test), string(suite.GatewayTLSConformanceProfileName))
	}
	return !isMesh(test)
}

func reasonOf(missing []string) string {
	reasons := make([]string, 0, len(missing))
	for _, feature := range missing {
		reason := conformance.NotClaimed()[feature]
		if reason == "" {
			reason = "it is not in the standard channel"
		}
		reasons = append(reasons, fmt.Sprintf("feature %s: %s", feature, reason))
	}
	return strings.Join(reasons, "; ")
}
