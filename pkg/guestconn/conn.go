package guestconn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	// defaultEvery is the interval between reads of the kubeconfig. The kubelet needs a minute to update a changed
	// Secret in a pod.
	defaultEvery = 10 * time.Second
	// soonest is the minimum interval between two reads. The guest can refuse requests without a pause, and each
	// refusal asks for a read.
	soonest = time.Second
	// verifyTimeout limits the verification of a kubeconfig whose server does not answer.
	verifyTimeout = 10 * time.Second
	// drainTime limits the requests of a replaced session. It is longer than any request of hypergate.
	drainTime = 40 * time.Second
)

// Options configure a connection.
type Options struct {
	// Config is the kubeconfig at process start. If its Host is empty, there is no kubeconfig yet. Run then waits for
	// the first one, and until then every request fails.
	Config *rest.Config
	// Load reads the current kubeconfig.
	Load func() (*rest.Config, error)
	// Verify returns an error if a new kubeconfig must not be used. Otherwise it returns the identity of the guest
	// behind it, or "" if the guest shows none.
	Verify func(context.Context, Candidate) (identity string, err error)
	// Every is the interval between reads of the kubeconfig. 0 means 10 s.
	Every time.Duration
}

// Conn is the connection to the guest. It is safe for concurrent use.
type Conn struct {
	options Options
	config  *rest.Config
	// wanted requests a read of the kubeconfig soon.
	wanted chan struct{}
	// begun is closed once a kubeconfig is in use.
	begun chan struct{}
	// candidate is the content of the last kubeconfig that was verified, and candidates the number of different ones.
	// Only Run's goroutine uses them.
	candidate  content
	candidates uint64

	// mu guards the fields below, and the counters of the sessions.
	mu      sync.Mutex
	current *session
	// number counts the sessions that were activated. replaced is closed when the current one is replaced. A fixed
	// connection has none.
	number   uint64
	replaced chan struct{}
	// guest is the identity of this process's guest. It is empty until it is known.
	guest   string
	problem error
	refusal refusal
}

var _ http.RoundTripper = &Conn{}

// Fixed returns a connection whose config does not change. It returns an error if the config has no CA.
func Fixed(config *rest.Config) (*Conn, error) {
	server, err := endpointOf(config)
	if err != nil {
		return nil, err
	}
	return &Conn{config: rest.CopyConfig(config), begun: closed(), current: &session{endpoint: server, config: config}}, nil
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// New returns a connection that follows its kubeconfig while Run runs. It sends no requests.
func New(o Options) (*Conn, error) {
	first, begun := noSession(), make(chan struct{})
	if o.Config.Host != "" {
		known, err := newSession(o.Config)
		if err != nil {
			return nil, err
		}
		first = known
		close(begun)
	}
	if o.Every == 0 {
		o.Every = defaultEvery
	}
	c := &Conn{options: o, wanted: make(chan struct{}, 1), begun: begun, current: first, replaced: make(chan struct{})}
	c.config = through(o.Config, c)
	return c, nil
}

// Config returns the config for clients. It stays valid for all later kubeconfigs.
func (c *Conn) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Endpoint returns the guest's API server in the current kubeconfig.
func (c *Conn) Endpoint() Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.endpoint
}

// Begun returns a channel that is closed once a kubeconfig is in use.
func (c *Conn) Begun() <-chan struct{} { return c.begun }

// waits reports whether no kubeconfig has been in use yet.
func (c *Conn) waits() bool {
	select {
	case <-c.begun:
		return false
	default:
		return true
	}
}

// Problem returns why the latest kubeconfig is not in use, or ErrRefused if the guest rejects the credentials of the
// one that is. It returns nil if there is no problem.
func (c *Conn) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == nil && c.refusal.certain {
		return ErrRefused
	}
	return c.problem
}

// RoundTrip sends a request with the current kubeconfig. It takes the address from redirects, so that none is followed.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	// A watch can stay open forever. It must not delay the end of its session.
	watch := r.URL.Query().Has("watch")
	s := c.begin(watch)
	done := func() {}
	if !watch {
		done = sync.OnceFunc(func() { c.end(s) })
	}
	response, err := s.RoundTrip(r)
	switch {
	case err != nil:
		done()
		if r.Context().Err() == nil {
			c.lookSoon()
		}
		return nil, err
	case response.StatusCode == http.StatusUnauthorized:
		c.lookSoon()
	}
	// An API server redirects no request for its API. http.Client would follow a redirect, with the address that the
	// guest names in the header Referer.
	response.Header.Del("Location")
	c.answered(s, r.URL.Path, response.StatusCode)
	response.Body = &body{response.Body, done, s.closed}
	return response, nil
}

// CloseIdleConnections closes idle connections. http.Client.CloseIdleConnections calls it.
func (c *Conn) CloseIdleConnections() {
	c.mu.Lock()
	s := c.current
	c.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(s.transport)
}

// begin returns the session for a request. The session stays open until end is called. This does not apply to a
// watch.
func (c *Conn) begin(watch bool) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !watch {
		c.current.underWay++
	}
	return c.current
}

func (c *Conn) end(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.underWay--; s.underWay == 0 && s.overdue != nil {
		s.overdue.Stop()
		s.close()
	}
}

