package app

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/crds"
	"github.com/hypergate/hypergate/pkg/model"
)

// crdOptions holds the flags for the guest's CRDs.
type crdOptions struct {
	management string
	adopt      bool
	protect    bool
	writers    []string
}

func (o *crdOptions) addFlags(flags *pflag.FlagSet) {
	choose(flags, &o.management, "crd-management", "", string(crds.Managed), "Management mode of the guest's CRDs. {values}. "+
		"Managed: hypergate manages the CRDs and the installation. "+
		"Unmanaged: hypergate removes istiod, its webhooks and the protection of the CRDs; CRDs, GatewayClasses, "+
		"Gateways and proxies stay as they are. "+
		"If the guest has the object cluster of ingresses.operator.openshift.io, its field spec.gatewayAPI.managementMode takes "+
		"precedence.", string(crds.Managed), string(crds.Unmanaged))
	flags.BoolVar(&o.adopt, "adopt-crds", false, "If true, take over CRDs that another client installed, if nothing is lost and "+
		"the CRD does not have the annotation "+crds.ManageAnnotation+"=false. If false, each CRD needs this annotation with the "+
		"value true. "+
		"CRDs of an installed OLM operator are never taken over.")
}

// addProtectionFlags adds the flags that only concern commands that write CRDs.
func (o *crdOptions) addProtectionFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.protect, "protect-crds", true, "If true, install a ValidatingAdmissionPolicy in the guest that prevents other "+
		"clients from changing "+
		"or deleting hypergate's CRDs by accident. The policy admits the platform's own operators.")
	flags.StringSliceVar(&o.writers, "crd-writers", nil, "Additional users of the guest's API that the policy of --protect-crds admits, "+
		"for example system:serviceaccount:argocd:argocd-application-controller.")
}

// into writes the flags into a Config. The returned error joins all invalid flags.
func (o *crdOptions) into(cfg *model.Config) error {
	var errs []error
	cfg.CRDs.Mode = crds.Mode(o.management)
	if o.adopt {
		cfg.CRDs.Consent = crds.Given
	}
	if !o.protect {
		cfg.CRDProtection = model.LeaveCRDsOpen
		if len(o.writers) > 0 {
			errs = append(errs, errors.New("--crd-writers has no effect with --protect-crds=false: remove one of the two flags"))
		}
	}
	users := o.writers
	if users != nil && len(users) == 0 { // pflag: the flag is there, with an empty value
		users = []string{""}
	}
	for _, user := range users {
		if user == "" || user != strings.TrimSpace(user) || strings.ContainsFunc(user, unicode.IsControl) {
			errs = append(errs, fmt.Errorf("--crd-writers: %q is not a valid user name: use a user name of the guest's API, "+
				"such as system:serviceaccount:argocd:argocd-application-controller", user))
		}
	}
	cfg.CRDWriters = o.writers
	return errors.Join(errs...)
}
