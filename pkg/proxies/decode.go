package proxies

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/hypergate/hypergate/pkg/text"
)

// Answer is what istiod answers.
type Answer struct {
	// Proxies are sorted by name.
	Proxies []Proxy
	// Omitted is the number of proxies that are left out: beyond the limit of proxies, of the size of one, or of what
	// is kept of all, or with the name of a pod in another namespace than their own.
	Omitted int
	// Istiod is the name of the pod that answers. It is empty if istiod does not say it.
	Istiod string
	// kept is the memory of Proxies, in bytes.
	kept int
}

// Proxy is a proxy that is connected to istiod.
type Proxy struct {
	// Name is <pod>.<namespace>. Version is that of Istio in the proxy.
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Istiod is the name of the istiod pod that the proxy is connected to. AskAll sets it.
	Istiod string `json:"istiod,omitempty"`
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
	// longestPlane is the size limit of what istiod says about itself, in bytes.
	longestPlane = 16 << 10
	// mostProxies, longestProxy and mostTypes limit the answer. longestText is the limit of a name, and of an error, in
	// bytes. A pod chooses its node ID, and the text of a rejection, which istiod passes on.
	mostProxies  = 10000
	longestProxy = 256 << 10
	mostTypes    = 64
	longestText  = 1 << 10
	// mostKept is the limit of the memory of all proxies of an answer, in bytes. 10,000 usual proxies need 5 MiB. One
	// pod can open many streams, each of which is a proxy with 64 rejections of 1 KiB.
	mostKept = 16 << 20
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

// decode returns the wanted proxies of an envoy.service.discovery.v3.DiscoveryResponse.
func decode(message *io.LimitedReader, wanted func(string) bool) (Answer, error) {
	out := Answer{Proxies: []Proxy{}}
	in, buffer := bufio.NewReader(message), []byte(nil)
	for {
		number, length, err := nextField(in)
		if errors.Is(err, io.EOF) && message.N == 0 {
			slices.SortFunc(out.Proxies, func(a, b Proxy) int { return cmp.Compare(a.Name, b.Name) })
			return out, nil
		}
		if err != nil {
			return Answer{}, early(err)
		}
		if limit := limitOf(number); length > limit {
			if number == resources {
				out.Omitted++
			}
			if _, err := io.CopyN(io.Discard, in, length); err != nil {
				return Answer{}, early(err)
			}
			continue
		}
		buffer = slices.Grow(buffer[:0], int(length))[:length]
		if _, err := io.ReadFull(in, buffer); err != nil {
			return Answer{}, early(err)
		}
		if err := out.read(number, buffer, wanted); err != nil {
			return Answer{}, err
		}
	}
}

// limitOf returns the size in bytes up to which a field is read. Other fields are skipped, also empty ones.
func limitOf(number protowire.Number) int64 {
	switch number {
	case resources:
		return longestProxy
	case controlPlane:
		return longestPlane
	default:
		return -1
	}
}

// read reads a field of the response.
func (a *Answer) read(number protowire.Number, value []byte, wanted func(string) bool) (err error) {
	if number == controlPlane {
		a.Istiod, err = istiodOf(value)
		return err
	}
	return a.add(value, wanted)
}

// resources is the number of the field with the proxies, controlPlane that of the field with the name of istiod.
const (
	resources    = 2
	controlPlane = 6
)

// istiodOf reads an envoy.config.core.v3.ControlPlane, and returns the name of istiod's pod. Its identifier is JSON
// (pilot/pkg/xds/xdsgen.go). While a migration takes place, the name has a prefix that ends with a colon.
func istiodOf(message []byte) (string, error) {
	identifier, err := fieldOf(message, 1)
	if err != nil {
		return "", err
	}
	var instance struct{ ID string }
	_ = json.Unmarshal(identifier, &instance) // without JSON, the answer is used, and does not name istiod
	return text.Line(instance.ID[strings.LastIndexByte(instance.ID, ':')+1:], longestText), nil
}

// nextField reads the head of the next field: its number, and the length of its value in bytes. It returns io.EOF at
// the end of the message.
func nextField(in *bufio.Reader) (number protowire.Number, length int64, err error) {
	if _, err := in.Peek(1); err != nil {
		return 0, 0, err
	}
	tag, err := varint(in)
	if err != nil {
		return 0, 0, err
	}
	number, kind := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return 0, 0, errMalformed
	}
	switch kind {
	case protowire.BytesType:
		size, err := varint(in)
		if err != nil {
			return 0, 0, err
		}
		if size > longestAnswer {
			return 0, 0, errMalformed
		}
		return number, int64(size), nil
	case protowire.VarintType:
		_, err := varint(in)
		return 0, 0, err
	case protowire.Fixed32Type:
		return 0, 4, nil
	case protowire.Fixed64Type:
		return 0, 8, nil
	default:
		return 0, 0, errMalformed
	}
}

