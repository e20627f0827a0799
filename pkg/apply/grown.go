package apply

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/watch"
)

// grownLimit is how many bytes the metadata in a response can exceed the whole object that was sent. An API server
// accepts 256 KiB of annotations, so an object beyond this limit was enlarged on purpose.
//
// Exceeding the limit is a failure that names the object. The object is not sent again before it has changed, because
// another write would return the same size.
const grownLimit = 256 << 10

// grown returns an error if the object in the response is too large.
func (c *Cluster) grown(j job, got *metav1.PartialObjectMetadata) error {
	if limit := len(j.JSON()) + grownLimit; got.Size() > limit {
		return TooLarge("the object in the response", limit)
	}
	return nil
}

// maxUID is how many bytes the UID of a written object may have. kube-apiserver makes UIDs of 36. A resourceVersion may
// have as many as in a watch.
const maxUID = 64

// Unidentified returns an error of the class Enlarged if the UID or the resourceVersion of the object in the response
// to a write is too long to be kept. The guest can replace the API server of a group by an APIService.
func Unidentified(got metav1.Object) error {
	for _, part := range []struct {
		what      string
		has, most int
	}{{"UID", len(got.GetUID()), maxUID}, {"resourceVersion", len(got.GetResourceVersion()), watch.MaxVersion}} {
		if part.has > part.most {
			cause := Cause{}.as(Enlarged, "the %s in the response has more than %d bytes", part.what, part.most)
			return &causedError{cause, errors.New(cause.text)}
		}
	}
	return nil
}

// enlarged reads an object after the response to its write was too long. It returns the metadata if the object is ours
// and too large. Otherwise it returns nil: the cause is another one, the object is not there or could not be read, or
// only the response was long.
// Such an object is sent again, because nothing shows that another write would return the same size.
func (c *Cluster) enlarged(ctx context.Context, j job, k Kind, cause Cause) *metav1.PartialObjectMetadata {
	if cause.Class() != Enlarged {
		return nil
	}
	now, err := c.look(ctx, k, j.id.Key)
	if err != nil || now.DeletionTimestamp != nil || !c.Ours(now) || c.grown(j, now) == nil || Unidentified(now) != nil {
		return nil
	}
	return now
}

// remember ends a write after which the object is known. The object is not sent again before it has changed. outcome is
// the outcome of the write.
func (c *Cluster) remember(j job, now *metav1.PartialObjectMetadata, outcome Outcome) Outcome {
	wrote := memo{hash: j.hash, rv: now.ResourceVersion, uid: now.UID, fields: c.fields().hash(now.ManagedFields)}
	if outcome.verdict == VerdictFailed {
		wrote.refusal = &outcome
	}
	c.tracker.wrote(j.kind, j.id.Key, wrote)
	return outcome
}
