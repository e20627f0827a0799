package guest

import (
	"context"
	"time"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/throttle"
	"github.com/hypergate/hypergate/pkg/watch"
)

// Rates of arrangements: the shortest time between two, and how many follow each other, then one per interval. The
// guest decides how often its CRDs change, and an arrangement can start 50 watches. An installation changes 20 CRDs
// within seconds, about three times each.
const (
	arrangeSpacing = 100 * time.Millisecond
	arrangeBurst   = 50
	arrangeEvery   = 5 * time.Second
)

func arrangeLimiter() throttle.Limiter {
	return throttle.NewLimiter(throttle.Rate{Burst: 1, Every: arrangeSpacing}, throttle.Rate{Burst: arrangeBurst, Every: arrangeEvery})
}

// arrangeSoon requests an arrangement. It returns at once.
func (c *Cluster) arrangeSoon() {
	select {
	case c.rearrange <- struct{}{}:
	default:
	}
}

// keepArranged arranges the watches when that is requested, until ctx ends. All requests during a wait share one
// arrangement.
func (c *Cluster) keepArranged(ctx context.Context) {
	limiter := arrangeLimiter()
	for {
		select {
		case <-c.rearrange:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(limiter.Wait(time.Now())):
		case <-ctx.Done():
			return
		}
		select { // this arrangement also serves what was requested during the wait
		case <-c.rearrange:
		default:
		}
		limiter.Take(time.Now())
		c.arrange(ctx)
		c.notify()
	}
}

// arrange starts and stops watches according to the existing CRDs. It is not safe for concurrent use.
func (c *Cluster) arrange(ctx context.Context) {
	key, version := c.crds.keyAndVersion(classCRD)
	c.classes.Set(ctx, key, version)
	key, version = c.crds.keyAndVersion(modeCRD)
	c.mode.Set(ctx, key, version)
	key, version = c.crds.keyAndVersion(infrastructureCRD)
	c.nodes.Set(ctx, key, version)
	key, version = c.crds.keyAndVersion(proxyCRD)
	c.proxy.Set(ctx, key, version)
	key, version = c.keyAndVersion(apiServerCRD)
	c.apiServer.Set(ctx, key, version)
	key, version = c.crds.keyAndVersion(istioCRD)
	c.foreign.arrange(ctx, key, version)
	c.olm.arrange(ctx, c.crds)
	searches := c.searches()
	key, version = c.crds.keyAndVersion(gatewayCRD)
	// first: until the owners of the routes are known, all routes count
	c.inUse.arrangeParents(ctx, searches, key, version)
	c.inUse.arrange(ctx, searches)
	c.rolled.arrange(ctx, key, version)
}

// behind reports whether a CRD exists and its watch is not on for it yet, because an arrangement is due.
func (c *Cluster) behind(crd string, s *watch.Switch) bool {
	key, _ := c.keyAndVersion(crd)
	return key != "" && s.Key() != key
}

// unsettled reports whether a value of OpenShift's configuration can still change because its watch is not on, or is
// pending.
func (c *Cluster) unsettled(crd string, s *watch.Switch, pending bool) bool {
	return pending || c.behind(crd, s)
}

// keyAndVersion returns the key and the version of a CRD for the watch of its objects. They are empty for a CRD that
// does not exist, and for that of TLS profiles if another object has the profile: see model.ObservedTLS.
func (c *Cluster) keyAndVersion(crd string) (key, version string) {
	if crd == apiServerCRD && c.cfg.Topology != model.TopologyStandalone {
		return "", ""
	}
	return c.crds.keyAndVersion(crd)
}
