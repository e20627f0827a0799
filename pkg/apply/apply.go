package apply

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// writeAttempts is the maximum number of attempts to write an object that meets a conflict.
const writeAttempts = 2

// job is one object of an Apply call.
type job struct {
	Object
	id   ID
	kind int
	hash uint64
	// at is the resourceVersion that the caller chose. It is empty if the plan decides how to write.
	at string
}

// Apply makes the cluster match the objects. It writes the objects that need a write, concurrently, in the order of
// Kinds. The report has one outcome per object, in the order of objs.
//
// If one object is not allowed here, Apply refuses the whole call before it sends anything. Apply does not change
// objects that are not in objs; see Prune.
func Apply[O Object](ctx context.Context, c *Cluster, objs []O) Report {
	return AtVersion(ctx, c, objs, nil)
}

// Absent is the resourceVersion of an object that does not exist. No object has this version, because etcd's first
// revision is that of an empty store.
const Absent = "1"

// AtVersion is Apply for a caller that read objects, owned or not, and decided to write them. at holds the
// resourceVersion that the caller saw of each object, or Absent.
//
// Such an object is written if it still has that version. Its fields are taken from any other manager, and the object
// is owned from then on. An object that is gone is created, whatever version the caller saw.
//
// An object that changed stays unchanged and is Waiting. The caller must read it again when its own watch shows the
// change. If the watches of this package already show a later version, or a deletion, no request is sent.
func AtVersion[O Object](ctx context.Context, c *Cluster, objs []O, at map[ID]string) Report {
	jobs := make([]job, 0, len(objs))
	for _, o := range objs {
		id := ID{o.GVK(), o.Key()}
		jobs = append(jobs, job{Object: o, id: id, hash: maphash.Bytes(c.seed, o.JSON()), at: at[id]})
	}
	if refused := c.admit(jobs); refused != nil {
		return Report{outcomes: refused}
	}
	return c.apply(ctx, jobs)
}

// admit finds the kind of each job. If one of the objects is not allowed here, it returns the outcomes of the refused
// call. Otherwise it returns nil.
func (c *Cluster) admit(jobs []job) []Outcome {
	outcomes := make([]Outcome, len(jobs))
	refused := false
	seen := make(map[ID]bool, len(jobs))
	for i := range jobs {
		err := c.admitOne(&jobs[i])
		if err == nil && seen[jobs[i].id] {
			err = errors.New("it is listed twice")
		}
		seen[jobs[i].id] = true
		outcomes[i] = Skipped(jobs[i].id)
		if err != nil {
			refused = true
			outcomes[i] = Failed(jobs[i].id, refusal(err),
				fmt.Errorf("refusing to apply to the %s cluster: %s: %w", c.opts.Name, jobs[i].id, err))
		}
	}
	if !refused {
		return nil
	}
	return outcomes
}

func (c *Cluster) admitOne(j *job) error {
	kind, ok := c.kinds[j.id.GVK]
	if !ok {
		return fmt.Errorf("its kind %s is not on this cluster's list", j.id.GVK)
	}
	j.kind = kind
	k := c.opts.Kinds[kind]
	switch {
	case j.id.Key.Name == "":
		return errors.New("it has no name")
	case k.Namespaced != (j.id.Key.Namespace != ""):
		return fmt.Errorf("its namespace %q does not match the scope of its kind (namespaced: %t)", j.id.Key.Namespace, k.Namespaced)
	case k.Namespaced && c.opts.Namespace != "" && j.id.Key.Namespace != c.opts.Namespace:
		return fmt.Errorf("its namespace is not %q", c.opts.Namespace)
	case len(k.Names) > 0 && !slices.Contains(k.Names, j.id.Key.Name):
		return fmt.Errorf("its name is not on the list of its kind: %s", strings.Join(k.Names, ", "))
	case c.tracker.knows(kind, j.id.Key, j.hash):
		return nil // these bytes were checked when they were written
	}
	return c.admitBody(*j)
}

// admitBody checks that the JSON describes the job's object and carries the owner label.
func (c *Cluster) admitBody(j job) error {
	h, err := readHead(j.JSON())
	if err != nil {
		return fmt.Errorf("reading its JSON: %w", err)
	}
	apiVersion, kind := j.id.GVK.ToAPIVersionAndKind()
	switch {
	case h.apiVersion != apiVersion || h.kind != kind || h.meta.Name != j.id.Key.Name || h.meta.Namespace != j.id.Key.Namespace:
		return fmt.Errorf("its JSON describes another object, %s %s %s/%s", h.apiVersion, h.kind, h.meta.Namespace, h.meta.Name)
	case h.meta.Labels[c.opts.OwnerKey] != c.opts.OwnerValue:
		return fmt.Errorf("it does not have the label %s=%s", c.opts.OwnerKey, c.opts.OwnerValue)
	}
	return nil
}

