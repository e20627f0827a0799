package tunnel

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hypergate/hypergate/pkg/pki"
)

func TestTarget(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"10.1.2.3":         "10.1.2.3:15012",
		"fd00::1":          "[fd00::1]:15012",
		"::ffff:10.1.2.3":  "10.1.2.3:15012",
		"127.0.0.1":        "",
		"127.8.8.8":        "",
		"::1":              "",
		"::ffff:127.0.0.1": "",
		"0.0.0.0":          "",
		"::":               "",
		"169.254.169.254":  "",
		"fe80::1":          "",
		"fd00::1%eth0":     "",
		"224.0.0.1":        "",
		"255.255.255.255":  "",
		"localhost":        "",
		"":                 "",
	} {
		got, err := Target(in, 15012)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
	if _, err := Target("10.1.2.3", 0); err == nil {
		t.Error("port 0 is accepted")
	}
}

func TestCredential(t *testing.T) {
	t.Parallel()
	ca, err := pki.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	good := map[string]string{
		ServerFile: "https://hunter2.example.com:6443/base/\n", CAFile: string(ca.Root), TokenFile: "hunter2\n",
	}
	for name, tc := range map[string]struct {
		file, content string
		want          string // a part of the error
	}{
		"good":                 {},
		"no server":            {ServerFile, "-", "server does not exist"},
		"an empty server":      {ServerFile, "\n", "server is empty"},
		"a server without TLS": {ServerFile, "http://hunter2", "server is not an address"},
		"a user in the server": {ServerFile, "https://hunter2@x", "server is not an address"},
		"a server with spaces": {ServerFile, "https://hunter2 x", "server is not an address"},
		"a server of megabytes": {
			ServerFile, "https://x/" + strings.Repeat("y", serverLimit), "server is larger than 2048 bytes",
		},
		"no CA":                {CAFile, "-", "ca.crt does not exist"},
		"a CA that is none":    {CAFile, "hunter2", "ca.crt has no certificate"},
		"no token":             {TokenFile, "-", "token does not exist"},
		"a header in a token":  {TokenFile, "hunter2\r\nX-Remote-User: admin", "token is not a bearer token"},
		"a token of megabytes": {TokenFile, strings.Repeat("x", tokenLimit+1), "token is larger than"},
	} {
		dir := t.TempDir()
		for file, content := range good {
			if file == tc.file {
				content = tc.content
			}
			if content == "-" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Credential(dir).read()
		switch {
		case tc.want == "" && (err != nil || got.address != "hunter2.example.com:6443" || got.base != "/base/" || got.token != "hunter2"):
			t.Errorf("%s: %+v, %v", name, got, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
