package app_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCRDFlags: the guest's part of the plan follows them.
func TestCRDFlags(t *testing.T) {
	const policy, crd = "kind: ValidatingAdmissionPolicy\n", "kind: CustomResourceDefinition\n"
	for name, tc := range map[string]struct {
		flags       []string
		has, hasNot []string
	}{
		"as it is":   {nil, []string{policy, crd, "kind: ValidatingAdmissionPolicyBinding"}, []string{"argocd"}},
		"open":       {[]string{"--protect-crds=false"}, []string{crd}, []string{"ValidatingAdmissionPolicy"}},
		"a writer":   {[]string{"--crd-writers=system:serviceaccount:argocd:sync"}, []string{policy, "system:serviceaccount:argocd:sync"}, nil},
		"unmanaged":  {[]string{"--crd-management=Unmanaged"}, nil, []string{policy, crd, "kind: ClusterRole"}},
		"adopted":    {[]string{"--adopt-crds"}, []string{policy, crd}, nil},
		"without":    {[]string{"--crds=false"}, []string{"kind: ClusterRole"}, []string{policy, crd}},
		"standalone": {[]string{"--topology=standalone", "--namespace=", "--xds-address="}, []string{policy, crd}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := execute(t, append([]string{"render", "--side=guest"}, flags(tc.flags...)...)...)
			if r.code != 0 {
				t.Fatal(r.errOut)
			}
			for _, w := range tc.has {
				if !strings.Contains(r.out, w) {
					t.Errorf("there is no %q", w)
				}
			}
			for _, w := range tc.hasNot {
				if strings.Contains(r.out, w) {
					t.Errorf("there is %q", w)
				}
			}
		})
	}
}

func TestBadFlagsOfCRDs(t *testing.T) {
	good := "--guest-kubeconfig=" + goodKubeconfig(t)
	closed := "--guest-kubeconfig=" + file(t, "closed", strings.Replace(kubeconfig, ", certificate-authority: ca.crt", "", 1))
	for name, tc := range map[string]struct {
		flags []string
		want  []string
	}{
		"an argument":            {[]string{good, "httproutes"}, []string{`unknown command "httproutes"`}},
		"output":                 {[]string{good, "-o", "wide"}, []string{"--output", `"wide"`, "table, json, yaml"}},
		"dry run":                {[]string{good, "--dry-run=client"}, []string{"--dry-run", `"client"`, "give adopt"}},
		"no guest":               {nil, []string{"--guest-kubeconfig must be given"}},
		"guest not there":        {[]string{"--guest-kubeconfig=" + filepath.Join(t.TempDir(), "guest")}, []string{"--guest-kubeconfig", "there is no file"}},
		"standalone, not in one": {[]string{"--topology=standalone"}, []string{"outside a pod, give --guest-kubeconfig"}},
		"unknown Istio resource": {[]string{good, "--istio-resources=dragons"}, []string{"--istio-resources", `"dragons"`}},
		"bad revision":           {[]string{good, "--revision=default"}, []string{"--revision", `"default"`}},
		"unknown management":     {[]string{good, "--crd-management=no"}, []string{"--crd-management", `"no"`}},
		"a flag of run":          {[]string{good, "--pilot-image=x"}, []string{"unknown flag: --pilot-image"}},
		"nobody answers":         {[]string{closed, "--timeout=300ms"}, []string{"looking at the guest for 300ms", "waiting for customresourcedefinitions"}},
	} {
		t.Run(name, func(t *testing.T) { fails(t, append([]string{"crds"}, tc.flags...), tc.want...) })
	}
}
