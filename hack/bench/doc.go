// Command bench measures how fast, how quiet and how small hypergate is, and prints each figure beside its bar.
//
//	go run ./hack/bench [-only install,writes,rest,drift,istiod,memory,render] [-o json] [-json FILE] [-quick]
//
// # How it measures
//
// Two real control planes run as plain processes (package planes). The hypergate binary runs as a process of its own and talks to them
// directly: nothing stands between. What it did, and when, is read from the audit logs of the two API servers, which name verb, object,
// user agent and the microsecond in which the answer was complete. Both logs are of one clock.
//
// A bar that is a ratio has both its terms measured in the same run, in turns. Nothing here fails because a bar is missed: the table says so.
// It fails when something could not be measured.
//
// Nothing runs pods here, but the part istiod runs the real one as a process, with the arguments, environment and files of its Deployment. Otherwise the bench plays the Deployment controller (istiod is available) and, on port 443 of a loopback address, istiod's
// validating webhook, with a certificate that is signed by the mesh CA which hypergate made.
package main
