// Istio's charts of the release before the embedded one: tests render them from a directory, which is this module's in the module cache.
// Nothing is built from here (so "go mod tidy" would empty it); package test/charts runs "go mod download".
module github.com/hypergate/hypergate/hack/charts-1.28

go 1.26.0

// Release 1.28.2.
require istio.io/istio v0.0.0-20251217200826-ab413ac6c1f4
