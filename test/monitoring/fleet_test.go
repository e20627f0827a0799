package monitoring

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTheAlertAboutTheFleet checks fleets of hosted clusters, some of which are degraded or silent.
func TestTheAlertAboutTheFleet(t *testing.T) {
	t.Parallel()
	const (
		isDegraded    = `hypergate_condition{type="Degraded",status="True"} 1x6000`
		neverLed      = `hypergate_leader{} gone`
		withoutBuild  = `hypergate_build_info{version="v0.3.0"} gone`
		withoutScrape = `hypergate_leader{} 1x10 stale`
		crashes       = `hypergate_leader{} 1x10 0x6000`
		noReplicas    = `kube_deployment_spec_replicas{deployment="hypergate"} 1x10 0x6000`
		notDeployed   = `kube_deployment_spec_replicas{deployment="hypergate"} 1x10 stale`
		isNew         = `kube_deployment_created{deployment="hypergate"} 300x6000`
		isOld         = `kube_deployment_created{deployment="hypergate"} -3600x6000`
		restarts      = `process_start_time_seconds{container="hypergate",pod="p"} 0x1 60x1 120x1 180x1 240x1 300x6000`
		noDeployments = `kube_deployment_spec_replicas{deployment="hypergate"} gone`
	)
	for name, tc := range map[string]struct {
		clusters, affected int
		series             []string
		want               bool
	}{
		"2 of 20 are degraded":                {20, 2, []string{isDegraded}, true},
		"1 of 20 is degraded":                 {20, 1, []string{isDegraded}, false},
		"10 of 19 are degraded":               {19, 10, []string{isDegraded}, false},
		"3 of 40 are degraded":                {40, 3, []string{isDegraded}, true},
		"2 of 20 crash":                       {20, 2, []string{crashes}, true},
		"1 of 20 crashes":                     {20, 1, []string{crashes}, false},
		"all crash, and have no metrics":      {20, 20, []string{withoutScrape, `hypergate_build_info{version="v0.3.0"} 1x10 stale`}, true},
		"2 of 20 have never run":              {20, 2, []string{neverLed, withoutBuild}, true},
		"2 of 20 are new":                     {20, 2, []string{neverLed, withoutBuild, isNew}, false},
		"2 of 20 have never run for an hour":  {20, 2, []string{neverLed, withoutBuild, isOld}, true},
		"all are replaced at once":            {20, 20, []string{`hypergate_leader{} 1x10 0x3 1x6000`}, false},
		"2 of 20 have no replicas":            {20, 2, []string{withoutScrape, noReplicas}, false},
		"2 of 20 are uninstalled":             {20, 2, []string{withoutScrape, notDeployed}, false},
		"kube-state-metrics is not installed": {20, 2, []string{crashes, noDeployments}, false},
		"2 of 20 are degraded, without it":    {20, 2, []string{isDegraded, noDeployments}, true},
		"2 of 20 restart again and again":     {20, 2, []string{restarts}, true},
		"2 of 20 restart, without it":         {20, 2, []string{restarts, noDeployments}, true},
		"1 of 20 restarts, and is degraded":   {20, 1, []string{restarts, isDegraded}, false},
		"1 of 20 restarts, and is silent":     {20, 1, []string{restarts, crashes}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkFleet(t, tc.clusters, tc.want, func(i int) []string {
				if i < tc.affected {
					return tc.series
				}
				return nil
			})
		})
	}
}

// TestARolloutThroughAFleetIsNoFault replaces hypergate in one cluster after the other. At any time, three of twenty
// have had no leader for less than five minutes.
func TestARolloutThroughAFleetIsNoFault(t *testing.T) {
	t.Parallel()
	checkFleet(t, 20, false, func(i int) []string {
		return []string{fmt.Sprintf(`hypergate_leader{} 1x%d 0x2 1x6000`, 10+i)}
	})
}

// checkFleet checks whether the alert about the fleet fires after half an hour. Each cluster has some series that
// differ from those of a healthy one.
func checkFleet(t *testing.T, clusters int, want bool, differing func(i int) []string) {
	t.Helper()
	var series []string
	for i := range clusters {
		series = append(series, healthy(fmt.Sprint("clusters-guest", i), differing(i)...)...)
	}
	got := firing(t, series, 28*time.Minute)
	if fires := slices.Contains(got, "HypergateFleetDegraded critical"); fires != want {
		t.Errorf("it fires: %t, want %t; all: %q", fires, want, got)
	}
}
