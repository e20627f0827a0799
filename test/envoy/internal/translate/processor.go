package translate

import (
	"fmt"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/hypergate/hypergate/test/envoy/internal/model"
)

// defaultMessageTimeout is the default of Envoy's API.
const defaultMessageTimeout = 200 * time.Millisecond

// processorFilter reads the filter that calls external processors. Routes name them: a filter that calls one by itself
// is not supported.
func processorFilter(config *anypb.Any, out *model.HTTP) error {
	filter, err := unpack(config, &extprocv3.ExternalProcessor{})
	if err != nil {
		return err
	}
	mode := filter.GetProcessingMode()
	if mode.GetRequestHeaderMode() != extprocv3.ProcessingMode_SKIP || mode.GetResponseHeaderMode() != extprocv3.ProcessingMode_SKIP ||
		mode.GetRequestBodyMode() != extprocv3.ProcessingMode_NONE || mode.GetResponseBodyMode() != extprocv3.ProcessingMode_NONE {
		return fmt.Errorf("processing_mode: a processor for all routes is not supported")
	}
	out.Process = &model.Process{
		Timeout: defaultMessageTimeout, Namespaces: filter.GetMetadataOptions().GetReceivingNamespaces().GetUntyped(),
	}
	if filter.GetMessageTimeout() != nil {
		out.Process.Timeout = filter.GetMessageTimeout().AsDuration()
	}
	return nil
}

// processorOfRoute reads the processor of a route. Only the modes of istiod's routes to InferencePools are supported.
// Of them, those about responses are ignored.
func processorOfRoute(config *anypb.Any) (*model.Processor, error) {
	route, err := unpack(config, &extprocv3.ExtProcPerRoute{})
	if err != nil {
		return nil, err
	}
	overrides := route.GetOverrides()
	mode := overrides.GetProcessingMode()
	if mode.GetRequestHeaderMode() != extprocv3.ProcessingMode_SEND ||
		mode.GetRequestBodyMode() != extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED {
		return nil, fmt.Errorf("overrides.processing_mode: request_header_mode %s with request_body_mode %s is not supported",
			mode.GetRequestHeaderMode(), mode.GetRequestBodyMode())
	}
	cluster := overrides.GetGrpcService().GetEnvoyGrpc().GetClusterName()
	if cluster == "" {
		return nil, fmt.Errorf("overrides.grpc_service.envoy_grpc: it has no cluster")
	}
	return &model.Processor{Cluster: cluster, FailOpen: overrides.GetFailureModeAllow().GetValue()}, nil
}
