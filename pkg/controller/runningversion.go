package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/hypergate/hypergate/pkg/istiodversion"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/status"
)

// ask connects to istiod, and asks it for its version. It returns the result with what it found out.
//
// The client certificate is made for this connection, and kept nowhere. Without one, the handshake still shows whether
// istiod answers.
func ask(
	ctx context.Context, dial dialer, result probeResult, ca pki.CA, planned string,
) probeResult {
	certificate, noCertificate := ca.Client(result.began, istiodversion.Identity())
	var conn *tls.Conn
	if conn, result.err = handshake(ctx, dial, result.about, certificate); result.err != nil {
		return result
	}
	if noCertificate != nil {
		_ = conn.Close()
		result.unanswered = fmt.Errorf("making a client certificate: %w", noCertificate)
		return result
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	result.version, result.unanswered = istiodversion.Ask(ctx, conn, planned)
	return result
}

// heard notes whether istiod, which was reached, has said which version it has. An istiod that never answers causes at
// most versionAttempts probes. After these, and after an answer, only the regular probe asks. A rollout can need that:
// an instance that stops can answer first.
func (r *endpointProbe) heard(a probeResult) {
	if a.unanswered == nil {
		r.running, r.done = status.VersionReported(a.version), true
		return
	}
	r.unanswered.Failed(a.began, firstProbeDelay, maxProbeDelay)
	if r.unanswered.Failures() >= probePatience {
		r.running = status.VersionUnknown(unansweredReason(a.unanswered))
	}
	r.done = r.unanswered.Failures() >= versionAttempts
}

// version returns the version of a running istiod, as it reports it.
func (r *endpointProbe) version(hosted model.ManagementObservation) status.RunningVersion {
	if hosted.Istiod != model.Available {
		return status.RunningVersion{}
	}
	return r.running
}

// unansweredReason returns why istiod's version is not known. The text is for a condition in the guest, and is the same
// for each attempt.
func unansweredReason(err error) string {
	if refused, is := errors.AsType[istiodversion.RefusedError](err); is {
		return fmt.Sprintf("istiod refuses to answer, gRPC status %d", refused.Code)
	}
	if errors.Is(err, istiodversion.ErrNoVersion) || errors.Is(err, istiodversion.ErrTooLarge) {
		return err.Error()
	}
	return "istiod does not answer the request"
}
