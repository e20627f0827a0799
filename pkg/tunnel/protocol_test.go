package tunnel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

const goodRequest = "GET /tunnel HTTP/1.1\r\nHost: hypergate-tunnel\r\nConnection: Upgrade\r\nUpgrade: hypergate-tunnel\r\n\r\n"

func TestReadUpgrade(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string { return strings.Replace(goodRequest, old, replacement, 1) }
	for name, tc := range map[string]struct {
		request string
		status  int    // of the refusal; 0 is none
		reason  string // a part of the error
	}{
		"ours":                       {request: goodRequest},
		"what the sidecar sends":     {request: with("\r\n\r\n", "\r\nX-Forwarded-For: 10.0.0.1\r\nUser-Agent: x\r\n\r\n")},
		"several connection options": {request: with("Connection: Upgrade", "Connection: keep-alive, upgrade")},
		"another protocol":           {with("Upgrade: hypergate-tunnel", "Upgrade: websocket"), 426, "hypergate-tunnel"},
		"two protocols":              {with("Upgrade: hypergate-tunnel", "Upgrade: hypergate-tunnel, x"), 426, "hypergate-tunnel"},
		"the protocol twice": {
			with("Upgrade: hypergate-tunnel", "Upgrade: hypergate-tunnel\r\nUpgrade: hypergate-tunnel"), 426, "hypergate-tunnel",
		},
		"no upgrade":           {"GET /tunnel HTTP/1.1\r\nHost: x\r\n\r\n", 426, "hypergate-tunnel"},
		"no connection option": {with("Connection: Upgrade\r\n", ""), 426, "hypergate-tunnel"},
		"another path":         {with("/tunnel", "/metrics"), 404, "/tunnel"},
		"another method":       {with("GET", "POST"), 400, "GET"},
		"HTTP/1.0":             {with("HTTP/1.1", "HTTP/1.0"), 400, "HTTP/1.1"},
		"a body":               {with("\r\n\r\n", "\r\nContent-Length: 3\r\n\r\nabc"), 400, "body"},
		"a body in chunks":     {with("\r\n\r\n", "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, "body"},
		"bytes after it":       {goodRequest + "\x16\x03\x01", 400, "after the request"},
		"TLS":                  {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "not an HTTP request"},
		"too large":            {with("\r\n\r\n", "\r\nX: "+strings.Repeat("x", requestLimit)+"\r\n\r\n"), 431, "8192"},
		"nothing":              {"", 0, "ended before a request"},
		"half of it":           {goodRequest[:40], 0, "ended before a request"},
	} {
		err := readUpgrade(strings.NewReader(tc.request))
		if tc.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		no, is := errors.AsType[refusal](err)
		if err == nil || is != (tc.status > 0) || no.status != tc.status || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: %d %v, want %d with %q", name, no.status, err, tc.status, tc.reason)
		}
	}
	if err := readUpgrade(bytes.NewReader(upgradeRequest(requestPath, "t"))); err != nil {
		t.Errorf("the sidecar's own request: %v", err)
	}
}

// TestRefusal checks that a client of HTTP understands a refusal.
func TestRefusal(t *testing.T) {
	t.Parallel()
	_, err := readAnswer(bytes.NewReader(refusal{http.StatusUpgradeRequired, "only this protocol"}.bytes()))
	answered, is := errors.AsType[statusError](err)
	if !is || answered.status != http.StatusUpgradeRequired || !strings.Contains(answered.body, "only this protocol") {
		t.Errorf("%v", err)
	}
}

func TestReadAnswer(t *testing.T) {
	t.Parallel()
	ours := string(upgradeAnswer())
	for name, tc := range map[string]struct {
		answer string
		status int
		reason string // a part of the error
	}{
		"ours":             {answer: ours},
		"a proxy's header": {answer: strings.Replace(ours, "\r\n\r\n", "\r\nAudit-Id: x\r\n\r\n", 1)},
		"another protocol": {strings.Replace(ours, "Upgrade: hypergate-tunnel", "Upgrade: websocket", 1), 0, `"websocket"`},
		"forbidden":        {"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno\x1b!", 403, `"no !"`},
		"no end":           {"HTTP/1.1 503 x\r\n\r\n" + strings.Repeat("y", 1<<20), 503, "yyy..."},
		"too large":        {"HTTP/1.1 101 x\r\nX: " + strings.Repeat("x", answerLimit) + "\r\n\r\n", 0, "larger than 16384 bytes"},
		"no HTTP":          {"SSH-2.0-x\r\n\r\n", 0, "reading the API server's answer"},
		"cut":              {ours[:20], 0, "unexpected EOF"},
	} {
		rest, err := readAnswer(strings.NewReader(tc.answer + "the relay's bytes"))
		if tc.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else if got, _ := io.ReadAll(rest); string(got) != "the relay's bytes" {
				t.Errorf("%s: %q is left", name, got)
			}
			continue
		}
		if tc.answer == ours[:20] {
			_, err = readAnswer(strings.NewReader(tc.answer))
		}
		answered, is := errors.AsType[statusError](err)
		if err == nil || is != (tc.status > 0) || answered.status != tc.status || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: %d %.300v, want %d with %q", name, answered.status, err, tc.status, tc.reason)
		}
		if err != nil && len(err.Error()) > 2*reasonKept {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
	rest, err := readAnswer(iotest.OneByteReader(strings.NewReader(ours + "more")))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(rest); string(got) != "more" {
		t.Errorf("byte by byte: %q is left", got)
	}
}

func TestAgreed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		versions   []Version
		negotiated string
		want       Version // 0 is an error
	}{
		{[]Version{2, 1}, "hypergate-tunnel/2", 2},
		{[]Version{2, 1}, "hypergate-tunnel/1", 1},
		{[]Version{1}, "hypergate-tunnel/2", 0},
		{[]Version{1}, "hypergate-tunnel/01", 0},
		{[]Version{1}, "h2", 0},
		{[]Version{1}, "", 0}, // a peer without ALPN
	} {
		got, err := agreed(tc.versions, tc.negotiated)
		if got != tc.want || (err == nil) != (tc.want > 0) {
			t.Errorf("%v with %q: %d, %v", tc.versions, tc.negotiated, got, err)
		}
	}
}

