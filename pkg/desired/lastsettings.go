package desired

import (
	"strings"
	"time"

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

// LastSettings returns the settings of the guest in the annotations and the data of hypergate's defaults of a class. It
// is the inverse of classDefaults and settingsMarks. The guest's admin can write anything there, so a proxy counts only
// if gateways could get it from the guest's own settings, and if it has the hash.
func LastSettings(annotations, data map[string]string) model.LastSettings {
	out := model.LastSettings{Exist: true, Hash: annotations[model.SettingsAnnotation]}
	at, err := time.Parse(time.RFC3339, annotations[model.SettingsChangedAnnotation])
	if err != nil || at.Unix() <= 0 {
		return out // without the time, nothing waits, and the proxy is not needed
	}
	out.Changed = at.UTC()
	variables := values.ContainerEnv(data["deployment"], proxyContainer)
	seen := model.Proxy{HTTP: variables["HTTP_PROXY"], HTTPS: variables["HTTPS_PROXY"], No: variables["NO_PROXY"]}
	// The last entry can be istiod's host, see Bypassing. It was another one if the published address has changed.
	short := seen
	short.No = seen.No[:max(0, strings.LastIndexByte(seen.No, ','))]
	for _, proxy := range []model.Proxy{seen, short} {
		if usable, _ := model.UsableProxy(proxy); usable == proxy && proxy.Hash() == out.Hash {
			out.Proxy, out.Readable = proxy, true
		}
	}
	return out
}
