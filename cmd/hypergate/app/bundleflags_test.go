package app_test

import "testing"

// TestSupportFlags checks flags of the commands bundle and proxies that cannot be used.
func TestSupportFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	cluster := kubeconfigOf(t, "https://192.0.2.1:6443")
	for _, tc := range []struct {
		flags []string
		want  string
	}{
		{[]string{"bundle", "--timeout=0s"}, "--timeout: 0s must be greater than 0"},
		{[]string{"bundle", "--max-size=0"}, "--max-size: 0 is not between 1 and 4096"},
		{[]string{"bundle"}, "finding the management cluster: no kubeconfig was found"},
		{[]string{"bundle", "--kubeconfig=" + cluster, "--guest-kubeconfig=/does/not/exist"}, "finding the guest: stat /does/not/exist"},
		{[]string{"bundle", "--kubeconfig=" + cluster, "-o=" + cluster}, "--output: open " + cluster + ": file exists"},
		{[]string{"bundle", "--kubeconfig=" + cluster, "-o=" + cluster + "/"}, "--output: mkdir " + cluster},
		{
			[]string{"bundle", "--kubeconfig=" + cluster, "--context=nope"},
			`finding the management cluster: context "nope" does not exist: kubectl config get-contexts lists the contexts`,
		},
		{[]string{"proxies"}, "--guest-context or --guest-kubeconfig is required"},
		{[]string{"proxies", "--guest-context=a"}, "--address or --namespace is required"},
		{[]string{"proxies", "--guest-context=a", "-n=b", "-o=html"}, `--output: unsupported value "html"`},
		{[]string{"proxies", "--guest-context=a", "--address=istiod"}, `--address: "istiod" is not host:port`},
		{[]string{"proxies", "--guest-context=a", "-n=b", "--connect-to=istiod"}, `--connect-to: "istiod" is not host:port`},
		{[]string{"proxies", "--guest-context=a", "-n=b", "--timeout=-1s"}, "--timeout: -1s must be greater than 0"},
	} {
		fails(t, tc.flags, tc.want)
	}
}
