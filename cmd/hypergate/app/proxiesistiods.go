package app

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/text"
)

// silentIstiod is an istiod that did not answer. Why says what its pod shows.
type silentIstiod struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// istiodPods are the names of istiod's pods, sorted: those that serve, and those that the published address does not
// lead to, with the reason. Both are empty if they are not known.
type istiodPods struct {
	ready  []string
	others []silentIstiod
}

// istiods returns istiod's pods on the management cluster. They are not necessary for an answer: the command notes that
// it cannot read them, and goes on.
func (o *proxiesOptions) istiods(ctx context.Context, errOut io.Writer) istiodPods {
	if o.mgmt.namespace == "" {
		return istiodPods{}
	}
	pods, err := o.listIstiods(ctx)
	if err != nil {
		fmt.Fprintf(errOut, "hypergate: it is not known whether each istiod has answered: %v\n", err)
		return istiodPods{}
	}
	return sortedIstiods(pods)
}

func (o *proxiesOptions) listIstiods(ctx context.Context) ([]corev1.Pod, error) {
	config, _, err := o.mgmt.config()
	if err != nil {
		return nil, err
	}
	client, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the management cluster: %w", err)
	}
	selector := labels.Set{}
	for name, value := range (model.Config{Revision: o.revision}).IstiodPods() {
		selector[name] = fmt.Sprint(value)
	}
	found, err := client.Pods(o.mgmt.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String(), Limit: mostIstiods})
	if err != nil {
		return nil, accessError("listing istiod's pods in namespace "+o.mgmt.namespace, "list pods there", err)
	}
	return found.Items, nil
}

// mostIstiods is the limit of pods that are listed. A Deployment has two, and at most as many while it rolls.
const mostIstiods = 20

// sortedIstiods returns pods by whether they serve. It leaves out pods that have ended, or are about to.
func sortedIstiods(pods []corev1.Pod) (out istiodPods) {
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		case slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}):
			out.ready = append(out.ready, pod.Name)
		default:
			out.others = append(out.others, silentIstiod{pod.Name, "its pod is not ready"})
		}
	}
	slices.Sort(out.ready)
	slices.SortFunc(out.others, func(a, b silentIstiod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// silent returns the istiods that did not answer.
func (p istiodPods) silent(answered []string) []silentIstiod {
	out := make([]silentIstiod, 0, len(p.ready)+len(p.others))
	for _, name := range p.ready {
		out = append(out, silentIstiod{name, "its pod is ready: check that the published address leads to it"})
	}
	out = append(out, p.others...)
	return slices.DeleteFunc(out, func(s silentIstiod) bool { return slices.Contains(answered, s.Name) })
}

// noteSilent prints which istiods did not answer, and the error of a connection that had no answer.
func noteSilent(silent []silentIstiod, failure error, errOut io.Writer) {
	for _, s := range silent {
		fmt.Fprintf(errOut, "hypergate: istiod %s did not answer, and its proxies are not listed: %s\n", s.Name, s.Why)
	}
	if len(silent) > 0 && failure != nil {
		fmt.Fprintf(errOut, "hypergate: the last connection without an answer: %s\n", text.Line(failure.Error(), longestCell))
	}
}