// use makes next the current session, if it leads to the same guest.
func (c *Conn) use(next *session, leadsTo string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admits(leadsTo); err != nil {
		return err
	}
	if c.waits() {
		close(c.begun)
	}
	old := c.current
	c.current, c.problem, c.refusal = next, nil, refusal{}
	c.number++
	close(c.replaced)
	c.replaced = make(chan struct{})
	c.guest = leadsTo
	if old.underWay == 0 {
		old.close()
	} else {
		old.overdue = time.AfterFunc(drainTime, old.close)
	}
	return nil
}

// Look requests a read of the kubeconfig, because it can have changed. Without Look, Run detects a change at the next
// interval.
func (c *Conn) Look() { c.lookSoon() }

func (c *Conn) lookSoon() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// Run follows the kubeconfig until ctx ends. It calls changed when another kubeconfig is in use, and when the problem
// changes. For a fixed connection it returns at once.
func (c *Conn) Run(ctx context.Context, changed func()) {
	if c.options.Load == nil {
		return
	}
	// Without a kubeconfig, the caller uses Look when there can be one. Until then there is no problem to report.
	if c.waits() && !wait(ctx, c.options.Every, c.wanted) {
		return
	}
	for {
		if before := c.Problem(); c.look(ctx) || !sameText(before, c.Problem()) {
			changed()
		}
		// Refusals by the guest shorten only the second wait.
		if !wait(ctx, soonest, nil) || !wait(ctx, c.options.Every-soonest, c.wanted) {
			return
		}
	}
}

func sameText(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// wait waits for atMost, or until a value arrives on hurry. It returns false when ctx has ended.
func wait(ctx context.Context, atMost time.Duration, hurry <-chan struct{}) bool {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hurry:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// look reads the kubeconfig, and uses it if it is new and valid. It reports whether it did.
func (c *Conn) look(ctx context.Context) bool {
	next, leadsTo, err := c.next(ctx)
	switch {
	case ctx.Err() != nil:
		if next != nil {
			next.close()
		}
		return false
	case err == nil && next == nil:
		c.keep(ctx)
		return false
	}
	message := "The guest kubeconfig was replaced; the new one is in use"
	if c.waits() {
		message = "The guest kubeconfig exists now, and is in use"
	}
	if err == nil {
		if err = c.use(next, leadsTo); err != nil {
			next.close()
		}
	}
	if err != nil {
		c.refuse(logr.FromContextOrDiscard(ctx), err)
		return false
	}
	logr.FromContextOrDiscard(ctx).Info(message, "server", next.endpoint.Server)
	return true
}

// keep continues with the current kubeconfig.
func (c *Conn) keep(ctx context.Context) {
	c.mu.Lock()
	c.problem = nil
	c.mu.Unlock()
	c.confirm(ctx)
}

// next returns a verified session of the latest kubeconfig, and the identity of its guest. It returns nil if the
// latest kubeconfig is already in use.
func (c *Conn) next(ctx context.Context) (next *session, leadsTo string, err error) {
	unread, unused := "the guest kubeconfig cannot be read; hypergate continues with the previous content", unusedText
	if c.waits() {
		unread, unused = "waiting for the guest kubeconfig", "waiting for a guest kubeconfig that can be used"
	}
	config, err := c.options.Load()
	switch {
	case err != nil && c.waits():
		return nil, "", NotLoadedError{fmt.Errorf("%s: %w", unread, err)}
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w", unread, err)
	}
	c.mu.Lock()
	same := c.current.matches(config)
	c.mu.Unlock()
	if same {
		c.candidate = content{}
		return nil, "", nil
	}
	if next, err = newSession(config); err == nil {
		verifyCtx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		if leadsTo, err = c.options.Verify(verifyCtx, c.candidateOf(config, next)); err == nil {
			return next, leadsTo, nil
		}
		next.close()
	}
	return nil, "", fmt.Errorf("%s: %w", unused, err)
}

// refuse records a problem, and logs it when it changes.
func (c *Conn) refuse(log logr.Logger, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == nil || c.problem.Error() != err.Error() {
		if c.waits() {
			log.Info("Waiting for the guest kubeconfig", "err", err.Error())
		} else {
			log.Error(err, "The new guest kubeconfig is not used; the previous one stays in use")
		}
	}
	c.problem = err
}

// StepError is an error with a next step of its own.
type StepError struct{ Problem, Step string }

// Error returns the problem and the next step.
func (e StepError) Error() string { return e.Problem + ": " + e.Step }

// NextStep returns the next step.
func (e StepError) NextStep() string { return e.Step }

const unusedText = "the new guest kubeconfig is not used; the previous one stays in use"

// NotLoadedError reports that the first kubeconfig could not be loaded yet.
type NotLoadedError struct{ Err error }

// Error returns what hypergate waits for.
func (e NotLoadedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e NotLoadedError) Unwrap() error { return e.Err }

// ErrRefused means that the guest rejects the credentials, because they expired or were revoked.
var ErrRefused = StepError{
	"the guest does not accept the credentials in its kubeconfig (401); the certificate or the token may have expired",
	"store a new kubeconfig in the Secret; hypergate uses it within three minutes, without a restart",
}

// errNone is the error of requests without a kubeconfig.
var errNone = errors.New("the guest kubeconfig is not available yet")

// errReplaced ends watches. It is not an error after which client-go would resume a watch where it ended.
var errReplaced = errors.New("the guest kubeconfig was replaced")
