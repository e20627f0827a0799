package guestconn

import (
	"errors"
	"fmt"
)

// identity is what identifies the guest of this process.
type identity struct {
	known bool
	// uid is empty for a guest that shows nothing by which it could be recognised.
	uid string
}

// admits is an error if a kubeconfig leads to another guest than the one that is known, or if the two cannot be
// compared.
func (i identity) admits(uid string) error {
	if !i.known || uid != "" && uid == i.uid {
		return nil
	}
	return fmt.Errorf("%s: %w", unusedText, ErrOtherGuest)
}

// ErrOtherGuest refuses a kubeconfig of another guest than the one that this process works with.
var ErrOtherGuest = errors.New("it leads to another guest (its namespace kube-system has another UID, or is not shown): " +
	"put the kubeconfig of the right guest in its place; if this guest was built again, restart hypergate")

// Session is a number that changes with each kubeconfig that is put in use. What was known of the guest before is to be
// looked at again.
func (c *Conn) Session() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number
}

// Identify notes what identifies the guest that a session led to; empty where nothing does. From then on, no kubeconfig
// of another guest is put in use. It fails if the session is not in use any more, or was found to lead to another guest
// before.
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
