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

// Definition is what is weighed of one CRD: what it says, and not who says it. It is small; the CRD that it was read from may go.
type Definition struct {
	Group, Kind, Plural string
	// Hash is of everything that decides what the API server takes and keeps: names, scope, versions (served, stored, subresources) and their
	// schemas, without descriptions, printer columns, deprecation and the conversion. Two CRDs with one Hash are the same to every client.
	Hash string
	// Served are the versions that are served, Stored those in which objects may lie in etcd (status.storedVersions); both sorted.
	Served, Stored []string
	// Converts is how objects come from one version to another.
	Converts Conversion
	// State is how far the API server is with it.
	State State
	// Why is the API server's message where State is Rejected.
	Why string
}

// State is how far the API server is with a CRD.
type State int

const (
	// Installing: the API server has not looked at it yet.
	Installing State = iota
	// Established: it is served.
	Established
	// Rejected: it is not served, because its names are another CRD's. It stays so until the other one is gone.
	Rejected
)

// Conversion is how objects come from one version to another.
type Conversion int

const (
	// ConvertsNothing: all versions have the same content.
	ConvertsNothing Conversion = iota
	// ConvertsByWebhook: a webhook is asked. Where it does not answer, no object can be read.
	ConvertsByWebhook
)

// DefinitionOf reads a CRD. An error says what of it cannot be read; the API server lets none of them in, but a file may be cut off.
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

// storedVersions are the versions in which objects may be stored. What cannot be read must not pass for none.
func storedVersions(crd *unstructured.Unstructured) ([]string, error) {
	status := section(crd.Object, "status")
	if status["storedVersions"] == nil {
		return nil, nil // a file, or the API server has not looked at it yet
	}
	list, ok := status["storedVersions"].([]any)
	if !ok {
		return nil, errors.New("its status.storedVersions is no list")
	}
	var out []string
	for i, item := range list {
		name, ok := item.(string)
		if !ok {
			return nil, fmt.Errorf("its status.storedVersions[%d] is no text", i)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// stateOf reads the conditions of a CRD. One that is served stays so when its names are changed to another CRD's: the old ones count.
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
