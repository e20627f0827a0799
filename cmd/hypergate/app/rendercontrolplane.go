package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/hypergate/hypergate/pkg/mgmt"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/publish"
)

// longestFile is the maximum size of a file with a HostedControlPlane, in bytes. An API server accepts no larger
// object, and a List with all HostedControlPlanes of a namespace has one.
const longestFile = 8 << 20

// exampleUID is the UID of a HostedControlPlane whose file has none.
const exampleUID = "00000000-0000-4000-8000-000000000000"

// controlPlaneFile is what a file with a HostedControlPlane contains.
type controlPlaneFile struct {
	plane *unstructured.Unstructured
	// annotations are those of its namespace, if the file contains that.
	annotations map[string]string
}

// readControlPlaneFile reads the documents of a file: one HostedControlPlane, and optionally its Namespace. in is read
// for the path "-". The result is empty for an empty path.
func readControlPlaneFile(path string, in io.Reader) (controlPlaneFile, error) {
	if path == "" {
		return controlPlaneFile{}, nil
	}
	data, err := readInput(path, in)
	if err != nil {
		return controlPlaneFile{}, fmt.Errorf("--filename: %w", err)
	}
	var out controlPlaneFile
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		switch err := decoder.Decode(u); {
		case errors.Is(err, io.EOF) && out.plane == nil:
			return out, fmt.Errorf("--filename: %s contains no HostedControlPlane", path)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, fmt.Errorf("--filename: %s: %w", path, err)
		}
		if err := out.add(u); err != nil {
			return out, fmt.Errorf("--filename: %s: %w", path, err)
		}
	}
}

// add adds a document, or the items of a List.
func (f *controlPlaneFile) add(u *unstructured.Unstructured) error {
	switch {
	case len(u.Object) == 0:
		return nil
	case u.IsList():
		return u.EachListItem(func(item runtime.Object) error {
			one, is := item.(*unstructured.Unstructured)
			if !is {
				return errors.New("a List contains an item that is not an object")
			}
			return f.add(one)
		})
	case u.GetKind() == "Namespace":
		f.annotations = u.GetAnnotations()
		return nil
	case f.plane != nil:
		return fmt.Errorf("it contains a second HostedControlPlane, %s, but hypergate supports only one", u.GetName())
	}
	f.plane = u
	return nil
}

// readInput returns the content of a file, or of in for the path "-".
func readInput(path string, in io.Reader) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, longestFile+1))
	if err == nil && len(data) > longestFile {
		err = fmt.Errorf("%s has more than %d bytes", path, longestFile)
	}
	return data, err
}

// observation returns what run would observe on the management side of this HostedControlPlane, without the mesh CA.
// The second result is why run would write nothing now; it is empty if run would write. Warnings go to stderr.
func (f controlPlaneFile) observation(cmd *cobra.Command, cfg model.Config, published string) (model.ManagementObservation, string, error) {
	var out model.ManagementObservation
	if f.plane != nil {
		if f.plane.GetUID() == "" {
			f.plane.SetUID(exampleUID)
			cmd.PrintErrln("hypergate: the HostedControlPlane has no UID, so owner references have the UID " + exampleUID)
		}
		plane, err := mgmt.ReadControlPlane(f.plane, f.annotations, cfg)
		if err != nil {
			return out, "", fmt.Errorf("--filename: %w", err)
		}
		for _, warning := range plane.Warnings() {
			cmd.PrintErrln("hypergate: ignored: " + oneLine(warning))
		}
		out.ControlPlane = plane
	}
	endpoints, err := handedOut(cfg, out.ControlPlane, published)
	out.Endpoints = endpoints
	return out, whyNothing(out.ControlPlane), err
}

// whyNothing returns why run writes nothing for a control plane now. It is empty if run writes.
func whyNothing(plane model.ControlPlane) string {
	switch plane.Lifecycle(time.Now()).(type) {
	case model.Disabled:
		return "the capability " + model.IngressCapability + " is disabled"
	case model.Paused:
		return "it is paused (spec.pausedUntil: " + plane.PausedUntil + ")"
	case model.Deleting:
		return "it is being deleted"
	case model.Starting:
		return "its control plane is not initialized yet"
	default:
		return ""
	}
}

// handedOut returns what the management cluster would hand out for istiod: an address, a port, or the host of the Route
// of the control plane operator. published is the value of --published-host.
func handedOut(cfg model.Config, plane model.ControlPlane, published string) (model.ObservedEndpoints, error) {
	strategy, err := publish.StrategyFor(cfg, plane)
	if err != nil {
		return model.ObservedEndpoints{}, nil //nolint:nilerr // the plan is refused for the same reason
	}
	out := model.ObservedEndpoints{}
	evidence := publish.EvidenceOf(strategy)
	if evidence == publish.EvidenceTLSRoutes {
		out.TLSRouteVersion = publish.TLSRouteVersions()[0]
	}
	if published == "" {
		return out, nil
	}
	port, isPort := strings.CutPrefix(published, ":")
	switch {
	case evidence == publish.EvidenceService && isPort:
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return out, fmt.Errorf("--published-host: %q is not :<port> with a port between 1 and 65535", published)
		}
		out.NodePort = uint16(number)
	case !model.IsHost(published):
		return out, fmt.Errorf("--published-host: %q is neither a host name or address nor :<port>", published)
	case evidence == publish.EvidenceService:
		out.LoadBalancer = published
	case evidence == publish.EvidenceRoutes:
		out.ControlPlaneRoute = model.FoundRoute{Exists: true, Host: published}
	default:
		return out, notHandedOut(strategy)
	}
	return out, nil
}

// notHandedOut returns that a strategy has no use for --published-host. Without a strategy, there is an address.
func notHandedOut(strategy model.PublishStrategy) error {
	if strategy == "" {
		return errors.New("--published-host: istiod is published at --xds-address: remove one of the two flags, " +
			"or add --filename or --publish")
	}
	return fmt.Errorf("--published-host: the cluster allocates nothing for istiod with --publish=%s: remove the flag", strategy)
}
