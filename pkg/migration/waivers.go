package migration

import (
	"slices"
	"strings"
)

// Waivers are the blockers that a person accepts. Each has a flag.
type Waivers struct{ Downgrade, Untested, IgnoredResources, ProxyLoss bool }

// waivable returns the codes of the findings that a person can accept.
func waivable() []Code { return []Code{OriginNewer, OriginUntested, IgnoredResources, ProxyLost} }

// field returns the field of a code. Nil: it cannot be accepted.
func (w *Waivers) field(code Code) *bool {
	return map[Code]*bool{
		OriginNewer: &w.Downgrade, OriginUntested: &w.Untested, IgnoredResources: &w.IgnoredResources,
		ProxyLost: &w.ProxyLoss,
	}[code]
}

// And returns what w or other accepts.
func (w Waivers) And(other Waivers) Waivers {
	for _, code := range waivable() {
		*w.field(code) = *w.field(code) || *other.field(code)
	}
	return w
}

// String returns the codes of the findings that are accepted, with commas.
func (w Waivers) String() string {
	var out []string
	for _, code := range waivable() {
		if *w.field(code) {
			out = append(out, string(code))
		}
	}
	return strings.Join(out, ",")
}

// parseWaivers is the inverse of String. Spaces around a code do not count. The error names an unknown code.
func parseWaivers(s string) (Waivers, error) {
	var out Waivers
	if s == "" {
		return out, nil
	}
	for code := range strings.SplitSeq(s, ",") {
		code = strings.TrimSpace(code)
		if !slices.Contains(waivable(), Code(code)) {
			return Waivers{}, unsupported("finding", code, waivable())
		}
		*out.field(Code(code)) = true
	}
	return out, nil
}
