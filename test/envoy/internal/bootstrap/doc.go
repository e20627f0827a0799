// Package bootstrap reads Envoy's command line and bootstrap configuration, as pilot-agent writes them.
//
// Only those parts count that the stand-in executes: node, admin address, static clusters and listeners, and how
// dynamic resources are fetched. The others (statistics, runtime, overload manager, tracing, bootstrap extensions)
// do not change where a request goes, and are not read: pilot-agent passes --allow-unknown-static-fields.
package bootstrap
