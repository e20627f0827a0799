package migration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// The intent, the memo and the report are annotations of one Lease on the management side. A Lease, because a ConfigMap
// in the namespace of a hosted control plane makes HyperShift reconcile everything. GitOps can set the first four.
const (
	// GoalAnnotation is a Goal.
	GoalAnnotation = model.MigrationAnnotation
	// PausedAnnotation is true while the migration is paused.
	PausedAnnotation = "gateway.hypergate.dev/migration-paused"
	// RequestedAtAnnotation is the time of the last request (RFC 3339). Another one tries again what failed.
	RequestedAtAnnotation = "gateway.hypergate.dev/migration-requested-at"
	// AcceptedAnnotation is a list of the codes of findings that do not block, with commas.
	AcceptedAnnotation = "gateway.hypergate.dev/migration-accepted"
	// MemoAnnotation is the Memo.
	MemoAnnotation = "gateway.hypergate.dev/migration-memo"
)

// LeaseName returns the name of the Lease of a revision.
func LeaseName(revision string) string { return model.MigrationLeaseName(revision) }

const (
	// MaxMemo is the size limit of an encoded Memo, in bytes. All Gateways of a guest can be stranded.
	MaxMemo = 8 << 10
	// longestUID is the size limit of a UID, in bytes. Those of an API server have 36. A reading of the guest with a
	// longer one fails (guest.maxUID).
	longestUID = 64
	// mostReplicas is the limit of replicas of the origin, mostRoutes that of routes of a Gateway, and mostHolds that
	// of holds.
	mostReplicas, mostRoutes, mostHolds = 100, 1_000_000, 10_000
	// memoSchema is the version of the format of a Memo.
	memoSchema = 1
)

// ParseIntent returns the intent in the annotations of the Lease. The error names a value that is not supported.
func ParseIntent(annotations map[string]string) (Intent, error) {
	var out Intent
	goal := annotations[GoalAnnotation]
	if out.Goal = Goal(goal); out.Goal != NoGoal && !slices.Contains(goals(), out.Goal) {
		return Intent{}, fmt.Errorf("the annotation %s: %w", GoalAnnotation, unsupported("goal", goal, goals()))
	}
	switch paused := annotations[PausedAnnotation]; paused {
	case "", "false":
	case "true":
		out.Paused = true
	default:
		return Intent{}, fmt.Errorf("the annotation %s: %w", PausedAnnotation, unsupported("value", paused, []Goal{"true", "false"}))
	}
	var err error
	if out.Accepted, err = parseWaivers(annotations[AcceptedAnnotation]); err != nil {
		return Intent{}, fmt.Errorf("the annotation %s: %w", AcceptedAnnotation, err)
	}
	at := annotations[RequestedAtAnnotation]
	if at == "" {
		return out, nil
	}
	parsed, err := time.Parse(time.RFC3339, at)
	if err != nil || len(at) > longestQuoted {
		return Intent{}, fmt.Errorf("the annotation %s: %.64q is not a time (RFC 3339)", RequestedAtAnnotation, at)
	}
	out.At = parsed.UTC()
	return out, nil
}

// Annotations returns the annotations of an intent. An empty value means that there is no such annotation.
func (i Intent) Annotations() map[string]string {
	out := map[string]string{
		GoalAnnotation: string(i.Goal), PausedAnnotation: "", RequestedAtAnnotation: "", AcceptedAnnotation: i.Accepted.String(),
	}
	if i.Paused {
		out[PausedAnnotation] = "true"
	}
	if !i.At.IsZero() {
		out[RequestedAtAnnotation] = i.At.UTC().Format(time.RFC3339)
	}
	return out
}

// encodedMemo is the format of a Memo. Times are seconds since 1970, and 0 is none.
type encodedMemo struct {
	Schema       int       `json:"schema"`
	Phase        Phase     `json:"phase,omitempty"`
	Since        int64     `json:"since,omitempty"`
	Replicas     int32     `json:"replicas,omitempty"`
	Released     types.UID `json:"released,omitempty"`
	ReleasedAt   int64     `json:"releasedAt,omitempty"`
	Routes       int32     `json:"routes,omitempty"`
	Arrived      bool      `json:"arrived,omitempty"`
	Failed       types.UID `json:"failed,omitempty"`
	FailedAt     int64     `json:"failedAt,omitempty"`
	Stranded     []uint32  `json:"stranded,omitempty"`
	StrandedAt   int64     `json:"strandedAt,omitempty"`
	Holds        int32     `json:"holds,omitempty"`
	HoldsSince   int64     `json:"holdsSince,omitempty"`
	LastHold     uint64    `json:"lastHold,omitempty"`
	ScaledAt     int64     `json:"scaledAt,omitempty"`
	LeadFailedAt int64     `json:"leadFailedAt,omitempty"`
}

