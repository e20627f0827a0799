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
	// defaultEvery is how often the kubeconfig is read. The kubelet needs a minute to bring a changed Secret into a pod.
	defaultEvery = 10 * time.Second
	// soonest is the least time between two readings.
	soonest = time.Second
	// verifyTimeout ends the verification of a kubeconfig that leads to nobody.
	verifyTimeout = 10 * time.Second
	// drainTime is how long requests of a session that another one has replaced may take: longer than any of ours.
	drainTime = 40 * time.Second
)

// Options are what a connection is made from.
type Options struct {
	// Config is what the kubeconfig says when the process starts. Without a Host there is none yet: Run waits for the first, and until then every
	// request fails.
	Config *rest.Config
	// Load reads the kubeconfig again.
	Load func() (*rest.Config, error)
	// Verify is asked whether a new kubeconfig may be used, and what identifies the guest that it leads to; empty where nothing does. The config that it
	// gets leads to where the kubeconfig does.
	Verify func(context.Context, *rest.Config) (identity string, err error)
	// Every is how often the kubeconfig is read; 0 means every 10 s.
	Every time.Duration
}

// Conn is the connection. It is safe for concurrent use.
type Conn struct {
	options Options
	config  *rest.Config
	// wanted says that the kubeconfig should be read soon.
	wanted chan struct{}
	// begun is closed once there is a kubeconfig in use.
	begun chan struct{}

	// mu guards what follows, and what sessions count.
	mu      sync.Mutex
	current *session
	// number counts the sessions that were in use.
	number uint64
	// guest identifies the guest of this process, once that is known.
	guest   identity
	problem error
	refusal refusal
}

var _ http.RoundTripper = &Conn{}

// Fixed is a connection whose config does not change.
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

// New prepares a connection that follows its kubeconfig while Run runs. It makes no request.
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
	c := &Conn{options: o, wanted: make(chan struct{}, 1), begun: begun, current: first}
	c.config = through(o.Config, c)
	return c, nil
}

// Config is what clients are made from, once for all kubeconfigs.
func (c *Conn) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Endpoint is where the guest's API server is, by the kubeconfig in use.
func (c *Conn) Endpoint() Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.endpoint
}

// Begun is closed once there is a kubeconfig in use.
func (c *Conn) Begun() <-chan struct{} { return c.begun }

// waits says whether there was no kubeconfig to use yet.
func (c *Conn) waits() bool {
	select {
	case <-c.begun:
		return false
	default:
		return true
	}
}

// Problem is why the kubeconfig as it is now is not in use, or that the guest refuses the one that is; nil when all is well.
func (c *Conn) Problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == nil && c.refusal.certain {
		return ErrRefused
	}
	return c.problem
}

// RoundTrip sends a request with the kubeconfig in use.
func (c *Conn) RoundTrip(r *http.Request) (*http.Response, error) {
	// A watch has no end of its own, and does not hold up that of its session.
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
	c.answered(s, r.URL.Path, response.StatusCode)
	response.Body = &body{response.Body, done, s.closed}
	return response, nil
}

// CloseIdleConnections closes connections that nobody uses, as http.Client asks for.
func (c *Conn) CloseIdleConnections() {
	c.mu.Lock()
	s := c.current
	c.mu.Unlock()
	utilnet.CloseIdleConnectionsFor(s.transport)
}

// begin is the session for a request. It stays until end is called, but not for a watch.
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

// use puts a session in the place of the one before, if it leads to the same guest.
func (c *Conn) use(next *session, leadsTo string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.guest.admits(leadsTo); err != nil {
		return err
	}
	if c.waits() {
		close(c.begun)
	}
	old := c.current
	c.current, c.problem, c.refusal = next, nil, refusal{}
	c.number++
	c.guest = identity{true, leadsTo}
	if old.underWay == 0 {
		old.close()
	} else {
		old.overdue = time.AfterFunc(drainTime, old.close)
	}
	return nil
}

// Look has the kubeconfig be read soon, because it may be another. Without it that is noticed in the end.
func (c *Conn) Look() { c.lookSoon() }

