package app

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/hypergate/hypergate/pkg/controller"
	"github.com/hypergate/hypergate/pkg/model"
)

// publishOptions holds the flags that define how the guest's nodes reach istiod.
type publishOptions struct {
	xdsAddress, strategy, host, gateway string
	relayImage, sidecarImage            string
	nodePort                            uint16
}

func (o *publishOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.xdsAddress, "xds-address", "", "Address (host:port) at which the guest's gateways reach istiod, "+
		"if another party publishes istiod. "+
		"With --topology=standalone, defaults to istiod's Service.")
	choose(flags, &o.strategy, "publish", "", string(model.PublishAuto), "How to publish istiod to the guest's nodes, "+
		"unless --xds-address is set. "+
		"{values}. "+
		"auto uses the strategy with which the HostedControlPlane publishes the guest's API server. "+
		"If that does not lead the guest's nodes to istiod (a private link, HyperShift's shared ingress, IBM Cloud, or a load "+
		"balancer for virtual machines of the same cluster), auto uses a tunnel through the guest's API server if --relay-image is "+
		"set. For a private link or a shared ingress without --relay-image, it only uses the Route istiod of the "+
		"control-plane-operator.", strategyNames()...)
	flags.StringVar(&o.host, "publish-host", "", "Host name of the Route, TLSRoute or load balancer, or address of the nodes. "+
		"Defaults to a name in the domain of the hosts in the HostedControlPlane, or to the address of the load balancer.")
	flags.Uint16Var(&o.nodePort, "publish-node-port", 0, "Port on the nodes, for --publish=nodeport. "+
		"Defaults to a port that the management cluster allocates.")
	flags.StringVar(&o.relayImage, "relay-image", "", "hypergate's image for the tunnel's relays in the guest, which the guest's nodes "+
		"must be able to pull. Required for --publish=tunnel.")
	flags.StringVar(&o.sidecarImage, "sidecar-image", "", "hypergate's image for the tunnel's sidecar in istiod's pod. "+
		"Defaults to --relay-image.")
	flags.StringVar(&o.gateway, "publish-gateway", "", "Gateway of the management cluster, as <namespace>/<name>[/<listener>], "+
		"for --publish=tlsroute.")
}

// into writes the flags into a Config.
func (o *publishOptions) into(cfg *model.Config) (err error) {
	strategy := model.PublishStrategy(o.strategy)
	switch {
	case o.xdsAddress != "" && strategy != model.PublishAuto:
		return fmt.Errorf("--xds-address and --publish=%s are mutually exclusive: either another party publishes istiod, "+
			"or hypergate does", strategy)
	case o.xdsAddress != "":
		cfg.XDS, err = parseHostPort("--xds-address", o.xdsAddress)
		return err
	case cfg.Topology == model.TopologyStandalone && strategy == model.PublishAuto:
		cfg.XDS = model.HostPort{Host: cfg.IstiodName() + "." + cfg.MgmtNamespace + ".svc", Port: 15012}
		return nil
	case o.nodePort != 0 && strategy != model.PublishNodePort:
		return fmt.Errorf("--publish-node-port is only supported with --publish=%s", model.PublishNodePort)
	}
	cfg.Publish = model.Publish{
		Strategy: strategy, At: model.HostPort{Host: o.host, Port: o.nodePort},
		RelayImage: o.relayImage, SidecarImage: cmp.Or(o.sidecarImage, o.relayImage),
	}
	if o.gateway != "" {
		namespace, rest, _ := strings.Cut(o.gateway, "/")
		name, listener, _ := strings.Cut(rest, "/")
		cfg.Publish.Gateway = model.ParentGateway{Namespace: namespace, Name: name, Listener: listener}
	}
	return nil
}

func parseHostPort(flag, s string) (model.HostPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return model.HostPort{}, fmt.Errorf("%s: %q is not host:port: %w", flag, s, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return model.HostPort{}, fmt.Errorf("%s: %q must have a port between 1 and 65535", flag, s)
	}
	return model.HostPort{Host: host, Port: uint16(number)}, nil
}

// probeOff is the value of --publish-probe that disables the endpoint probe.
const probeOff = "off"

// probe returns the settings of the endpoint probe, which proves that istiod answers at the published address.
func probe(flag string) (controller.Probe, error) {
	switch flag {
	case probeOff:
		return controller.Probe{Off: true}, nil
	case "":
		return controller.Probe{}, nil
	}
	at, err := parseHostPort("--publish-probe", flag)
	return controller.Probe{Via: at.String()}, err
}