func TestProxyPath(t *testing.T) {
	t.Parallel()
	got := []string{proxyPath("", "istio-system", "istiod-relay-0"), proxyPath("/clusters/a/", "n", "p")}
	want := []string{
		"/api/v1/namespaces/istio-system/pods/http:istiod-relay-0:15443/proxy/tunnel",
		"/clusters/a/api/v1/namespaces/n/pods/http:p:15443/proxy/tunnel",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzReadUpgrade checks that a relay accepts only our own protocol, and reads no more than its limit.
func FuzzReadUpgrade(f *testing.F) {
	f.Add([]byte(goodRequest))
	f.Add([]byte(goodRequest + "x"))
	f.Add([]byte("GET /tunnel HTTP/1.1\nConnection: a,\tUPGRADE\nUpgrade:  Hypergate-Tunnel \n\n"))
	f.Add([]byte("POST /tunnel HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		from := bytes.NewReader(data)
		err := readUpgrade(from)
		if read := len(data) - from.Len(); read > requestLimit {
			t.Errorf("%d bytes were read", read)
		}
		if no, is := errors.AsType[refusal](err); is {
			if _, err := readAnswer(bytes.NewReader(no.bytes())); err == nil {
				t.Errorf("the refusal %v is not understood", no)
			}
			return
		}
		if err == nil && (!bytes.HasPrefix(bytes.TrimLeft(data, "\r\n"), []byte("GET ")) || from.Len() > 0 && len(data) <= requestLimit ||
			!bytes.Contains(bytes.ToLower(data), []byte(protocolName))) {
			t.Errorf("accepted: %q", data)
		}
	})
}

// FuzzReadAnswer checks that a sidecar survives any answer, that nothing behind the head is lost, and that errors are
// short.
func FuzzReadAnswer(f *testing.F) {
	f.Add(upgradeAnswer(), []byte("\x16\x03\x01"))
	f.Add([]byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n"), []byte("no"))
	f.Add([]byte("0"), bytes.Repeat([]byte{0xff}, answerLimit/4)) // each byte is quoted with four
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 x\r\nUpgrade: x\r\n\r\n"), []byte{})
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		reader, err := readAnswer(io.MultiReader(bytes.NewReader(head), bytes.NewReader(rest)))
		if err != nil {
			if len(err.Error()) > 2*reasonKept {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		left, err := io.ReadAll(reader)
		if whole := fmt.Sprintf("%s%s", head, rest); err != nil || !strings.HasSuffix(whole, string(left)) {
			t.Errorf("%q is left of %q: %v", left, whole, err)
		}
	})
}

// TestEachReleaseKeepsTheVersionBefore checks that a release supports its own version and the one before it, the newest
// first. Otherwise the two ends have no version in common while one of them is upgraded.
func TestEachReleaseKeepsTheVersionBefore(t *testing.T) {
	t.Parallel()
	got := supportedVersions()
	newest := slices.Max(got)
	want := []Version{newest, newest - 1}
	if newest == 1 { // the first one
		want = want[:1]
	}
	if !slices.Equal(got, want) {
		t.Errorf("the versions %v are supported, want %v", got, want)
	}
}
