package model_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/test/modeltest"
)

func TestLifecycle(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	for name, tc := range map[string]struct {
		plane model.ControlPlane
		want  model.Lifecycle
	}{
		"there is none":           {model.ControlPlane{}, model.Active{}},
		"an ordinary one":         {modeltest.ControlPlane(), model.Active{}},
		"paused":                  {model.ControlPlane{PausedUntil: "true"}, model.Paused{}},
		"paused, as Go writes it": {model.ControlPlane{PausedUntil: "1"}, model.Paused{}},
		"not paused":              {model.ControlPlane{PausedUntil: "false"}, model.Active{}},
		"paused for a time":       {model.ControlPlane{PausedUntil: later.Format(time.RFC3339)}, model.Paused{Until: later}},
		"that is over":            {model.ControlPlane{PausedUntil: now.Format(time.RFC3339)}, model.Active{}},
		"an unreadable time":      {model.ControlPlane{PausedUntil: "tomorrow"}, model.Active{}},
		"without ingress":         {model.ControlPlane{DisabledCapabilities: []string{"Console", "Ingress"}}, model.Disabled{}},
		"not enabled":             {model.ControlPlane{NotEnabled: true}, model.Disabled{ByFlag: true}},
		"not enabled, with an ID": {
			model.ControlPlane{NotEnabled: true, RemovalID: "a"}, model.Disabled{ByFlag: true, RemovalID: "a"},
		},
		"not enabled, paused":    {model.ControlPlane{NotEnabled: true, PausedUntil: "true"}, model.Paused{}},
		"without a console":      {model.ControlPlane{DisabledCapabilities: []string{"Console"}}, model.Active{}},
		"paused without ingress": {model.ControlPlane{PausedUntil: "true", DisabledCapabilities: []string{"Ingress"}}, model.Paused{}},
		"deleted while paused":   {model.ControlPlane{PausedUntil: "true", Deleting: true}, model.Deleting{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.plane.Lifecycle(now); got != tc.want {
				t.Errorf("%#v, want %#v", got, tc.want)
			}
		})
	}
}

func TestLifecycleOfACluster(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*model.ControlPlane)
		want model.Lifecycle
	}{
		"up":         {func(*model.ControlPlane) {}, model.Active{}},
		"not up yet": {func(c *model.ControlPlane) { c.Stage = model.Uninitialized }, model.Starting{}},
		"paused":     {func(c *model.ControlPlane) { c.PausedUntil = model.PausedForNow }, model.Paused{}},
		"paused before it is up": {
			func(c *model.ControlPlane) { c.PausedUntil, c.Stage = model.PausedForNow, model.Uninitialized }, model.Paused{},
		},
		"going":               {func(c *model.ControlPlane) { c.Deleting = true }, model.Deleting{}},
		"going, and paused":   {func(c *model.ControlPlane) { c.Deleting, c.PausedUntil = true, model.PausedForNow }, model.Deleting{}},
		"going, and never up": {func(c *model.ControlPlane) { c.Deleting, c.Stage = true, model.Uninitialized }, model.Deleting{}},
	} {
		c := model.ControlPlane{
			ReportedBy: model.ClusterAPI, APIVersion: "cluster.x-k8s.io/v1beta2", Name: "guest1", UID: "7f3b",
		}
		tc.edit(&c)
		if diff := cmp.Diff(tc.want, c.Lifecycle(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if c.Exists() || !c.Owns() || len(c.Warnings()) > 0 {
			t.Errorf("%s: it passes for a HostedControlPlane", name)
		}
	}
}

func TestWarnings(t *testing.T) {
	if got := (model.ControlPlane{PausedUntil: "tomorrow"}).Warnings(); got != nil {
		t.Errorf("of none: %q", got)
	}
	plane := modeltest.ControlPlane()
	if got := plane.Warnings(); len(got) > 0 {
		t.Errorf("of an ordinary one: %q", got)
	}
	plane.PausedUntil, plane.Availability, plane.UnreadFields = "tomorrow", "FiveReplicas", []string{"this and that"}
	plane.Labels = map[string]string{"app": "x", "no label": "x", "fine": "x"}
	got := strings.Join(plane.Warnings(), "\n")
	for _, want := range []string{"this and that", `"tomorrow"`, `"FiveReplicas"`, "app=x", "no label=x"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "fine") {
		t.Errorf("there is a warning of what is followed:\n%s", got)
	}
}
