package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	sailhelm "github.com/istio-ecosystem/sail-operator/pkg/helm"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	sigsyaml "sigs.k8s.io/yaml"
)

const (
	// releaseName is the name that sail-operator gives the same release (S pkg/reconcile/istiod.go, getReleaseName).
	releaseName = revision + "-istiod"
	// managedBy and library are the label that the sail library puts on each object of the release
	// (S pkg/install/library.go, pkg/helm/postrenderer.go). Its watches select by it.
	managedBy = "managed-by"
	library   = "sail-library"
)

// helm returns an action configuration. pkg/helm.ChartManager of the module cannot be used here: it writes an owner
// into each object, which the sail library does not (S pkg/install/reconciler.go passes no owner).
func helm(ctx context.Context, config *rest.Config) (*action.Configuration, error) {
	out := new(action.Configuration)
	log := ctrl.LoggerFrom(ctx)
	err := out.Init(sailhelm.NewRESTClientGetter(config), operand, "secret", func(format string, args ...any) {
		log.V(1).Info(fmt.Sprintf(format, args...))
	})
	return out, err
}

// upgradeOrInstall installs the release, or sends the difference to what the chart renders: a three-way merge of the
// last release, this one, and the objects in the guest (S pkg/helm/chartmanager.go, upgradeOrInstallChart).
func (r *reconciler) upgradeOrInstall(ctx context.Context, values map[string]any) error {
	config, err := helm(ctx, r.config)
	if err != nil {
		return err
	}
	chart, err := loader.Load(r.chart)
	if err != nil {
		return err
	}
	last, err := action.NewGet(config).Run(releaseName)
	switch {
	case errors.Is(err, driver.ErrReleaseNotFound):
		install := action.NewInstall(config)
		install.Namespace, install.ReleaseName, install.SkipCRDs, install.DisableOpenAPIValidation = operand, releaseName, true, true
		install.PostRenderer = postRenderer{}
		_, err = install.RunWithContext(ctx, chart, values)
		return err
	case err != nil:
		return err
	}
	if last.Info.Status.IsPending() { // this process was killed during a write
		last.SetStatus(release.StatusFailed, "unlocked")
		if err := config.Releases.Update(last); err != nil {
			return err
		}
	}
	upgrade := action.NewUpgrade(config)
	upgrade.MaxHistory, upgrade.SkipCRDs, upgrade.DisableOpenAPIValidation = 1, true, true
	upgrade.PostRenderer = postRenderer{update: true}
	_, err = upgrade.RunWithContext(ctx, releaseName, chart, values)
	return err
}

// uninstall deletes the release, if there is one.
func (r *reconciler) uninstall(ctx context.Context) error {
	config, err := helm(ctx, r.config)
	if err != nil {
		return err
	}
	if _, err = action.NewUninstall(config).Run(releaseName); errors.Is(err, driver.ErrReleaseNotFound) {
		return nil
	}
	return err
}

// postRenderer adds the label. On updates, it removes the failurePolicy of the validating webhook, which then stays as
// istiod or an administrator has set it (S pkg/helm/postrenderer.go).
type postRenderer struct{ update bool }

func (p postRenderer) Run(rendered *bytes.Buffer) (*bytes.Buffer, error) {
	out := &bytes.Buffer{}
	reader := yaml.NewYAMLReader(bufio.NewReader(rendered))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		object := &unstructured.Unstructured{}
		if err := sigsyaml.Unmarshal(text, &object.Object); err != nil {
			return nil, err
		}
		if len(object.Object) == 0 {
			continue // only comments
		}
		if text, err = p.change(object); err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
}

func (p postRenderer) change(object *unstructured.Unstructured) ([]byte, error) {
	if err := unstructured.SetNestedField(object.Object, library, "metadata", "labels", managedBy); err != nil {
		return nil, err
	}
	if webhooks, is := object.Object["webhooks"].([]any); is && p.update && object.GetKind() == "ValidatingWebhookConfiguration" {
		for _, webhook := range webhooks {
			if fields, is := webhook.(map[string]any); is {
				delete(fields, "failurePolicy")
			}
		}
	}
	return sigsyaml.Marshal(object.Object)
}
