package crds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Definition has the relevant content of one CRD, without its metadata. It is small. The CRD that it was read from
// does not have to be kept.
type Definition struct {
	Group, Kind, Plural string
	// Hash covers everything that determines what the API server accepts and keeps: names, scope, versions (served,
	// stored, subresources) and their schemas. It ignores descriptions, printer columns, deprecation and the
	// conversion.
	//
	// Two CRDs with the same Hash are the same for every client.
	Hash string
	// Served has the served versions. Stored has the versions in which objects can exist in etcd
	// (status.storedVersions). Both are sorted.
	Served, Stored []string
	// Converts is how objects are converted between versions.
	Converts Conversion
	// State is the progress of the API server with this CRD.
	State State
	// Why is the API server's message if State is Rejected.
	Why string
}

// State is the progress of the API server with a CRD.
type State int

const (
	// Installing means that the API server did not process the CRD yet.
	Installing State = iota
	// Established means that the CRD is served.
	Established
	// Rejected means that the CRD is not served, because another CRD uses its names. This lasts until the other CRD
	// is gone.
	Rejected
)

// Conversion is how objects are converted between versions.
type Conversion int

const (
	// ConvertsNothing means that all versions have the same content.
	ConvertsNothing Conversion = iota
	// ConvertsByWebhook means that a webhook converts objects. If it does not answer, no object can be read.
	ConvertsByWebhook
)

// DefinitionOf returns the Definition of a CRD. The error names the part that cannot be read. The API server does not
// accept such CRDs, but a file can be truncated.
func DefinitionOf(crd *unstructured.Unstructured) (Definition, error) {
	d, err := define(crd)
	if err != nil {
		return Definition{}, fmt.Errorf("reading CRD %s: %w", crd.GetName(), err)
	}
	return d, nil
}

func define(crd *unstructured.Unstructured) (Definition, error) {
	s, err := readSpec(crd)
	if err != nil {
		return Definition{}, err
	}
	stored, err := storedVersions(crd)
	if err != nil {
		return Definition{}, err
	}
	body, err := json.Marshal(s.canonical())
	if err != nil {
		return Definition{}, err
	}
	sum := sha256.Sum256(body)
	d := Definition{Group: s.group, Kind: s.kind, Plural: s.plural, Hash: hex.EncodeToString(sum[:8]), Stored: stored, Converts: s.converts}
	for _, v := range s.versions {
		if v.served {
			d.Served = append(d.Served, v.name)
		}
	}
	slices.Sort(d.Served)
	d.State, d.Why = stateOf(crd)
	return d, nil
}

// storedVersions returns the versions in which objects can be stored. Unreadable data is an error, so that it does
// not count as none.
func storedVersions(crd *unstructured.Unstructured) ([]string, error) {
	status := section(crd.Object, "status")
	if status["storedVersions"] == nil {
		return nil, nil // a file, or the API server did not process the CRD yet
	}
	list, ok := status["storedVersions"].([]any)
	if !ok {
		return nil, errors.New("its status.storedVersions is not a list")
	}
	var out []string
	for i, item := range list {
		name, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf("its status.storedVersions[%d] is not a text", i)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// stateOf returns the state from the conditions of a CRD. A served CRD stays served if its names change to names of
// another CRD: the old names stay in effect.
func stateOf(crd *unstructured.Unstructured) (State, string) {
	conditions, _ := section(crd.Object, "status")["conditions"].([]any)
	state, why := Installing, ""
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch kind, status := text(condition, "type"), text(condition, "status"); {
		case kind == "Established" && status == "True":
			return Established, ""
		case kind == "NamesAccepted" && status == "False":
			state, why = Rejected, text(condition, "message")
		}
	}
	return state, why
}

func text(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func section(m map[string]any, key string) map[string]any {
	s, _ := m[key].(map[string]any)
	return s
}
