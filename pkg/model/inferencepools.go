package model

// InferencePoolCRD is the CRD of InferencePools, and InferencePoolVersion the version that istiod reads
// (pkg/config/schema/gvr of Istio). Without the CRD, istiod waits for it while it serves. With a CRD that does not
// serve this version, an istiod that starts with InferencePools turned on does not become ready.
const (
	InferencePoolCRD     = "inferencepools.inference.networking.k8s.io"
	InferencePoolVersion = "v1"
)

// InferencePools is whether istiod can read the InferencePools of a guest.
type InferencePools int

const (
	// PoolsReadable means that the CRD serves the version that istiod reads, or that the CRD does not exist.
	PoolsReadable InferencePools = iota
	// PoolsUnreadable means that the CRD does not serve this version.
	PoolsUnreadable
	// PoolsUnknown means that the CRD has not been read.
	PoolsUnknown
)

// IgnoredPoolsAnnotation is an annotation of the pod template of istiod's Deployment. It is there exactly if istiod
// does not serve InferencePools. Its value is when a running istiod stopped serving them (RFC 3339), if that is known.
const IgnoredPoolsAnnotation = "gateway.hypergate.dev/inference-pools-ignored"
