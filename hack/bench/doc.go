// Command bench measures hypergate's speed, its requests at rest, its memory, and the commands that an operator waits
// for. It prints each figure next to its target.
//
//	go run ./hack/bench [-only PART,PART] [-o json] [-json FILE] [-quick]
//
// The parts are install, render, writes, rest, drift, istiod, memory and commands.
//
// # How it measures
//
// Two real control planes run as plain processes (package planes). The hypergate binary runs as a separate process and
// connects to them directly. The bench reads the requests and their times from the audit logs of the two API servers.
// These logs contain the verb, the object, the user agent, and the time of the complete answer in microseconds. Both
// logs use the same clock.
//
// If a target is a ratio, both terms are measured in turns in the same run. The exit code is 2 if a target is missed,
// and 1 if something could not be measured. With -quick, a missed target is only shown in the table.
//
// No pods run here. The part istiod runs the real istiod as a process, with the arguments, the environment and the
// files of its Deployment. For the other parts, the bench simulates the Deployment controller, which reports istiod as
// available. It also simulates istiod's validating webhook on port 443 of a loopback address, with a certificate that
// the mesh CA of hypergate signed.
package main
