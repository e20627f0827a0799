package mgmt

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
)

// ReadControlPlane converts a HostedControlPlane to the model.ControlPlane that Observe returns for it. annotations are
// those of its namespace. The error says what of the object cannot be read.
func ReadControlPlane(u *unstructured.Unstructured, annotations map[string]string, cfg model.Config) (model.ControlPlane, error) {
	if kind := hyperShiftKind(""); u.GetKind() != kind.kind || u.GroupVersionKind().Group != kind.resource.Group {
		return model.ControlPlane{}, fmt.Errorf("%s %s is not a %s of %s", u.GetKind(), u.GetName(), kind.kind, kind.resource.Group)
	}
	out, err := readControlPlane(u, cfg.IstiodName())
	if err != nil {
		return model.ControlPlane{}, err
	}
	var unread []string
	out.RunAsUser, unread = defaultUser(annotations)
	out.UnreadFields = slices.Concat(out.UnreadFields, unread)
	out.NotEnabled, out.RemovalID = cfg.NotEnabled, cfg.RemovalID
	return out, nil
}
