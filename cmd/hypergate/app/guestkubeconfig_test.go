package app_test

import (
	"testing"
)

// TestGuestKubeconfigFlags checks that flags that cannot be used end in one error, before any request.
func TestGuestKubeconfigFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	guest := "--guest-kubeconfig=" + kubeconfigOf(t, "https://192.0.2.1:6443")
	for name, tc := range map[string]struct {
		flags []string
		want  string
	}{
		"no guest":          {nil, "--guest-context or --guest-kubeconfig is required"},
		"no namespace":      {[]string{guest, "--apply"}, "--namespace is required with --apply"},
		"a Secret, printed": {[]string{guest, "--secret=a"}, "require --apply"},
		"a short lifetime":  {[]string{guest, "--duration=9m59s"}, "--duration: 9m59s is not between 10m"},
		"a long lifetime":   {[]string{guest, "--duration=721h"}, "--duration: 721h0m0s is not between 10m"},
		"a server":          {[]string{guest, "--server=kube-apiserver:6443"}, `--server: "kube-apiserver:6443" is not a valid URL`},
		"a timeout":         {[]string{guest, "--request-timeout=0s"}, "--request-timeout: 0s must be greater than 0"},
		"no such file": {
			[]string{"--guest-kubeconfig=/does/not/exist"},
			"finding the guest: stat /does/not/exist: no such file or directory: check --guest-kubeconfig",
		},
		"no such context": {[]string{guest, "--guest-context=other"}, `finding the guest: context "other" does not exist`},
		"no kubeconfig":   {[]string{"--guest-context=other"}, "finding the guest"},
		"no management": {
			[]string{guest, "-n=a", "--apply"},
			"finding the management cluster: no kubeconfig was found: set --kubeconfig",
		},
		"no authority":      {[]string{guest}, "your kubeconfig of the guest has no certificate authority: set --certificate-authority"},
		"no such authority": {[]string{guest, "--certificate-authority=/does/not/exist"}, "--certificate-authority: open /does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) { fails(t, append([]string{"guest-kubeconfig"}, tc.flags...), tc.want) })
	}
}
