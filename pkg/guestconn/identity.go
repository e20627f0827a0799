package guestconn

import (
	"fmt"
	"net/http"
	"reflect"

	"k8s.io/client-go/rest"
)

// Candidate is a kubeconfig that is not in use yet.
type Candidate struct {
	// Config sends requests to the server of the kubeconfig.
	Config *rest.Config
	// Number changes when the content of the kubeconfig does. While a kubeconfig is refused, it is verified again and
	// again: Number shows that a result of an earlier verification is one of the same kubeconfig.
	Number uint64
}

// candidateOf returns the candidate for a kubeconfig, whose requests use a transport.
func (c *Conn) candidateOf(config *rest.Config, transport http.RoundTripper) Candidate {
	if now := contentOf(config); c.candidates == 0 || !reflect.DeepEqual(now, c.candidate) {
		c.candidate = now
		c.candidates++
	}
	return Candidate{Config: through(config, transport), Number: c.candidates}
}

// admits returns an error if a kubeconfig leads to another guest than the known one, or if the two cannot be
// compared.
func (c *Conn) admits(uid string) error {
	if c.guest == "" || uid == c.guest {
		return nil
	}
	return fmt.Errorf("%s: %w", unusedText, ErrOtherGuest)
}

// ErrOtherGuest rejects a kubeconfig that leads to another guest than the one of this process.
var ErrOtherGuest = StepError{
	"the kubeconfig leads to another guest (its namespace kube-system has another UID, or is not shown)",
	"store the kubeconfig of the right guest in the Secret; if this guest was recreated, restart hypergate",
}

// Session returns a number that changes with each new kubeconfig. Observations of the guest from an earlier session
// must be made again.
func (c *Conn) Session() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number
}

// Replaced returns a channel that is closed when the current session is replaced.
func (c *Conn) Replaced() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replaced
}

// ErrNoIdentity reports that a guest shows no identity. Without one, a later kubeconfig could not be compared with it.
var ErrNoIdentity = StepError{
	"the guest does not show its namespace kube-system, whose UID identifies it",
	"allow hypergate's user to list all namespaces of the guest, and make sure that kube-system is one of them",
}

// Identify records the identity of the guest behind a session. From then on, a kubeconfig of another guest is never
// used. It returns an error if uid is empty, if the session is not current any more, or if another guest is already
// known.
//
// A restart of the process forgets the identity, because a guest that was rebuilt has another UID. Then the ownership
// Leases in the guest decide (package ownership).
func (c *Conn) Identify(session uint64, uid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case session != c.number:
		return errReplaced
	case uid == "":
		return ErrNoIdentity
	case c.guest != "" && c.guest != uid:
		return ErrOtherGuest
	}
	c.guest = uid
	return nil
}
