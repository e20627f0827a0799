package planes

import "context"

// Profile starts the API server again, so that it answers under /debug/pprof/, as for those who measure its memory.
func (p *Plane) Profile(ctx context.Context) error {
	p.args["kube-apiserver"] = append(p.args["kube-apiserver"], "--profiling=true") // the last one counts
	p.StopAPI()
	return p.StartAPI(ctx)
}
