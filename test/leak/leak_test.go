package leak_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hypergate/hypergate/test/leak"
)

const (
	token = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJpc3Rpb2QifQ.c2lnbmF0dXJlLXRoYXQtaXMtbG9uZy1lbm91Z2g"
	name  = "clusters-guest1"
)

// key returns a new private key in PEM, in two encodings.
func key(tb testing.TB) (ec, pkcs8 string) {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		tb.Fatal(err)
	}
	other, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		tb.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("EC PRIVATE KEY", der), encode("PRIVATE KEY", other)
}

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func TestSearch(t *testing.T) {
	ec, pkcs8 := key(t)
	block, _ := pem.Decode([]byte(pkcs8))
	secrets := leak.NewSecrets()
	secrets.Add("the key", []byte(ec))
	secrets.Add("the kubeconfig", []byte("users:\n- user:\n    token: "+token+"\n"))
	secrets.Add("the password", []byte("12345678"))
	secrets.Add("the PIN", []byte("1234"))
	secrets.AddName("the namespace", name)
	if diff := cmp.Diff([]string{"the PIN (4 bytes)"}, secrets.Skipped()); diff != "" {
		t.Errorf("skipped, -want +got:\n%s", diff)
	}
	inJSON, err := json.Marshal(map[string]string{"a": ec})
	if err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		text string
		want string
	}{
		"plain":                           {"x" + ec + "y", "the key"},
		"a line":                          {strings.Split(ec, "\n")[1], "the key"},
		"in JSON":                         {string(inJSON), "the key"},
		"indented":                        {strings.ReplaceAll(ec, "\n", "\n  "), "the key"},
		"base64":                          {b64(ec), "the key"},
		"base64, offset 1":                {b64("x" + ec), "the key"},
		"base64, offset 2":                {b64("xy" + ec), "the key"},
		"base64 of base64":                {b64("z" + b64("xy"+ec)), "the key"},
		"another encoding":                {string(block.Bytes), "the key"},
		"another encoding in base64":      {strings.ReplaceAll(pkcs8, "\n", ""), "the key"},
		"hexadecimal":                     {hex.EncodeToString(block.Bytes), "the key"},
		"the token":                       {"Bearer " + token, "the kubeconfig"},
		"its signature":                   {strings.Split(token, ".")[2], "the kubeconfig"},
		"base64 for URLs":                 {base64.RawURLEncoding.EncodeToString([]byte(token)), "the kubeconfig"},
		"the shortest":                    {"12345678", "the password"},
		"the shortest in base64":          {b64("12345678"), "the password"},
		"the shortest in base64 of other": {b64("ab12345678cd"), "the password"},
		"a name":                          {"istiod-" + name + ".example.com", "the namespace"},
		"a name in base64":                {b64(`{"namespace":"` + name + `"}`), "the namespace"},
		"a longer name":                   {name + "0", ""},
		"another":                         {"a" + name, ""},
		"too short":                       {"1234", ""},
		"part of a line":                  {strings.Split(ec, "\n")[1][:40], ""},
		"nothing":                         {"", ""},
	} {
		t.Run(what, func(t *testing.T) {
			found := secrets.Search(leak.Entry{Where: "here", Data: []byte(tc.text)})
			names := map[string]bool{}
			for _, f := range found {
				names[f.Name] = true
				if f.Where != "here" {
					t.Errorf("found %s", f)
				}
			}
			want := map[string]bool{}
			if tc.want != "" {
				want[tc.want] = true
			}
			if diff := cmp.Diff(want, names); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestPublicDataIsNotSearched checks that certificates are not searched for.
func TestPublicDataIsNotSearched(t *testing.T) {
	secrets := leak.NewSecrets()
	public := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat("certificate", 20))}))
	secrets.Add("a bundle", []byte(public+"\n"+public))
	secrets.Add("nothing", nil)
	ec, _ := key(t)
	secrets.Add("both", []byte(public+ec))
	if diff := cmp.Diff([]string{"both"}, secrets.Names()); diff != "" {
		t.Errorf("looked for, -want +got:\n%s", diff)
	}
	if found := secrets.Search(leak.Entry{Data: []byte(public)}); len(found) > 0 {
		t.Errorf("found %s", found)
	}
}

// TestSecretsGrow checks that a search finds values that were added after an earlier search.
func TestSecretsGrow(t *testing.T) {
	secrets, entry := leak.NewSecrets(), leak.Entry{Data: []byte("the second secret")}
	secrets.Add("first", []byte("the first secret"))
	if found := secrets.Search(entry); len(found) > 0 {
		t.Errorf("found %s", found)
	}
	secrets.Add("second", []byte("the second secret"))
	if found := secrets.Search(entry); len(found) != 1 {
		t.Errorf("found %s", found)
	}
}

// TestErrorsOfEtcdAreErrors checks that errors of etcd are not mistaken for an empty etcd.
func TestErrorsOfEtcdAreErrors(t *testing.T) {
	for what, answer := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"no JSON":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"cut":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"kvs":[`)) },
	} {
		server := httptest.NewServer(answer)
		if _, err := leak.Keys(t.Context(), server.URL); err == nil {
			t.Errorf("%s: there are keys", what)
		}
		if _, err := leak.File(t.Context(), server.URL); err == nil {
			t.Errorf("%s: there is a file", what)
		}
		server.Close()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"result":{"blob":"AAAA"}}{"error":{"message":"no"}}`))
	}))
	defer server.Close()
	if _, err := leak.File(t.Context(), server.URL); err == nil {
		t.Error("after an error there is a file")
	}
}

// TestArchive checks that an archive is read whole, and that one that is cut is an error: a part of it could have no
// secret.
func TestArchive(t *testing.T) {
	var data bytes.Buffer
	compressed := gzip.NewWriter(&data)
	archive := tar.NewWriter(compressed)
	want := []leak.Entry{{Where: "bundle/a", Data: []byte("first")}, {Where: "bundle/b", Data: []byte(token)}}
	for _, e := range want {
		if err := archive.WriteHeader(&tar.Header{Name: e.Where, Mode: 0o600, Size: int64(len(e.Data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write(e.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	for name, tc := range map[string]struct {
		data []byte
		want []leak.Entry
	}{
		"whole": {data.Bytes(), want},
		"cut":   {data.Bytes()[:data.Len()/2], nil},
		"empty": {nil, nil},
	} {
		if err := os.WriteFile(file, tc.data, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := leak.Archive(file)
		if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != (tc.want != nil) {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, diff)
		}
	}
}

func BenchmarkSearch(b *testing.B) {
	secrets := leak.NewSecrets()
	for range 50 {
		ec, _ := key(b)
		secrets.Add("key", []byte(ec))
	}
	data := make([]byte, 16<<20)
	_, _ = rand.Read(data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if found := secrets.Search(leak.Entry{Data: data}); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
