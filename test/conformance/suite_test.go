package conformance_test

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/hypergate/hypergate/pkg/charts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/apis/v1alpha2"
	"sigs.k8s.io/gateway-api/apis/v1alpha3"
	"sigs.k8s.io/gateway-api/apis/v1beta1"
	suitemanifests "sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/hypergate/hypergate/test/conformance"
)

// dataPlane is in each report, because the results say nothing about Envoy.
const dataPlane = "data plane: a stand-in, not Envoy; not for submission"

// suite runs the suite on a guest, and keeps its report.
func (r *run) suite(t *testing.T, guest *rest.Config) {
	t.Helper()
	options := r.options(t, guest)
	all := r.observed(options.SupportedFeatures)
	if len(r.names) > 0 {
		all = slices.DeleteFunc(all, func(test suite.ConformanceTest) bool { return !r.selects(test) })
	}
	for _, test := range all {
		if !r.selects(test) {
			options.SkipTests = append(options.SkipTests, test.ShortName)
		}
	}
	s, err := suite.NewConformanceTestSuite(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Setup(t, all)
	if err := s.Run(t, all); err != nil {
		t.Fatal(err)
	}
	report, err := s.Report()
	if err != nil {
		t.Fatal(err)
	}
	if r.report, err = yaml.Marshal(report); err != nil {
		t.Fatal(err)
	}
	r.finished = true
}

func (r *run) options(t *testing.T, guest *rest.Config) suite.ConformanceOptions {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, gatewayv1.Install, v1beta1.Install, v1alpha2.Install, v1alpha3.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	options := client.Options{Scheme: scheme}
	c, err := client.New(guest, options)
	if err != nil {
		t.Fatal(err)
	}
	clientset, err := kubernetes.NewForConfig(guest)
	if err != nil {
		t.Fatal(err)
	}
	return suite.ConformanceOptions{
		Client: c, ClientOptions: options, Clientset: clientset, RestConfig: guest, ManifestFS: []fs.FS{&suitemanifests.Manifests},
		GatewayClassName: *class, SupportedFeatures: r.claimed(), ConformanceProfiles: r.profiles(),
		CleanupBaseResources: *kubeconfig != "", TimeoutConfig: config.DefaultTimeoutConfig(), Implementation: r.implementation(),
		// The CRD of TLSRoutes is of another channel, and its annotation says another version (see ServeTLSRoutes).
		AllowCRDsMismatch: r.set == conformance.TLS,
	}
}

// profiles returns the profiles of the set.
func (r *run) profiles() sets.Set[suite.ConformanceProfileName] {
	if r.set == conformance.TLS {
		return sets.New(suite.GatewayTLSConformanceProfileName)
	}
	return sets.New(suite.GatewayHTTPConformanceProfileName, suite.GatewayGRPCConformanceProfileName)
}

// claimed returns the features that are tested: all of the standard channel for gateways, except those that are not
// claimed. Istio's own run of the suite claims the same.
func (r *run) claimed() suite.FeaturesSet {
	out := suite.FeaturesSet{}
	mesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	for feature := range features.AllFeatures {
		standard := feature.Channel == features.FeatureChannelStandard ||
			r.set == conformance.TLS && feature.Name == features.SupportTLSRoute
		if _, refused := conformance.NotClaimed()[string(feature.Name)]; standard && !refused && !mesh.Has(feature.Name) {
			out.Insert(feature.Name)
		}
	}
	return out
}

func (r *run) implementation() confv1.Implementation {
	if r.side == conformance.InGuest {
		return confv1.Implementation{
			Organization: "istio", Project: "istio in the guest, for comparison", URL: "https://istio.io/",
			Version: charts.EmbeddedVersion + " (" + dataPlane + ")", Contact: []string{"https://github.com/hypergate/hypergate/issues"},
		}
	}
	return confv1.Implementation{
		Organization: "hypergate", Project: "hypergate", URL: "https://github.com/hypergate/hypergate",
		Version: *version + ", Istio " + charts.EmbeddedVersion + " (" + dataPlane + ")",
		Contact: []string{"https://github.com/hypergate/hypergate/issues"},
	}
}

// profilesOf returns the names of the gateway profiles to which a test belongs: those that have all of its features.
func profilesOf(test suite.ConformanceTest) []string {
	var out []string
	for _, profile := range []suite.ConformanceProfile{
		suite.GatewayHTTPConformanceProfile, suite.GatewayGRPCConformanceProfile, suite.GatewayTLSConformanceProfile,
	} {
		if profile.CoreFeatures.Union(profile.ExtendedFeatures).HasAll(test.Features...) {
			out = append(out, string(profile.Name))
		}
	}
	return out
}

// missingFeatures returns the features of a test that are not claimed.
func missingFeatures(test suite.ConformanceTest, claimed suite.FeaturesSet) []string {
	var out []string
	for _, feature := range test.Features {
		if !claimed.Has(feature) {
			out = append(out, string(feature))
		}
	}
	return out
}

func needsTLSRoutes(test suite.ConformanceTest) bool {
	return slices.Contains(test.Features, features.SupportTLSRoute)
}

// profilesOf returns the profiles of the run to which a test belongs.
func (r *run) profilesOf(test suite.ConformanceTest) []string {
	return slices.DeleteFunc(profilesOf(test), func(name string) bool {
		return !r.profiles().Has(suite.ConformanceProfileName(name))
	})
}

func isMesh(test suite.ConformanceTest) bool {
	return slices.Contains(test.Features, features.SupportMesh)
}
