package model

import (
	"cmp"
	"slices"
	"strings"
)

// MaxClasses is how many GatewayClasses of one controller name hypergate looks after: each is an object in the guest, a status, and time in
// each plan, and the guest's admin may make as many as etcd holds. A guest has a handful. Those beyond get no defaults for their gateways,
// and a condition that says so.
const MaxClasses = 256

// Served divides the GatewayClasses into those that are looked after and those beyond MaxClasses, each sorted by name. The oldest are
// looked after, so that a new class takes nothing from one that is in use.
func Served(all []GatewayClass) (served, beyond []GatewayClass) {
	if len(all) <= MaxClasses {
		return all, nil
	}
	byAge := slices.Clone(all)
	slices.SortFunc(byAge, func(a, b GatewayClass) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	served, beyond = byAge[:MaxClasses:MaxClasses], byAge[MaxClasses:]
	for _, list := range [][]GatewayClass{served, beyond} {
		slices.SortFunc(list, func(a, b GatewayClass) int { return strings.Compare(a.Name, b.Name) })
	}
	return served, beyond
}
