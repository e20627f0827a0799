package kubeconfig

import (
	"strings"
	"testing"
)

// TestInSecret: the first key with content is used, in one order for Secrets and for mounted directories.
func TestInSecret(t *testing.T) {
	for name, tc := range map[string]struct {
		data map[string]string
		key  string
		want string // a part of the error
	}{
		"HyperShift's":             {map[string]string{"kubeconfig": "a"}, "kubeconfig", ""},
		"Cluster API's":            {map[string]string{"value": "a"}, "value", ""},
		"both":                     {map[string]string{"kubeconfig": "a", "value": "b"}, "kubeconfig", ""},
		"both, HyperShift's empty": {map[string]string{"kubeconfig": " \n", "value": "b"}, "value", ""},
		"empty":                    {map[string]string{"value": " "}, "", "its key value is empty"},
		"both empty":               {map[string]string{"kubeconfig": "", "value": ""}, "", "its key kubeconfig is empty"},
		"another key":              {map[string]string{"ca.crt": "a", "admin.conf": "b"}, "", "but admin.conf, ca.crt"},
		"none":                     {nil, "", "but none at all"},
	} {
		data := map[string][]byte{}
		for key, content := range tc.data {
			data[key] = []byte(content)
		}
		content, key, err := InSecret(data)
		if key != tc.key || string(content) != tc.data[tc.key] {
			t.Errorf("%s: key %q with %q, want %q", name, key, content, tc.key)
		}
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
