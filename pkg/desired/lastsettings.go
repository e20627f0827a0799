package desired

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/values"
)

// settingsMarks returns the annotations that identify the settings of the guest in the defaults of a class.
func settingsMarks(guest model.GuestObservation) map[string]string {
	out := map[string]string{}
	if settings := guest.Proxy.Hash(); settings != "" {
		out[model.SettingsAnnotation] = settings
	}
	if !guest.ProxyChanged.IsZero() {
		out[model.SettingsChangedAnnotation] = guest.ProxyChanged.UTC().Format(time.RFC3339)
	}
	return out
}

// recordSettings adds the settings of the guest, except the proxy, to the annotations of istiod's Deployment.
// hypergate uses these values while the guest does not permit it to read the settings.
func recordSettings(u *unstructured.Unstructured, _ model.Config, mgmt model.ManagementObservation, guest model.GuestObservation) error {
	used := model.UsedSettings{Infrastructure: guest.Infrastructure}
	if !mgmt.ControlPlane.Exists() {
		used.TLSProfile = guest.TLSProfile
	}
	marks, err := used.Annotations()
	if err != nil || len(marks) == 0 {
		return err
	}
	maps.Copy(marks, u.GetAnnotations())
	u.SetAnnotations(marks)
	return nil
}

// LastSettings returns the settings of the guest in the annotations and the data of hypergate's defaults of a class. It
// is the inverse of classDefaults and settingsMarks. The guest's admin can write anything there, so a proxy counts only
// if gateways could get it from the guest's own settings, and if it has the hash.
func LastSettings(annotations, data map[string]string) model.LastSettings {
	out := model.LastSettings{Exist: true, Hash: annotations[model.SettingsAnnotation]}
	if at, err := time.Parse(time.RFC3339, annotations[model.SettingsChangedAnnotation]); err == nil && at.Unix() > 0 {
		out.Changed = at.UTC()
	}
	variables := values.ContainerEnv(data["deployment"], proxyContainer)
	seen := model.Proxy{HTTP: variables["HTTP_PROXY"], HTTPS: variables["HTTPS_PROXY"], No: variables["NO_PROXY"]}
	// The last entry can be istiod's host, see Bypassing. It was another one if the published address has changed.
	short := seen
	short.No = strings.Clone(seen.No[:max(0, strings.LastIndexByte(seen.No, ','))]) // without the rest, which can be long
	for _, proxy := range []model.Proxy{seen, short} {
		if usable, _ := model.UsableProxy(proxy); usable == proxy && proxy.Hash() == out.Hash {
			out.Proxy, out.Readable = proxy, true
		}
	}
	return out
}
