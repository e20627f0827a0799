package model

import (
	"cmp"
	"slices"
	"strings"
)

// MaxClasses is the maximum number of GatewayClasses that hypergate manages. A guest normally has a few.
//
// Each class needs an object in the guest, a status, and time in each plan, and the guest's administrator can create as
// many as etcd can store. The gateways of further classes get no defaults, and a condition of the class reports this.
const MaxClasses = 256

// Served divides the GatewayClasses into those that hypergate manages and those beyond MaxClasses, each sorted by name.
// It manages the oldest ones, so that a new class does not displace one that is in use.
func Served(all []GatewayClass) (served, beyond []GatewayClass) {
	if len(all) <= MaxClasses {
		return all, nil
	}
	byAge := slices.Clone(all)
	slices.SortFunc(byAge, olderFirst)
	served, beyond = byAge[:MaxClasses:MaxClasses], byAge[MaxClasses:]
	for _, list := range [][]GatewayClass{served, beyond} {
		slices.SortFunc(list, func(a, b GatewayClass) int { return strings.Compare(a.Name, b.Name) })
	}
	return served, beyond
}

// Oldest returns the name of the oldest class, or "" if there is none.
func Oldest(all []GatewayClass) string {
	if len(all) == 0 {
		return ""
	}
	return slices.MinFunc(all, olderFirst).Name
}

func olderFirst(a, b GatewayClass) int {
	return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
}