// head is the part of an object's JSON that is checked before the object is sent.
type head struct {
	apiVersion, kind string
	meta             struct {
		Name, Namespace string
		Labels          map[string]string
	}
	metaAt int64 // offset of the content of metadata
}

// readHead reads the head of an object and stops there. In canonical JSON the rest comes after the head, and the rest
// of a CRD is about a megabyte.
func readHead(body []byte) (head, error) {
	var h head
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return h, errors.Join(errors.New("it is not a JSON object"), err)
	}
	for found := 0; found < 3 && dec.More(); {
		key, err := dec.Token()
		if err != nil {
			return h, err
		}
		var into any = &json.RawMessage{}
		switch key {
		case "apiVersion":
			into = &h.apiVersion
		case "kind":
			into = &h.kind
		case "metadata":
			into = &h.meta
			h.metaAt = dec.InputOffset() + int64(bytes.IndexByte(body[dec.InputOffset():], '{')) + 1
		default:
			found--
		}
		found++
		if err := dec.Decode(into); err != nil {
			return h, err
		}
	}
	return h, nil
}

// apply runs the jobs that need a request. Options.Concurrency limits how many run at once. If one request times out,
// apply cancels the others, so that they do not wait as long.
//
// Within a kind, jobs whose last try failed or was cut off run after the others. The job that was tried longest ago
// is the first of them. So slow objects do not block other objects, however often a call is cut off.
func (c *Cluster) apply(ctx context.Context, jobs []job) Report {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	tried := c.tracker.tried(jobs)
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(jobs[a].kind, jobs[b].kind), cmp.Compare(tried[a], tried[b]))
	})
	var running errgroup.Group
	running.SetLimit(c.opts.Concurrency)
	outcomes := make([]Outcome, len(jobs))
	for n, i := range order {
		j := jobs[i]
		if n > 0 && c.barrier(jobs[order[n-1]].kind, j.kind) {
			_ = running.Wait() // outcomes hold the errors
		}
		switch p, pause := c.tracker.begin(j.kind, j.id.Key, j.hash, j.at); p {
		case planNothing:
			outcomes[i] = Unchanged(j.id)
		case planWait, planSettle:
			outcomes[i] = pause.waiting(j.id)
		case planRateLimited, planRefused:
			outcomes[i] = pause.outcome(j.id)
		case planWriteNew, planWriteOurs, planWriteUnknown:
			running.Go(func() error {
				outcomes[i] = c.write(ctx, j, p)
				c.tracker.ended(j.kind, outcomes[i])
				if err := outcomes[i].err; errors.Is(err, context.DeadlineExceeded) {
					stop(err)
				}
				return nil
			})
		}
	}
	_ = running.Wait()
	return Report{outcomes: shortened(outcomes), stopped: stopped(ctx, outcomes)}
}

// barrier reports whether objects of the kind to must wait for objects of the kind from. The kind from is the same
// kind or an earlier one.
func (c *Cluster) barrier(from, to int) bool {
	return slices.ContainsFunc(c.opts.Kinds[from:to], func(k Kind) bool { return k.Barrier })
}

// write sends one object in the way that the plan requires.
func (c *Cluster) write(ctx context.Context, j job, p plan) Outcome {
	if ctx.Err() != nil {
		c.tracker.left(j.kind, j.id.Key)
		return Skipped(j.id)
	}
	k := c.opts.Kinds[j.kind]
	got, writes, err := c.send(ctx, j, k, p)
	if err == nil && got != nil {
		err = Unidentified(got)
	}
	if err != nil {
		cause := Classify(err, "patch", k.resource())
		if now := c.enlarged(ctx, j, k, cause); now != nil {
			return c.remember(j, now, c.failed(j, cause, err)).withWrites(writes)
		}
		c.tracker.failed(j.kind, j.id.Key)
		if cutOff(ctx, err) {
			return Skipped(j.id).withWrites(writes)
		}
		if j.at != "" && cause.Class() == Conflict {
			return Waiting(j.id).withWrites(writes)
		}
		return c.failed(j, cause, err).withWrites(writes)
	}
	if got == nil || got.DeletionTimestamp != nil {
		return c.tracker.leaves(j.kind, j.id.Key).waiting(j.id).withWrites(writes)
	}
	outcome := Applied(j.id)
	if err := c.grown(j, got); err != nil {
		outcome = c.failed(j, Classify(err, "patch", k.resource()), err)
	}
	return c.remember(j, got, outcome).withWrites(writes)
}

