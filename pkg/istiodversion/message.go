package istiodversion

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"regexp"

	"google.golang.org/protobuf/encoding/protowire"
)

// namespace is that of Identity. It cannot be the name of a namespace, so no pod has this identity, and no policy of
// the mesh names it.
const namespace = "_hypergate"

// Identity returns the identity of the client. Its trust domain is Istio's default, which hypergate does not change.
func Identity() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/" + namespace + "/sa/version"}
}

// syncz is the type of the request.
const syncz = "istio.io/debug/syncz"

// The numbers of fields, as in the definitions of Envoy's API and of google.protobuf.Struct.
const (
	requestNode, requestType       protowire.Number = 2, 4
	nodeID, nodeMetadata           protowire.Number = 1, 3
	structFields, mapKey, mapValue protowire.Number = 1, 1, 2
	valueString                    protowire.Number = 3
	responseControlPlane           protowire.Number = 6
	controlPlaneIdentifier         protowire.Number = 1
	grpcHeader                                      = 5
	grpcUncompressed               byte             = 0
)

// question returns the request as gRPC sends it. Without the version in its metadata, istiod would log a warning.
func question(planned string) []byte {
	var metadata []byte
	for _, pair := range [][2]string{{"ISTIO_VERSION", planned}, {"NAMESPACE", namespace}} {
		entry := text(nil, mapKey, pair[0])
		entry = message(entry, mapValue, text(nil, valueString, pair[1]))
		metadata = message(metadata, structFields, entry)
	}
	node := text(nil, nodeID, "router~127.0.0.1~version."+namespace+"~"+namespace+".svc.cluster.local")
	node = message(node, nodeMetadata, metadata)
	request := text(message(nil, requestNode, node), requestType, syncz)
	out := binary.BigEndian.AppendUint32([]byte{grpcUncompressed}, uint32(len(request))) //nolint:gosec // a few hundred bytes
	return append(out, request...)
}

func text(to []byte, field protowire.Number, value string) []byte {
	return message(to, field, []byte(value))
}

func message(to []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, field, protowire.BytesType), value)
}

// errNoMessage means that the answer has a status alone.
var errNoMessage = errors.New("the answer has no message")

// answer reads the first message of an answer, and returns the version in it.
func answer(body io.Reader) (string, error) {
	var header [grpcHeader]byte
	switch _, err := io.ReadFull(body, header[:]); {
	case errors.Is(err, io.EOF):
		return "", errNoMessage
	case err != nil:
		return "", err
	case header[0] != grpcUncompressed:
		return "", ErrNoVersion
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > answerLimit {
		return "", ErrTooLarge
	}
	identifier, err := identifierIn(bufio.NewReader(io.LimitReader(body, int64(size))))
	if err != nil {
		return "", err
	}
	return versionIn(identifier)
}

// identifierIn returns the text by which istiod identifies itself. It discards all other fields of the message.
func identifierIn(in *bufio.Reader) ([]byte, error) {
	for {
		tag, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil, ErrNoVersion
		}
		if err != nil {
			return nil, err
		}
		field, kind := protowire.DecodeTag(tag)
		if field == responseControlPlane && kind == protowire.BytesType {
			return controlPlane(in)
		}
		if err := discard(in, kind); err != nil {
			return nil, err
		}
	}
}

// controlPlane returns the identifier in the message of a control plane.
func controlPlane(in *bufio.Reader) ([]byte, error) {
	size, err := binary.ReadUvarint(in)
	if err != nil {
		return nil, err
	}
	if size > identifierLimit {
		return nil, ErrTooLarge
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(in, raw); err != nil {
		return nil, err
	}
	for len(raw) > 0 {
		field, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, ErrNoVersion
		}
		raw = raw[n:]
		if field == controlPlaneIdentifier && kind == protowire.BytesType {
			value, n := protowire.ConsumeBytes(raw)
			if n < 0 {
				return nil, ErrNoVersion
			}
			return value, nil
		}
		if n = protowire.ConsumeFieldValue(field, kind, raw); n < 0 {
			return nil, ErrNoVersion
		}
		raw = raw[n:]
	}
	return nil, ErrNoVersion
}

// discard reads the value of a field, and keeps nothing of it.
func discard(in *bufio.Reader, kind protowire.Type) error {
	var size uint64
	var err error
	switch kind {
	case protowire.VarintType:
		_, err = binary.ReadUvarint(in)
		return err
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		size, err = binary.ReadUvarint(in)
	default:
		err = ErrNoVersion
	}
	if err != nil {
		return err
	}
	if size > answerLimit {
		return ErrTooLarge
	}
	_, err = io.CopyN(io.Discard, in, int64(size))
	return err
}

// version is the form of a version: a release, and what vendors make of it, such as 1.20.3-distroless.
var version = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]{0,63}$`)

// versionIn returns the version in an identifier, which is JSON (IstioControlPlaneInstance in pilot/pkg/xds/xdsgen.go).
func versionIn(identifier []byte) (string, error) {
	var instance struct {
		Info struct {
			Version string `json:"version"`
		}
	}
	if json.Unmarshal(identifier, &instance) != nil || !version.MatchString(instance.Info.Version) {
		return "", ErrNoVersion
	}
	return instance.Info.Version, nil
}
