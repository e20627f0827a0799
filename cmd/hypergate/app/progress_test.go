package app

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress checks that only work that takes long is shown, and nothing at all outside of a terminal.
func TestProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		shown := progress{&out}
		done := shown.waits("reading the guest")
		<-time.After(patience - time.Millisecond)
		done()
		<-time.After(time.Minute)
		if out.Len() != 0 {
			t.Errorf("quick work is shown: %q", out.String())
		}
		done = shown.waits("reading the guest")
		<-time.After(time.Minute)
		done()
		synctest.Wait()
		if got, want := out.String(), "hypergate: reading the guest ...\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = reader.Close(), writer.Close() }()
	if progressOn(writer) != (progress{}) || progressOn(&bytes.Buffer{}) != (progress{}) {
		t.Error("progress is shown without a terminal")
	}
	progress{}.waits("nothing")()
}