// Encode returns a Memo as one line. Times have seconds. Values above the limits are cut.
func (m Memo) Encode() (string, error) {
	out, err := json.Marshal(encodedMemo{
		Schema: memoSchema, Phase: m.Phase, Since: seconds(m.Since), Replicas: min(m.Replicas, mostReplicas),
		Released: cut(m.Released), ReleasedAt: seconds(m.ReleasedAt), Routes: min(m.Routes, mostRoutes), Arrived: m.Arrived,
		Failed: cut(m.Failed), FailedAt: seconds(m.FailedAt), Holds: min(m.Holds, mostHolds), HoldsSince: seconds(m.HoldsSince),
		LastHold: m.LastHold, Stranded: m.Stranded[:min(len(m.Stranded), model.MaxGateways)], StrandedAt: seconds(m.StrandedAt),
		ScaledAt: seconds(m.ScaledAt), LeadFailedAt: seconds(m.LeadFailedAt),
	})
	if err != nil {
		return "", fmt.Errorf("encoding the state of the migration: %w", err)
	}
	if len(out) > MaxMemo {
		return "", fmt.Errorf("the state of the migration has %d bytes: the limit is %d", len(out), MaxMemo)
	}
	return string(out), nil
}

// ParseMemo returns the Memo of an annotation. Without one, it is the zero value. A caller can go on with the zero
// value after an error: the Memo follows from the evidence again.
func ParseMemo(annotation string) (Memo, error) {
	if annotation == "" {
		return Memo{}, nil
	}
	if len(annotation) > MaxMemo {
		return Memo{}, fmt.Errorf("the annotation %s has %d bytes: the limit is %d", MemoAnnotation, len(annotation), MaxMemo)
	}
	var in encodedMemo
	decoder := json.NewDecoder(bytes.NewReader([]byte(annotation)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return Memo{}, fmt.Errorf("the annotation %s is not the state of a migration: %w", MemoAnnotation, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Memo{}, fmt.Errorf("the annotation %s has more than one value", MemoAnnotation)
	}
	if err := in.check(); err != nil {
		return Memo{}, fmt.Errorf("the annotation %s: %w", MemoAnnotation, err)
	}
	return Memo{
		Phase: in.Phase, Since: timeOf(in.Since), Replicas: in.Replicas,
		Released: in.Released, ReleasedAt: timeOf(in.ReleasedAt), Routes: in.Routes, Arrived: in.Arrived,
		Failed: in.Failed, FailedAt: timeOf(in.FailedAt), Holds: in.Holds, HoldsSince: timeOf(in.HoldsSince),
		LastHold: in.LastHold, Stranded: append([]uint32(nil), in.Stranded...), StrandedAt: timeOf(in.StrandedAt),
		ScaledAt: timeOf(in.ScaledAt), LeadFailedAt: timeOf(in.LeadFailedAt),
	}, nil
}

// latestTime is the latest time of a Memo: the year 9999.
const latestTime = 253_402_300_799

func (e encodedMemo) check() error {
	switch {
	case e.Schema != memoSchema:
		return fmt.Errorf("schema %d is not supported", e.Schema)
	case e.Phase != "" && !slices.Contains(Phases(), e.Phase):
		return unsupported("phase", string(e.Phase), Phases())
	case min(e.Replicas, e.Routes, e.Holds) < 0, e.Replicas > mostReplicas, e.Routes > mostRoutes, e.Holds > mostHolds:
		return errors.New("a number is out of range")
	case max(len(e.Released), len(e.Failed)) > longestUID:
		return errors.New("a UID is too long")
	case len(e.Stranded) > model.MaxGateways:
		return errors.New("too many Gateways are stranded")
	}
	times := []int64{e.Since, e.ReleasedAt, e.FailedAt, e.StrandedAt, e.HoldsSince, e.ScaledAt, e.LeadFailedAt}
	if slices.Min(times) < 0 || slices.Max(times) > latestTime {
		return errors.New("a time is out of range")
	}
	return nil
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return min(max(t.Unix(), 0), latestTime)
}

// timeOf is the inverse of seconds.
func timeOf(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// cut returns a UID that ParseMemo accepts: JSON has three bytes in place of each one that is not UTF-8.
func cut(uid types.UID) types.UID {
	return types.UID(strings.ToValidUTF8(string(uid[:min(len(uid), longestUID)]), ""))
}
