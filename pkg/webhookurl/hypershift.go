package webhookurl

import "strings"

// Service is a Service in a control plane namespace, as HyperShift's webhook validation sees it.
type Service struct {
	Name string
	// Labelled reports whether the Service has the label hypershift.openshift.io/allow-guest-webhooks, with any
	// value.
	Labelled bool
}

// ForbiddenBy returns the names of the Services, in their order, for which HyperShift deletes the whole configuration
// of an admission webhook with this URL. These are the Services that are not labelled and whose "https://<name>" is
// anywhere in the URL. For example, an unlabelled Service "istiod" also forbids "https://istiod-gateway:443".
//
// HyperShift (control-plane-operator/hostedclusterconfigoperator/controllers/webhookvalidation/webhookvalidation.go)
// also searches for "https://<name>.<namespace>.svc", with and without ".cluster.local". A URL that contains one of
// these also contains the short form.
func ForbiddenBy(webhookURL string, services []Service) []string {
	var names []string
	for _, service := range services {
		if !service.Labelled && strings.Contains(webhookURL, scheme+service.Name) {
			names = append(names, service.Name)
		}
	}
	return names
}
