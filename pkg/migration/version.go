package migration

import (
	"fmt"
	"regexp"
	"strconv"
)

// Version is a version of Istio. The zero value is not a version.
type Version struct{ Major, Minor, Patch int }

// String returns the version as Istio writes it.
func (v Version) String() string {
	if v == (Version{}) {
		return "unknown"
	}
	return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch)
}

// newer reports whether the minor of v is above that of other. Patches do not count: a gateway's proxy works with each
// patch of istiod's minor.
func (v Version) newer(other Version) bool {
	return v.Major > other.Major || v.Major == other.Major && v.Minor > other.Minor
}

// versionPattern finds a version in a label, in the name of a chart, or in the tag of an image.
var versionPattern = regexp.MustCompile(`(?:^|[^0-9.])(\d{1,3})\.(\d{1,3})(?:\.(\d{1,4}))?(?:$|[^0-9.])`)

// longestVersion is how many bytes of a text are searched for a version.
const longestVersion = 256

// ParseVersion returns the first version in a text, such as 1.28.5, v1.28.5, istiod-1.28.5 or pilot:1.28.5-debug. It
// returns the zero value if there is none.
func ParseVersion(s string) Version {
	found := versionPattern.FindStringSubmatch(s[:min(len(s), longestVersion)])
	if found == nil {
		return Version{}
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(found[i]) // a few digits, or nothing
		return n
	}
	return Version{number(1), number(2), number(3)}
}

// LeadModeOf returns what an origin of a version does as a follower. A version that is not known counts as a newer one:
// the check blocks it.
func LeadModeOf(v Version) LeadMode {
	if v != (Version{}) && v.Minor < followsFrom {
		return WritesStatus
	}
	return Follows
}
