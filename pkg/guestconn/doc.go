// Package guestconn is the connection to the guest's API server. The kubeconfig behind it may be replaced at any time, and the clients that
// were made from Conn.Config stay as they are.
//
// # How
//
// Conn is the transport of these clients. It sends each request through the session of the kubeconfig that is in use: to its server, with its
// credentials, over its connections. A kubeconfig that was replaced is read again from time to time, and at once (once in a second at most) when
// the guest refuses a request as unauthenticated or cannot be reached. There may be none at first: then it is waited for, and the first one is
// verified as any other.
//
// # Invariants
//
//   - A new kubeconfig is used only after it was verified through the very session that would use it. One that is not good changes nothing.
//   - No kubeconfig of another guest is used. The caller says what identifies the guest (Identify, Options.Verify), and the two are compared in the step that
//     puts the new session in use.
//   - Session changes with each kubeconfig that is put in use, so that a list that began before can be told from one that began after.
//   - The new session is there before the old one ends. Requests that are under way end as they would have; watches end after them, with an error
//     that makes whoever watches list again: a new kubeconfig may lead to another server, where resource versions say nothing.
//   - Nothing of a session that ended is left: no connection, no goroutine, and no memory after the half a minute for which the HTTP/2 client keeps
//     the timer of a connection.
//   - No request goes anywhere but to the server of the kubeconfig, whatever that server says: not by a redirect either.
//   - At rest it makes no request.
package guestconn