func (c *Conn) lookSoon() {
	select {
	case c.wanted <- struct{}{}:
	default:
	}
}

// Run follows the kubeconfig until ctx ends, and calls changed whenever another one is in use, or another problem with it was found. A connection that is fixed
// has nothing to follow.
func (c *Conn) Run(ctx context.Context, changed func()) {
	if c.options.Load == nil {
		return
	}
	// Who has no kubeconfig says with Look when there may be one; before, there is nothing to tell of.
	if c.waits() && !wait(ctx, c.options.Every, c.wanted) {
		return
	}
	for {
		if before := c.Problem(); c.look(ctx) || !sameText(before, c.Problem()) {
			changed()
		}
		// The guest's refusals hurry the second wait, and not the first.
		if !wait(ctx, soonest, nil) || !wait(ctx, c.options.Every-soonest, c.wanted) {
			return
		}
	}
}

func sameText(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// wait waits, or until it is hurried. It says whether ctx goes on.
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

// look reads the kubeconfig, and uses it if it is another and a good one. It says whether it did.
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
	told := "The guest kubeconfig was replaced; the new one is in use"
	if c.waits() {
		told = "There is a guest kubeconfig now, and it is in use"
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
	logr.FromContextOrDiscard(ctx).Info(told, "server", next.endpoint.Server)
	return true
}

// keep goes on with the kubeconfig that is in use.
func (c *Conn) keep(ctx context.Context) {
	c.mu.Lock()
	c.problem = nil
	c.mu.Unlock()
	c.confirm(ctx)
}

// next is a session of the kubeconfig as it is now, with the guest that it leads to; nil if it is the one in use.
func (c *Conn) next(ctx context.Context) (next *session, leadsTo string, err error) {
	unread, unused := "the guest kubeconfig cannot be read any more, and goes on to be used as it was", unusedText
	if c.waits() {
		unread, unused = "waiting for the guest kubeconfig", "waiting for a guest kubeconfig that can be used"
	}
	config, err := c.options.Load()
	switch {
	case err != nil && c.waits():
		return nil, "", AwaitedError{fmt.Errorf("%s: %w", unread, err)}
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w", unread, err)
	}
	c.mu.Lock()
	same := c.current.is(config)
	c.mu.Unlock()
	if same {
		return nil, "", nil
	}
	if next, err = newSession(config); err == nil {
		verifyCtx, cancel := context.WithTimeout(ctx, verifyTimeout)
		defer cancel()
		if leadsTo, err = c.options.Verify(verifyCtx, through(config, next)); err == nil {
			return next, leadsTo, nil
		}
		next.close()
	}
	return nil, "", fmt.Errorf("%s: %w", unused, err)
}

// refuse remembers what is wrong, and says so once.
func (c *Conn) refuse(log logr.Logger, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.problem == nil || c.problem.Error() != err.Error() {
		if c.waits() {
			log.Info("The guest is waited for", "err", err.Error())
		} else {
			log.Error(err, "Keeping the guest kubeconfig that was in use")
		}
	}
	c.problem = err
}

const unusedText = "the guest kubeconfig was replaced by one that is not used, the one before stays in use"

// AwaitedError says that the first kubeconfig could not be had yet.
type AwaitedError struct{ Err error }

// Error says what is waited for.
func (e AwaitedError) Error() string { return e.Err.Error() }

// Unwrap is why.
func (e AwaitedError) Unwrap() error { return e.Err }

// ErrRefused is what the guest says of credentials that ran out, or were taken back.
var ErrRefused = errors.New("the guest refuses the credentials of its kubeconfig (401): the certificate or the token in it may have expired, " +
	"and another kubeconfig in its place is used at once")

// errNone is what requests get while there is no kubeconfig.
var errNone = errors.New("there is no guest kubeconfig yet")

// errReplaced ends watches. It is none of the errors after which client-go would go on where a watch ended.
var errReplaced = errors.New("the guest kubeconfig was replaced")
