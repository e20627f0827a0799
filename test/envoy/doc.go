// Command envoy takes Envoy's place under Istio's pilot-agent, for tests alone. The README says what it
// accepts and what it does not do.
//
// Packages, in the order of the data: bootstrap (command line, bootstrap configuration), xds (streams), translate
// (protobuf to model, with the table of what is accepted), config (what is warming and active), model (pure
// decisions), proxy (sockets), admin (endpoints), server (all together).
package main
