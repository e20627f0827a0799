package guestconn

import (
	"errors"
	"fmt"
)

// identity is the identity of this process's guest.
type identity struct {
	known bool
	// uid is empty for a guest that shows no identity.
	uid string
}

// admits returns an error if a kubeconfig leads to another guest than the known one, or if the two cannot be
// compared.
func (i identity) admits(uid string) error {
	if !i.known || uid != "" && uid == i.uid {
		return nil
	}
	return fmt.Errorf("%s: %w", unusedText, ErrOtherGuest)
}

// ErrOtherGuest rejects a kubeconfig that leads to another guest than the one of this process.
var ErrOtherGuest = errors.New("it leads to another guest (its namespace kube-system has another UID, or is not shown): " +
	"put the kubeconfig of the right guest in its place; if this guest was built again, restart hypergate")

// Session returns a number that changes with each new kubeconfig. Observations of the guest from an earlier session
// must be made again.
func (c *Conn) Session() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number
}

// Identify records the identity of the guest behind a session. uid is empty if the guest shows none. From then on, a
// kubeconfig of another guest is never used. It returns an error if the session is not current any more, or if
// another guest is already known.
func (c *Conn) Identify(session uint64, uid string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case session != c.number:
		return errReplaced
	case c.guest.known && c.guest.uid != uid:
		return ErrOtherGuest
	}
	c.guest = identity{true, uid}
	return nil
}
