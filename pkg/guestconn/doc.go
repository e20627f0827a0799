// Package guestconn is the connection to the guest's API server. The kubeconfig behind it can be replaced at any
// time. The clients made from Conn.Config do not change.
//
// # Workflow
//
// Conn is the transport of these clients. It sends each request through the session of the current kubeconfig: to its
// server, with its credentials, over its connections.
//
// Conn reads the kubeconfig again at a fixed interval. It also reads it when the guest rejects a request as
// unauthenticated or is unreachable, but at most once per second. If there is no kubeconfig at first, Conn waits for
// one. It verifies the first kubeconfig like any other.
//
// # Invariants
//
//   - A new kubeconfig is used only after it was verified through the session that will use it. A bad kubeconfig
//     changes nothing. It is verified again at each read. Candidate.Number lets the caller space out the requests.
//   - A kubeconfig of another guest is never used. The caller provides the identity of the guest (Identify,
//     Options.Verify). The step that activates a new session compares the two identities.
//   - Session returns another number after each change of the kubeconfig. The caller can distinguish lists that
//     began before the change from those that began after it.
//   - The new session is active before the old one ends. Requests in progress complete normally. Watches end after
//     them, with an error that makes the watcher list again. The new kubeconfig can lead to another server, where the
//     old resource versions have no meaning.
//   - An ended session leaves no connections and no goroutines. Its memory is released when the HTTP/2 client drops the
//     timers of its connections: after 30 s, or after 90 s if a stream was open.
//   - All requests go only to the server of the kubeconfig, whatever that server answers. Redirects do not change
//     that.
//   - At rest it sends no requests.
package guestconn