// failed returns the outcome of an object that could not be written.
func (c *Cluster) failed(j job, cause Cause, err error) Outcome {
	return Failed(j.id, cause, fmt.Errorf("applying %s to the %s cluster: %w", j.id, c.opts.Name, err))
}

// cutOff reports whether a request ended because the context of the call ended. A response, or a timeout of the
// request, does not count.
func cutOff(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// writeMode is how an object is sent.
type writeMode int

const (
	modeUnknown writeMode = iota // the object must be read first
	modeWait                     // not now: the object is being deleted
	modeCreate                   // create only; a conflict if an object of this name exists
	modeShared                   // apply; a conflict if another manager has one of the fields
	modeForced                   // apply with force, because the object is owned
	modeVersion                  // apply with force, at the version that the caller chose
)

func (p plan) mode(k Kind) writeMode {
	switch {
	case p == planWriteOurs:
		return modeForced
	case !k.Prune:
		return modeShared
	case p == planWriteNew:
		return modeCreate
	default:
		return modeUnknown
	}
}

// send writes the object. After a conflict, it reads the existing object and can try once more in another mode. It
// returns nil if the object is being deleted. writes is the number of write requests.
func (c *Cluster) send(ctx context.Context, j job, k Kind, p plan) (got *metav1.PartialObjectMetadata, writes int, err error) {
	if j.at != "" {
		got, err = c.patch(ctx, j, k, modeVersion)
		return got, 1, err
	}
	for m := p.mode(k); ; m = modeUnknown {
		if m == modeUnknown {
			m, err = c.find(ctx, j, k, err)
		}
		if m == modeWait || m == modeUnknown {
			return nil, writes, err
		}
		got, err = c.patch(ctx, j, k, m)
		writes++
		if writes == writeAttempts || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return got, writes, err
		}
	}
}

// find reads the existing object of the job's name and returns how to send the job, or an error if there is none.
// The existing object is owned if it carries the owner label, has the UID that the tracker remembers, or has fields
// that we applied. conflict is the error of an earlier attempt.
func (c *Cluster) find(ctx context.Context, j job, k Kind, conflict error) (writeMode, error) {
	now, err := c.look(ctx, k, j.id.Key)
	switch {
	case apierrors.IsNotFound(err) && k.Prune:
		return modeCreate, nil // or the namespace or the kind is missing; the write returns that error
	case apierrors.IsNotFound(err):
		return modeShared, nil
	case err != nil:
		return modeUnknown, &causedError{Classify(err, "get", k.resource()), err}
	case now.DeletionTimestamp != nil:
		return modeWait, nil
	case c.Ours(now), now.UID == c.tracker.uid(j.kind, j.id.Key):
		return modeForced, nil
	case k.Prune:
		return modeUnknown, foreign(k, now.ManagedFields)
	case fieldConflict(conflict):
		return modeUnknown, conflict
	default:
		return modeShared, nil
	}
}

func (c *Cluster) patch(ctx context.Context, j job, k Kind, m writeMode) (*metav1.PartialObjectMetadata, error) {
	body, force := j.JSON(), m == modeForced || m == modeVersion
	at := ""
	switch m { //nolint:exhaustive // the others ask for no version
	case modeCreate:
		at = Absent
	case modeVersion:
		at = j.at
	}
	if at != "" {
		var err error
		if body, err = bodyAt(body, at); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	return c.resource(k, j.id.Key.Namespace).Patch(ctx, j.id.Key.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: c.opts.FieldManager, Force: &force})
}

// bodyAt returns the body of an apply that requires a resourceVersion. An object that has another version causes a
// conflict. If the object does not exist, the API server drops the version. See Store.Update in the file
// pkg/registry/generic/registry/store.go of apiserver. So the version that no object has (Absent) makes the apply a
// create.
//
// Server-side apply has no other way to express this. A read before each write would cost a request per object and
// leave a gap between the read and the write.
func bodyAt(body []byte, version string) ([]byte, error) {
	h, err := readHead(body)
	if err != nil {
		return nil, err
	}
	return slices.Concat(body[:h.metaAt], []byte(`"resourceVersion":`+strconv.Quote(version)+`,`), body[h.metaAt:]), nil
}

// stopped returns why objects were skipped, or nil if none was.
func stopped(ctx context.Context, outcomes []Outcome) error {
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return o.verdict == VerdictSkipped }) {
		return context.Cause(ctx)
	}
	return nil
}
