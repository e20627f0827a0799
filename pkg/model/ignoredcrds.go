package model

import "slices"

// InferencePoolCRD is the CRD of InferencePools, and InferencePoolVersion the version that istiod reads
// (pkg/config/schema/gvr of Istio). EarlyInferencePoolCRD is that of their first group, which istiod does not read.
const (
	InferencePoolCRD      = "inferencepools.inference.networking.k8s.io"
	EarlyInferencePoolCRD = "inferencepools.inference.networking.x-k8s.io"
	InferencePoolVersion  = "v1"
)

// ReadKinds returns the kinds that istiod reads in one version, and that it can ignore: IstioResources, those that
// restrict access first, and InferencePools. Without a CRD, istiod waits for it while it serves. With a CRD that does
// not serve the version, an istiod that starts does not become ready: it waits for the first list of each kind whose
// CRD exists (pkg/kube/kclient/delayed.go and pilot/pkg/config/kube/crdclient of Istio).
func (c Config) ReadKinds() []IstioKind {
	return slices.DeleteFunc(readKinds(), func(k IstioKind) bool {
		return k.CRD() != InferencePoolCRD && !slices.Contains(c.IstioResources, k.IstioResource)
	})
}

// ReadKindsOf returns those of all such kinds that have these CRDs, in the same order.
func ReadKindsOf(crds []string) []IstioKind {
	return slices.DeleteFunc(readKinds(), func(k IstioKind) bool { return !slices.Contains(crds, k.CRD()) })
}

func readKinds() []IstioKind {
	return append(IstioKinds(), IstioKind{
		IstioResource{"inference.networking.k8s.io", "inferencepools"}, "InferencePool", InferencePoolVersion,
	})
}

// Readability is whether istiod can read the objects of a CRD.
type Readability int

const (
	// Readable means that the CRD serves the version that istiod reads, or that the CRD does not exist.
	Readable Readability = iota
	// Unreadable means that the CRD does not serve this version.
	Unreadable
	// Replaced means that the CRD does not serve this version, and that hypergate is about to write it.
	Replaced
	// NotRead means that the CRD has not been read.
	NotRead
)

// IgnoredCRDsAnnotation is an annotation of the pod template of istiod's Deployment: the CRDs whose objects istiod
// ignores, separated by commas. It is there exactly if there are any. IgnoredSinceAnnotation is when a running istiod
// last stopped serving one of them (RFC 3339), if that is known.
const (
	IgnoredCRDsAnnotation  = "gateway.hypergate.dev/ignored-crds"
	IgnoredSinceAnnotation = "gateway.hypergate.dev/ignored-since"
)
