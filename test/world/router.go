package world

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/hypergate/hypergate/test/proc"
)

// publishService is the Service by which the integrator publishes istiod. It stays when istiod's own Service is
// deleted and created again.
const publishService = "published-istiod"

// RouterAddress returns the address of the guest's router on the management cluster. The router is between the
// guest's gateways and istiod. It exists only in the hosted topology.
func (w *World) RouterAddress() string {
	return net.JoinHostPort(w.HostAddress().String(), strconv.Itoa(443+w.number))
}

// routerConfig is the configuration of the router. It routes connections by their server name, without terminating
// TLS. All other names lead to the guest's API server. HyperShift's routers do the same (openshift/hypershift
// control-plane-operator/controllers/hostedcontrolplane/v2/router).
const routerConfig = `global
  maxconn 1000
defaults
  mode tcp
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout tunnel 1h
frontend sni
  bind %[1]s
  tcp-request inspect-delay 5s
  tcp-request content accept if { req_ssl_hello_type 1 }
  use_backend istiod if { req_ssl_sni -i %[2]s }
  default_backend kube_api
backend istiod
  server istiod %[3]s
backend kube_api
  server kube_api %[4]s
`

// StartRouter starts the management cluster's router and returns when it listens.
func (w *World) StartRouter(ctx context.Context) (*proc.Process, error) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: publishService},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "istiod", "istio.io/rev": Revision},
			Ports:    []corev1.ServicePort{{Name: "tls-xds", Port: 15012}},
		},
	}
	services := w.MgmtClient.CoreV1().Services(w.MgmtNamespace)
	made, err := services.Create(ctx, service, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = services.Get(ctx, publishService, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("making the Service by which istiod is published: %w", err)
	}
	config := fmt.Sprintf(routerConfig, w.RouterAddress(), w.XDS().Host, net.JoinHostPort(made.Spec.ClusterIP, "15012"),
		strings.TrimPrefix(w.GuestConfig.Host, "https://"))
	file := filepath.Join(w.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("configuring the router: %w", err)
	}
	p, err := proc.Spec{Name: "haproxy", LogDir: w.Dir, Argv: []string{"haproxy", "-db", "-f", file}, Detach: w.options.Detach}.Start()
	if err != nil {
		return nil, fmt.Errorf("%w; hack/system-packages.sh installs it", err)
	}
	ctx, cancel := p.Guard(ctx)
	defer cancel()
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.RouterAddress())
		if err != nil {
			return false, nil //nolint:nilerr // it does not listen yet
		}
		return true, conn.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the router (%w): %w", context.Cause(ctx), err)
	}
	return p, nil
}

// StopRouter ends the router that Start has started: nothing answers at the published address, also for connections
// that are open.
func (w *World) StopRouter() { w.router.Kill() }

// RestartRouter starts the router again, and returns when it listens.
func (w *World) RestartRouter(ctx context.Context) error {
	router, err := w.StartRouter(ctx)
	if err == nil {
		w.router = router
	}
	return err
}
