package bootstrap_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/envoy/internal/bootstrap"
	"github.com/hypergate/hypergate/test/envoy/internal/translate"
)

func TestParse(t *testing.T) {
	t.Parallel()
	// What pilot-agent of Istio 1.29 passes.
	const agent = "-c etc/istio/proxy/envoy-rev.json --drain-time-s 45 --drain-strategy immediate --local-address-ip-version v4 " +
		"--file-flush-interval-msec 1000 --disable-hot-restart --allow-unknown-static-fields -l warning --component-log-level misc:error " +
		"--skip-deprecated-logs --concurrency 2"
	got, err := bootstrap.Parse(strings.Fields(agent))
	want := bootstrap.Args{
		Config: "etc/istio/proxy/envoy-rev.json", DrainTime: 45 * time.Second, DrainImmediately: true, LogLevel: "warning",
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v, arguments (-want +got):\n%s", err, diff)
	}
	for line, want := range map[string]string{
		"":                               "option -c",
		"-c a --config-yaml {}":          "option --config-yaml is not supported",
		"-c a --drain-time-s x":          "option --drain-time-s",
		"-c a --drain-strategy never":    "neither immediate nor gradual",
		"-c":                             "its value is missing",
		"-c a --mode validate":           "option --mode is not supported",
		"-c a --drain-time-s=4294967296": "out of range",
	} {
		if _, err := bootstrap.Parse(strings.Fields(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error = %v, want %q in it", line, err, want)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	const cluster = `{"name": "xds-grpc", "type": "STATIC", "load_assignment": {"cluster_name": "xds-grpc", "endpoints": [{
		"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": "./etc/istio/proxy/XDS"}}}}]}]}}`
	text := func(apiType, xds string) string {
		return `{"node": {"id": "n"}, "overload_manager": {},
			"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 15000}}},
			"dynamic_resources": {"lds_config": {"ads": {}}, "cds_config": {"ads": {}}, "ads_config": {"api_type": "` + apiType + `",
				"grpc_services": [{"envoy_grpc": {"cluster_name": "` + xds + `"}}]}}, "static_resources": {"clusters": [` + cluster + `]}}`
	}
	config, err := bootstrap.Read([]byte(text("DELTA_GRPC", "xds-grpc")), translate.New())
	if err != nil {
		t.Fatal(err)
	}
	if config.Admin != "127.0.0.1:15000" || config.Node.GetId() != "n" || config.Cluster("xds-grpc") == nil || config.SDSCluster != "" {
		t.Errorf("config = %+v", config)
	}
	for text, want := range map[string]string{
		text("GRPC", "xds-grpc"):    "only DELTA_GRPC is",
		text("DELTA_GRPC", "other"): `there is no static cluster "other"`,
		"{":                         "not valid JSON",
		`{"node": {}}`:              "admin.address.socket_address is missing",
	} {
		if _, err := bootstrap.Read([]byte(text), translate.New()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %q in it", err, want)
		}
	}
}
