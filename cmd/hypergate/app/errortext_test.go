package app

import (
	"errors"
	"strings"
	"testing"
)

// TestALongErrorShowsNoPassword checks a password at the place where the text is cut before URLs are searched.
func TestALongErrorShowsNoPassword(t *testing.T) {
	t.Parallel()
	// Without users and passwords, the text is shorter than what is printed.
	const url, password = "http://user:%@proxy ", "hunter2"
	long := strings.Replace(url, "%", password+strings.Repeat("x", 1<<10), 1)
	for shift := range len("http://user:" + password) {
		got := errorText(errors.New(strings.Repeat("y", shift) + " " + strings.Repeat(long, 8*longestError/len(long)+1)))
		if strings.Contains(got, "hunter") || !strings.HasSuffix(got, "proxy ...") {
			t.Fatalf("%d: %q", shift, got[max(len(got)-100, 0):])
		}
	}
	if got := errorText(errors.New(strings.Repeat("é", longestError))); len(got) > longestError || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes: %q", len(got), got[max(len(got)-10, 0):])
	}
	if got := errorText(errors.New(strings.Repeat("é", 8*longestError))); got != "..." {
		t.Errorf("%d bytes of one word", len(got))
	}
}
