package app

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/desired"
)

// publishOptions are the flags about how the guest's nodes reach istiod.
type publishOptions struct {
	xdsAddress, way, host, gateway string
	nodePort                       uint16
}

func (o *publishOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.xdsAddress, "xds-address", "", "host:port at which the guest's gateways reach istiod, where somebody else publishes it (standalone: istiod's Service)")
	flags.StringVar(&o.way, "publish", string(desired.PublishAuto), "how istiod is published to the guest's nodes, unless --xds-address says where that is done: route, loadbalancer, nodeport, tlsroute, "+
		"or auto, the way in which the HostedControlPlane publishes the guest's API server; where the guest's nodes come by a private link or HyperShift's shared ingress, only by the control-plane-operator's Route istiod")
	flags.StringVar(&o.host, "publish-host", "", "host name of the Route, TLSRoute or load balancer, or address of the nodes (default: beside the hosts that the HostedControlPlane names, or what the load balancer gets)")
	flags.Uint16Var(&o.nodePort, "publish-node-port", 0, "port on the nodes, with --publish=nodeport (default: one that the cluster hands out)")
	flags.StringVar(&o.gateway, "publish-gateway", "", "<namespace>/<name>[/<listener>] of the management cluster's Gateway, with --publish=tlsroute")
}

// into turns the flags into what is planned.
func (o *publishOptions) into(cfg *desired.Config) (err error) {
	way := desired.PublishStrategy(o.way)
	switch {
	case o.way == "":
		return errors.New("--publish: an empty value is no way; give auto, route, loadbalancer, nodeport, tlsroute, or --xds-address")
	case o.xdsAddress != "" && way != desired.PublishAuto:
		return fmt.Errorf("--xds-address and --publish=%s exclude each other: either somebody else publishes istiod, or hypergate does", way)
	case o.xdsAddress != "":
		cfg.XDS, err = parseHostPort("--xds-address", o.xdsAddress)
		return err
	case cfg.Topology == desired.TopologyStandalone && way == desired.PublishAuto:
		cfg.XDS = desired.HostPort{Host: cfg.IstiodName() + "." + cfg.GuestNamespace + ".svc", Port: 15012}
		return nil
	case o.nodePort != 0 && way != desired.PublishNodePort:
		return fmt.Errorf("--publish-node-port is for --publish=%s only", desired.PublishNodePort)
	}
	cfg.Publish = desired.Publish{Strategy: way, At: desired.HostPort{Host: o.host, Port: o.nodePort}}
	if o.gateway != "" {
		namespace, rest, _ := strings.Cut(o.gateway, "/")
		name, listener, _ := strings.Cut(rest, "/")
		cfg.Publish.Gateway = desired.ParentGateway{Namespace: namespace, Name: name, Listener: listener}
	}
	return nil
}

func parseHostPort(flag, s string) (desired.HostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return desired.HostPort{}, fmt.Errorf("%s: %q is not host:port: %w", flag, s, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return desired.HostPort{}, fmt.Errorf("%s: %q has no port between 1 and 65535", flag, s)
	}
	return desired.HostPort{Host: host, Port: uint16(number)}, nil
}

// probeOff is the value of --publish-probe with which nobody looks.
const probeOff = "off"

// probe is how it is proven that istiod answers where it is published.
func probe(topology desired.Topology, flag string) (controller.Probe, error) {
	switch {
	case topology == desired.TopologyStandalone, flag == probeOff:
		return controller.Probe{Off: true}, nil
	case flag == "":
		return controller.Probe{}, nil
	}
	at, err := parseHostPort("--publish-probe", flag)
	return controller.Probe{Via: at.String()}, err
}
