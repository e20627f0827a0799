package main

import (
	"flag"
	"fmt"
	"os"
	"slices"

	sailv1 "github.com/istio-ecosystem/sail-operator/api/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ingress-operator:", err)
		os.Exit(1)
	}
}

// run runs the controller until a signal ends the process.
func run() error {
	r := &reconciler{}
	flag.StringVar((*string)(&r.install), "install", string(byLibrary), "who installs istiod: olm, library or external")
	flag.StringVar(&r.chart, "chart", "", "folder of the chart istiod, for --install=library")
	flag.StringVar(&r.version, "istio-version", "", "version for the resource Istio, or for the condition ControllerInstalled")
	flag.StringVar(&r.istiodImage, "istiod-image", "", "image of istiod, for --install=library")
	flag.StringVar(&r.proxyImage, "proxy-image", "", "image of gateways, for --install=library")
	flag.Parse() // with the flag --kubeconfig of controller-runtime
	if !slices.Contains([]installation{byOLM, byLibrary, byOther}, r.install) {
		return fmt.Errorf("--install is %q, not olm, library or external", r.install)
	}
	ctrl.SetLogger(zap.New())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, gatewayv1.Install, sailv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(known); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: known, Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r.client, r.reader, r.config = mgr.GetClient(), mgr.GetAPIReader(), config
	if err := r.setup(mgr); err != nil {
		return err
	}
	if err := (&labeler{client: mgr.GetClient()}).setup(mgr); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}
