package guestconn

import "k8s.io/client-go/rest"

// Direct returns a connection whose config does not change, for callers that only read the guest. Unlike Fixed, it
// needs no certificate authority for istiod. Many API servers are verified with the CAs of the system.
func Direct(config *rest.Config) *Conn {
	endpoint := Endpoint{Server: config.Host, CABundle: config.CAData}
	return &Conn{config: rest.CopyConfig(config), begun: closed(), current: &session{config: config, endpoint: endpoint}}
}
