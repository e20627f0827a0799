package status

import (
	"fmt"
	"slices"
	"strings"
)

// RunningVersion is the version that the running istiod reports. The zero value means that it is not asked.
type RunningVersion struct {
	asking       bool
	version, why string
}

// VersionAsked returns the state before istiod's first answer.
func VersionAsked() RunningVersion { return RunningVersion{asking: true} }

// VersionReported returns the state after istiod's answer. version has the form of a version.
func VersionReported(version string) RunningVersion { return RunningVersion{version: plain(version)} }

// VersionUnknown returns the state after istiod did not answer. why can be shown to every reader, the guest included.
func VersionUnknown(why string) RunningVersion { return RunningVersion{why: why} }

// IsAsking reports whether the version is expected to be known soon.
func (v RunningVersion) IsAsking() bool { return v.asking }

// Version returns what istiod reports. It is empty if that is not known.
func (v RunningVersion) Version() string { return v.version }

// differs reports whether the version is another one than planned. A vendor's suffix is not a difference:
// 1.20.3-distroless is 1.20.3.
func (v RunningVersion) differs(planned string) bool {
	suffix, same := strings.CutPrefix(v.version, planned)
	return v.version != "" && (!same || suffix != "" && !strings.ContainsAny(suffix[:1], "-_+"))
}

// versionDiffers reports whether the istiod that serves has another version than the planned one. It is not known
// during a rollout.
func (r Result) versionDiffers() bool { return r.isRolledOut() && r.Running.differs(r.Version) }

// serving returns the first words about an istiod that serves: which version, and since when.
func (r Result) serving(since string) string {
	switch {
	case r.Running.version == "" && r.Running.why != "":
		return fmt.Sprintf("istiod has been serving since %s (version %s is planned; the running version is unknown: %s)",
			since, r.Version, plain(r.Running.why))
	case r.Running.version == "":
		return fmt.Sprintf("istiod has been serving since %s (version %s is planned)", since, r.Version)
	case r.versionDiffers():
		return fmt.Sprintf("istiod %s has been serving since %s, although version %s is planned", r.Running.version, since, r.Version)
	default:
		return fmt.Sprintf("istiod %s has been serving since %s", r.Running.version, since)
	}
}

// availableReason returns the reason of Available for an istiod that serves: its first warning, if there is one.
func (r Result) availableReason() string {
	switch {
	case r.versionDiffers():
		return ReasonUnplannedVersion
	case len(r.TLSProblems) > 0:
		return ReasonUnsupportedTLSProfile
	case len(r.IgnoredCRDs) > 0:
		return ReasonUnsupportedCRDVersion
	default:
		return ReasonAsExpected
	}
}

// MeansServing reports whether a reason of Available, with the status True, means that istiod serves.
func MeansServing(reason string) bool {
	warnings := []string{ReasonUnplannedVersion, ReasonUnsupportedTLSProfile, ReasonUnsupportedCRDVersion}
	return reason == ReasonAsExpected || slices.Contains(warnings, reason)
}

// otherVersion returns the next step for an istiod of another version than the planned one. It is empty if it is the
// planned one.
func (r Result) otherVersion() string {
	if !r.versionDiffers() {
		return ""
	}
	return nextStep("set --pilot-image and --proxy-image to images of Istio " + r.Version +
		", or install the hypergate that embeds the charts of Istio " + r.Running.version)
}
