package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/term"
	"k8s.io/klog/v2"
)

// patience is how long a command waits in silence. Most are done earlier, and a line would only be noise.
const patience = time.Second

// progress prints what a command waits for. Its zero value prints nothing.
type progress struct{ out io.Writer }

// progressOn returns the progress of a command. It is shown on a terminal only, so that no script sees it.
func progressOn(errOut io.Writer) progress {
	if file, is := errOut.(*os.File); is && term.IsTerminal(int(file.Fd())) {
		return progress{file}
	}
	return progress{}
}

// waits prints what the command does, if it is not done within patience. Call the returned function when it is done.
func (p progress) waits(what string) (done func()) {
	if p.out == nil {
		return func() {}
	}
	timer := time.AfterFunc(patience, func() { fmt.Fprintf(p.out, "hypergate: %s ...\n", what) })
	return func() { timer.Stop() }
}

// quiet returns a context in which client-go logs nothing. A page that is too long is requested again, and the command
// prints the other errors.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }
