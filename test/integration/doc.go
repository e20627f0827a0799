// Package integration has the stories that two real API servers are enough for: what is applied where, what a drifted object costs, what
// happens when a side refuses or goes away. Nothing runs on these clusters, so a test plays the Deployment controller where istiod must be
// available; the stories with a real istiod are in test/e2e. A few stories run at the same time, each on two clusters that are its own meanwhile.
package integration
