package app

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/desired"
)

// crdOptions are the flags about the guest's CRDs.
type crdOptions struct {
	management string
	adopt      bool
	protect    bool
	writers    []string
}

func (o *crdOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.management, "crd-management", string(crds.Managed), "Managed: hypergate looks after the guest's CRDs and the installation; Unmanaged: istiod, its webhooks and the CRDs' protection are removed, "+
		"and CRDs, GatewayClasses, Gateways and proxies stay as they are. Where the guest has ingresses.operator.openshift.io cluster, its spec.gatewayAPI.managementMode goes first")
	flags.BoolVar(&o.adopt, "adopt-crds", false, "take over CRDs that somebody else installed, where nothing is lost by it, and unless the annotation "+crds.ManageAnnotation+"=false on the CRD says no. "+
		"Without the flag each CRD needs that annotation with the value true. A live OLM operator's are never taken over")
}

// addProtectionFlags adds the flags that only matter to who writes CRDs.
func (o *crdOptions) addProtectionFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.protect, "protect-crds", true, "a ValidatingAdmissionPolicy in the guest keeps others from changing or deleting hypergate's CRDs by accident; the platform's own operators are let by")
	flags.StringSliceVar(&o.writers, "crd-writers", nil, "further users of the guest's API whom that policy lets by, such as system:serviceaccount:argocd:argocd-application-controller")
}

// into puts the flags into a Config. The error joins all that is wrong.
func (o *crdOptions) into(cfg *desired.Config) error {
	var errs []error
	switch mode := crds.Mode(o.management); mode {
	case crds.Managed, crds.Unmanaged:
		cfg.CRDs.Mode = mode
	default:
		errs = append(errs, fmt.Errorf("--crd-management: %q is neither %s nor %s", o.management, crds.Managed, crds.Unmanaged))
	}
	if o.adopt {
		cfg.CRDs.Consent = crds.Given
	}
	if !o.protect {
		cfg.CRDProtection = desired.LeaveCRDsOpen
		if len(o.writers) > 0 {
			errs = append(errs, errors.New("--crd-writers: with --protect-crds=false there is nothing that they need to be let by; leave one of the two out"))
		}
	}
	for _, user := range o.writers {
		if user == "" || user != strings.TrimSpace(user) || strings.ContainsFunc(user, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("--crd-writers: %q is no user name of the guest's API, such as system:serviceaccount:argocd:argocd-application-controller", user))
		}
	}
	cfg.CRDWriters = o.writers
	return errors.Join(errs...)
}
