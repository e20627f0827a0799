package webhookurl

import "strings"

// Service is a Service of a hosted control plane's namespace, as HyperShift's webhook validation sees it.
type Service struct {
	Name string
	// Labelled is true if the label key hypershift.openshift.io/allow-guest-webhooks is there, with any value.
	Labelled bool
}

// ForbiddenBy returns the names of the Services, in their order, because of which HyperShift deletes the whole
// configuration of an admission webhook with this URL: those that are not labelled and whose "https://<name>" is
// anywhere in the URL. So an unlabelled Service "istiod" forbids "https://istiod-gateway:443" as well.
//
// HyperShift (control-plane-operator/hostedclusterconfigoperator/controllers/webhookvalidation/webhookvalidation.go)
// also looks for "https://<name>.<namespace>.svc" and that with ".cluster.local"; a URL that contains these contains the
// short form too.
func ForbiddenBy(webhookURL string, services []Service) []string {
	var names []string
	for _, service := range services {
		if !service.Labelled && strings.Contains(webhookURL, scheme+service.Name) {
			names = append(names, service.Name)
		}
	}
	return names
}
