package proxies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hypergate/hypergate/pkg/text"
)

// Proxy is a proxy that is connected to istiod.
type Proxy struct {
	// Name is <pod>.<namespace>. Version is that of Istio in the proxy.
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Types are the kinds of configuration that the proxy watches, sorted by name.
	Types []Type `json:"types,omitempty"`
}

// Type is one kind of configuration of a proxy, such as Cluster. Error is why the proxy rejected the last one.
type Type struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Error string `json:"error,omitempty"`
}

// State is whether a proxy has the configuration that istiod sent.
type State string

// The states. NotSent means that istiod had nothing to send.
const (
	Synced   State = "synced"
	NotSent  State = "not sent"
	Stale    State = "stale"
	Rejected State = "rejected"
	Unknown  State = "unknown"
)

const (
	// mostProxies and mostTypes limit the answer. longestText is the limit of a name, and of an error, in bytes.
	mostProxies = 10000
	mostTypes   = 64
	longestText = 1 << 10
)

// errMalformed means that an answer is not the expected message.
var errMalformed = errors.New("istiod's answer cannot be read: it is of another version than expected")

// discoveryRequest returns the request, as envoy.service.discovery.v3.DiscoveryRequest. Its node is not a proxy, so
// that istiod does not list it.
func discoveryRequest(namespace string) []byte {
	node := bytesField(nil, 1, fmt.Appendf(nil, "sidecar~0.0.0.0~hypergate-proxies.%s~%s.svc.cluster.local", namespace, namespace))
	node = bytesField(node, 3, metadata(map[string]string{"CLUSTER_ID": cluster, "GENERATOR": "event", "NAMESPACE": namespace}))
	return bytesField(bytesField(nil, 2, node), 4, []byte(syncz))
}

// metadata returns a google.protobuf.Struct with texts.
func metadata(texts map[string]string) (out []byte) {
	for key, value := range texts {
		entry := bytesField(bytesField(nil, 1, []byte(key)), 2, bytesField(nil, 3, []byte(value)))
		out = bytesField(out, 1, entry)
	}
	return out
}

func bytesField(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

// decode returns the proxies of an envoy.service.discovery.v3.DiscoveryResponse, sorted by name.
func decode(message []byte) ([]Proxy, error) {
	out := []Proxy{}
	err := eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		if number != 2 { // resources
			return nil
		}
		if len(out) == mostProxies {
			return fmt.Errorf("istiod's answer has more than %d proxies", mostProxies)
		}
		config, err := fieldOf(value, 2) // the value of a google.protobuf.Any
		if err != nil {
			return err
		}
		proxy, err := proxyOf(config)
		out = append(out, proxy)
		return err
	})
	slices.SortFunc(out, func(a, b Proxy) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// proxyOf returns the proxy of an envoy.service.status.v3.ClientConfig.
func proxyOf(message []byte) (out Proxy, err error) {
	err = eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch {
		case number == 1: // node
			return out.setNode(value)
		case number == 3 && len(out.Types) < mostTypes: // generic_xds_configs
			one, err := typeOf(value)
			out.Types = append(out.Types, one)
			return err
		}
		return nil
	})
	slices.SortFunc(out.Types, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	return out, err
}

// setNode sets what an envoy.config.core.v3.Node says. Its id is <type>~<address>~<pod>.<namespace>~<domain>.
func (p *Proxy) setNode(message []byte) error {
	return eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case 1:
			parts := strings.Split(string(value), "~")
			p.Name = text.Line(parts[min(2, len(parts)-1)], longestText)
		case 3: // metadata
			return eachField(value, func(_ protowire.Number, entry []byte, _ uint64) error {
				key, err := fieldOf(entry, 1)
				if err != nil || string(key) != "ISTIO_VERSION" {
					return err
				}
				version, err := fieldOf(entry, 2)
				if err != nil {
					return err
				}
				version, err = fieldOf(version, 3)
				p.Version = text.Line(string(version), longestText)
				return err
			})
		default:
		}
		return nil
	})
}

// typeOf returns the state of an envoy.service.status.v3.ClientConfig.GenericXdsConfig.
func typeOf(message []byte) (out Type, err error) {
	out.State = Unknown
	err = eachField(message, func(number protowire.Number, value []byte, integer uint64) error {
		switch number {
		case 1: // type_url
			out.Name = text.Line(string(value[strings.LastIndexByte(string(value), '.')+1:]), longestText)
		case 6: // config_status
			if states := []State{Unknown, Synced, NotSent, Stale, Rejected}; integer < uint64(len(states)) {
				out.State = states[integer]
			}
		case 8: // error_state
			details, err := fieldOf(value, 3)
			out.Error = text.Line(string(details), longestText)
			return err
		default:
		}
		return nil
	})
	return out, err
}

// fieldOf returns the last field of a number in a message. It is empty if there is none.
func fieldOf(message []byte, wanted protowire.Number) (out []byte, err error) {
	err = eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		if number == wanted {
			out = value
		}
		return nil
	})
	return out, err
}

// eachField calls a function for each field of a message: with its bytes, or with its integer. It skips other fields.
func eachField(message []byte, do func(number protowire.Number, value []byte, integer uint64) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		var value []byte
		var integer uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			integer, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return errMalformed
		}
		message = message[n:]
		if err := do(number, value, integer); err != nil {
			return err
		}
	}
	return nil
}
