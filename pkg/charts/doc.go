// Package charts holds one version of Istio's Helm charts and renders them into objects, with no cluster and no Helm release.
//
// # Responsibility
//
//	Embedded() ─┐            ┌─ Render(Release) ─► []*unstructured.Unstructured   chart istio-discovery
//	            ├─► Source ──┤
//	FromFS(dir)─┘            └─ CRDs(names)     ─► []*unstructured.Unstructured   chart base
//
// What to render, with which values, and where the objects go is for package desired. This package alone knows Helm, and Istio's chart
// files.
//
// Helm is used as a template engine: values are coalesced as Helm does, the templates are executed as Helm does, and that is all. There is
// no release object, no lookup, no DNS, no hook. Release objects would hand the values to the guest's admin, and an upgrade that renders
// other things than an install would make the output depend on history; so every render is an install of revision 1.
//
// # Invariants
//
//   - Same charts, same Release, same bytes: a fixed Kubernetes version stands for the cluster's, and the objects come in a total order.
//   - A Source never changes after it was made, and neither does the caller's Values; a Source may be used by several goroutines at once.
//   - What comes out is an object with apiVersion, kind, name and well-formed labels, and no two are the same object; whatever else a chart
//     renders is an error that names the template. Nothing is left out silently but empty documents. Whether a kind is known is not asked here.
//
// # Cost
//
// Measured on two cores with Istio 1.29 (go test -bench . ./pkg/charts): rendering both releases takes about 10 ms and makes 6 MB of
// garbage, in equal parts for parsing the templates (the engine does so at each call), executing them, and reading the YAML that they make.
// Loading the chart takes 0.5 ms, and keeping it takes 0.2 MiB of heap. It is kept: a loading per rendering would save no more than that,
// and would make the output of a directory depend on the moment of reading.
//
// The CRD file (0.9 MB) is read by each call of CRDs and not kept; the three CRDs that are installed by default take 12 ms.
package charts
