package model

// IstiodMode is what istiod does in a guest that can have another istiod of the same revision: the one that a migration
// replaces.
type IstiodMode string

const (
	// IstiodAlone is the default: there is no other istiod. istiod does everything. With one pod, it has no elections.
	IstiodAlone IstiodMode = ""
	// IstiodServing means that istiod configures proxies, and writes nothing to Gateways and their Deployments.
	IstiodServing IstiodMode = "Serving"
	// IstiodLeading means that istiod takes part in the elections. It does everything while it leads.
	IstiodLeading IstiodMode = "Leading"
	// IstiodNone means that istiod is not installed, although a GatewayClass requests it.
	IstiodNone IstiodMode = "None"
)

// IsBeside reports whether there can be another istiod. CRDs, the defaults of classes and webhooks are the other one's
// then. While it leads, hypergate's defaults of classes wait beside those of the other one.
func (m IstiodMode) IsBeside() bool { return m != IstiodAlone }

// IstiodModeAnnotation is an annotation of the pod template of istiod's Deployment: its IstiodMode. There is none for
// IstiodAlone.
const IstiodModeAnnotation = "gateway.hypergate.dev/istiod-mode"

// HostedIdentity is the beginning of the name by which an istiod beside another one takes part in elections. The other
// one has the name of its pod, which cannot contain a colon.
const HostedIdentity = "hosted:"