func varint(in *bufio.Reader) (uint64, error) {
	value, err := binary.ReadUvarint(in)
	switch {
	case errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, errors.Join(errMalformed, err) // also an error of the connection
	}
	return value, err
}

// early returns the error of a message that ends before its length.
func early(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the answer ends early: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// add adds a proxy, if it is wanted and may be in the answer. resource is a google.protobuf.Any.
func (a *Answer) add(resource []byte, wanted func(string) bool) error {
	config, err := fieldOf(resource, 2) // its value
	if err != nil {
		return err
	}
	proxy, namespace, err := proxyOf(config)
	switch {
	case err != nil:
		return err
	case wanted != nil && !wanted(proxy.Name):
	case namespace == "" || !strings.HasSuffix(proxy.Name, "."+namespace) || len(a.Proxies) == mostProxies ||
		a.kept+proxy.size() > mostKept:
		a.Omitted++
	default:
		a.kept += proxy.size()
		a.Proxies = append(a.Proxies, proxy)
	}
	return nil
}

// size returns the memory that a proxy needs, in bytes.
func (p Proxy) size() int {
	out := int(unsafe.Sizeof(p)) + len(p.Name) + len(p.Version) + cap(p.Types)*int(unsafe.Sizeof(Type{}))
	for _, one := range p.Types {
		out += len(one.Name) + len(one.Error) // a state is a constant
	}
	return out
}

// proxyOf returns the proxy of an envoy.service.status.v3.ClientConfig, and its namespace. istiod checks that the
// namespace is that of the proxy's token or certificate. It does not check the name (pilot/pkg/xds/ads.go,
// checkConnectionIdentity).
func proxyOf(message []byte) (out Proxy, namespace string, err error) {
	err = eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch {
		case number == 1: // node
			return out.setNode(value, &namespace)
		case number == 3 && len(out.Types) < mostTypes: // generic_xds_configs
			one, err := typeOf(value)
			out.Types = append(out.Types, one)
			return err
		}
		return nil
	})
	slices.SortFunc(out.Types, func(a, b Type) int { return cmp.Compare(a.Name, b.Name) })
	return out, namespace, err
}

// setNode sets what an envoy.config.core.v3.Node says. Its id is <type>~<address>~<pod>.<namespace>~<domain>.
func (p *Proxy) setNode(message []byte, namespace *string) error {
	return eachField(message, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case 1:
			parts := strings.SplitN(string(value), "~", nodeParts)
			p.Name = strings.Clone(text.Line(parts[min(2, len(parts)-1)], longestText)) // a copy frees the rest of the ID
		case 3: // metadata
			return eachField(value, func(_ protowire.Number, entry []byte, _ uint64) error {
				key, value, err := entryOf(entry)
				switch key {
				case "ISTIO_VERSION":
					p.Version = value
				case "NAMESPACE":
					*namespace = value
				}
				return err
			})
		default:
		}
		return nil
	})
}

// nodeParts is the number of parts of the id of a node.
const nodeParts = 4

// entryOf returns a text of a google.protobuf.Struct, and its key.
func entryOf(entry []byte) (key, value string, err error) {
	name, err := fieldOf(entry, 1)
	if err != nil {
		return "", "", err
	}
	content, err := fieldOf(entry, 2)
	if err != nil {
		return "", "", err
	}
	content, err = fieldOf(content, 3)
	return text.Line(string(name), longestText), text.Line(string(content), longestText), err
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
