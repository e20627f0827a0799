// Package traffic sends constant load through gateways, and counts what fails. Stories use it to judge whether an
// operation costs requests.
//
// # Workflow
//
// [Start] starts one sender per [Stream] and its requests per second. [Load.Stop] ends the senders when their last
// request has ended, and returns a [Report]: requests, failures by cause, the longest time without a success, and the
// latency. The senders use the backend of test/traffic/backend, whose answers they check.
//
// # Invariants
//
//   - A request is sent once. Nothing is repeated after a failure, by this package or by net/http. The exception is
//     what an HTTP/2 server says that it did not process (RFC 9113, sections 6.8 and 8.7): clients send it again.
//   - Requests start at a constant pace, whatever the answers take. A server that hangs does not lower the load.
//     [Paced] chooses the pace before the load of a story begins, and nothing changes it later.
//   - Every request has a deadline, and a request that ends late is a failure.
//   - A report of fewer requests than asked for is an error, and so is a stream below 30 % of its rate. A load that did
//     not run proves nothing.
//   - A report without failures can hide a gateway that answers nothing for a while: its requests end in time. So it
//     has the longest time without a success. [Report.Silent] names the streams for which that is too long.
//
// Whether the load can see failures is tested, too: see the controls in traffic_test.go.
package traffic
