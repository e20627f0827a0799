package guestconn

import "k8s.io/client-go/rest"

// Direct is a connection whose config does not change, for whoever only looks at the guest: unlike Fixed it needs no certificate authority to tell
// istiod of. Many API servers are verified with the system's.
func Direct(config *rest.Config) *Conn {
	return &Conn{config: rest.CopyConfig(config), begun: closed(), current: &session{config: config, endpoint: Endpoint{Server: config.Host, CABundle: config.CAData}}}
}
