// Package charts holds one version of Istio's Helm charts and renders them into objects. It needs no cluster and
// creates no Helm release.
//
// # Responsibility
//
//	Embedded() ─┐            ┌─ Render(Release) ─► []*unstructured.Unstructured   chart istio-discovery
//	            ├─► Source ──┤
//	FromFS(dir)─┘            └─ CRDs(names)     ─► []*unstructured.Unstructured   chart base
//
// Package desired decides what to render, with which values, and where the objects go. Only this package knows Helm
// and Istio's chart files.
//
// # Workflow
//
// Helm is only a template engine here: it merges values and executes templates as usual. It uses no release object,
// no lookup, no DNS, and no hook.
//
// Release objects would expose the values to the guest's administrator. An upgrade that renders different objects
// than an install would make the output depend on history. Therefore every rendering is an install of revision 1.
//
// # Invariants
//
//   - The same charts and the same Release give the same bytes. Templates see a fixed Kubernetes version instead of
//     the cluster's, and the objects are in a total order.
//   - A Source and the Values of the caller never change. Several goroutines can use a Source concurrently.
//   - Each result is an object with apiVersion, kind, name and well-formed labels, and no two results are the same
//     object. Any other output of a chart is an error that names the template. Only empty documents are silently
//     omitted. This package does not check whether a kind is known.
//
// # Cost
//
// Measured on two cores with Istio 1.29 (go test -bench . ./pkg/charts): rendering both releases takes about 10 ms
// and allocates 6 MB of garbage. Parsing the templates (the engine does so at each call), executing them, and
// decoding the resulting YAML take equal parts.
//
// Loading the chart takes 0.5 ms, and keeping it takes 0.2 MiB of heap. It is kept. Loading it for each rendering
// would save no more than that, and the output for a directory would depend on the time of reading.
//
// Each call of CRDs reads the CRD file (0.9 MB), which is not kept. The three CRDs that are installed by default take
// 12 ms.
package charts
