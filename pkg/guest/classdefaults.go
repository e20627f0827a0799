package guest

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/watch"
)

// maxOtherDefaults is how many ConfigMaps of others are reported, those that istiod uses first.
const maxOtherDefaults = 20

// defaultsItem is the part of a ConfigMap with the defaults of a class that is kept.
type defaultsItem struct {
	metav1.ObjectMeta
	class   string
	made    time.Time
	own     bool
	problem string
	// settings and template are those that hypergate's own defaults have.
	settings model.LastSettings
	template string
}

// KeptBytes returns the number of bytes that are kept besides the metadata.
func (i *defaultsItem) KeptBytes() int {
	proxy := i.settings.Proxy
	return 7*stringSize + 64 + len(i.class) + len(i.problem) + len(i.settings.Hash) + len(proxy.HTTP) + len(proxy.HTTPS) + len(proxy.No) +
		len(i.template)
}

// sameForDecisions reports whether no decision depends on the difference. The settings are read only by a new process.
func (i *defaultsItem) sameForDecisions(other *defaultsItem) bool {
	return i.class == other.class && i.own == other.own && i.problem == other.problem && i.template == other.template
}

// newDefaultsWatch returns a watch of the ConfigMaps in istiod's namespace that have defaults for the gateways of a
// class. owner is the value of hypergate's label on its own.
func newDefaultsWatch(client coreclient.ConfigMapInterface, owner string, budget *watch.Budget, notify func()) *watch.Watch {
	options := selectedWatch("configmaps", client, metav1.ListOptions{LabelSelector: model.ClassDefaultsLabel})
	options.Example, options.Client, options.Budget = &corev1.ConfigMap{}, client, budget
	options.Transform = defaultsOnly(owner)
	options.OnEvent = func(e watch.Event) {
		before, _ := e.Before.(*defaultsItem)
		after, is := e.Object.(*defaultsItem)
		if e.Gone || !is || before == nil || !before.sameForDecisions(after) {
			notify()
		}
	}
	options.OnSynced, options.OnProblem = notify, notify
	return watch.New(options)
}

// defaultsOnly returns a function that reduces a ConfigMap to its class, its owner, and what is wrong with it, or what
// hypergate's own have. owner is the value of hypergate's label on its own.
func defaultsOnly(owner string) func(any) (any, error) {
	return func(obj any) (any, error) {
		m, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return obj, nil
		}
		item := &defaultsItem{
			ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion},
			class:      bounded(m.Labels[model.ClassDefaultsLabel], maxName), made: m.CreationTimestamp.Time,
			own: m.Labels[model.OwnerLabel] == owner,
		}
		if item.own {
			item.settings = desired.LastSettings(m.Annotations, m.Data)
			item.settings.Hash = bounded(item.settings.Hash, maxName)
			item.template = model.TemplateOf(m.Data)
		} else {
			item.problem = model.DefaultsProblem(m.Data)
		}
		return item, nil
	}
}

// otherDefaults returns the ConfigMaps of others with defaults for the gateways of these classes. Those that istiod
// uses come first.
func otherDefaults(items []any, classes []model.GatewayClass) []model.OtherDefaults {
	oldest := map[string]*defaultsItem{}
	for _, class := range classes {
		oldest[class.Name] = nil
	}
	var others []*defaultsItem
	for _, obj := range items {
		item, is := obj.(*defaultsItem)
		if !is {
			continue
		}
		first, ours := oldest[item.class]
		if !ours {
			continue
		}
		if first == nil || olderDefaults(item, first) < 0 {
			oldest[item.class] = item
		}
		if !item.own {
			others = append(others, item)
		}
	}
	if len(others) == 0 {
		return nil
	}
	out := make([]model.OtherDefaults, 0, len(others))
	for _, item := range others {
		out = append(out, model.OtherDefaults{
			Class: item.class, ConfigMap: item.Namespace + "/" + item.Name, Used: oldest[item.class] == item, Problem: item.problem,
		})
	}
	slices.SortFunc(out, func(a, b model.OtherDefaults) int {
		if a.Used != b.Used {
			if a.Used {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.ConfigMap, b.ConfigMap))
	})
	return out[:min(len(out), maxOtherDefaults)]
}

// ownDefaults returns what hypergate's own defaults of these classes have: the settings of the guest, and the template
// of each class. The settings differ if a write was refused, or if a process ended between two writes. Then the last
// change counts.
func ownDefaults(
	items []any, classes []model.GatewayClass, nameOf func(class string) string,
) (settings model.LastSettings, templates map[string]string) {
	own := map[string]*defaultsItem{}
	for _, obj := range items {
		if item, is := obj.(*defaultsItem); is && item.own {
			own[item.Name] = item
		}
	}
	for _, class := range classes {
		item, exist := own[nameOf(class.Name)]
		if !exist {
			continue
		}
		if last := item.settings; !settings.Exist || last.Changed.After(settings.Changed) {
			settings = last
		}
		if templates == nil {
			templates = map[string]string{}
		}
		templates[class.Name] = item.template
	}
	return settings, templates
}

// olderDefaults compares as istiod does (pkg/kube/controllers/common.go, OldestObject).
func olderDefaults(a, b *defaultsItem) int {
	return cmp.Or(a.made.Compare(b.made), cmp.Compare(a.Name, b.Name))
}
