package planes

import "context"

// Profile restarts the API server with /debug/pprof/ enabled, for measurements of its memory.
func (p *Plane) Profile(ctx context.Context) error {
	p.args["kube-apiserver"] = append(p.args["kube-apiserver"], "--profiling=true") // the last value takes effect
	p.StopAPI()
	return p.StartAPI(ctx)
}
