package controller

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/hypergate/hypergate/pkg/guest"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/summary"
	"github.com/hypergate/hypergate/pkg/text"
)

// board passes the summary from the passes to the lock of the leader election, and what is on the Lease the other way.
// Two goroutines use it.
type board struct {
	mu sync.Mutex
	// posted is the summary of the last pass. Nil: there was none yet.
	posted *summary.Summary
	// onLease is the summary that was written last, by this process or by an earlier one. Nil: the Lease was not read
	// yet.
	onLease *summary.Summary
	// leaseless reports whether no Lease is held. Then what was posted counts as written.
	leaseless bool
	// credential returns the validity of the guest kubeconfig in use, which can be replaced without a pass.
	credential validity
	// renewal returns why hypergate cannot renew that credential. Nil: it can.
	renewal func() error
	// request is the request for a rotation of the mesh CA on the Lease. wake begins a pass after it changed. Nil: no
	// pass has begun.
	request string
	wake    func()
}

// longestRequest is how much of a request for a rotation is kept, in bytes.
const longestRequest = 64

// wakeBy sets the function that begins a pass.
func (b *board) wakeBy(wake func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake = wake
}

// rotationRequest returns the request for a rotation of the mesh CA that the Lease had when it was last read.
func (b *board) rotationRequest() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.request
}

// read keeps the request for a rotation that a Lease has, and begins a pass if it is another one than before. The
// holder reads its Lease after another client has changed it, because its next write then fails.
func (b *board) read(lease *coordinationv1.Lease) {
	b.mu.Lock()
	request := text.Line(lease.Annotations[model.RotateAnnotation], longestRequest)
	wake := b.wake
	if request == b.request {
		wake = nil
	}
	b.request = request
	b.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// newBoard returns the board for the summary.
func newBoard(o Options, g *guest.Cluster) *board {
	return &board{leaseless: !o.LeaderElection, credential: validityOf(o, g), renewal: g.OwnRenewalProblem}
}

// validity returns from when, and until when, hypergate's credential for the guest is valid.
type validity func() (from, until time.Time)

// validityOf returns the validity of hypergate's credential for the guest. On a standalone cluster, there is none.
func validityOf(o Options, g *guest.Cluster) validity {
	if o.Config.Topology == model.TopologyStandalone {
		return func() (from, until time.Time) { return time.Time{}, time.Time{} }
	}
	return g.Validity
}

func (b *board) post(s summary.Summary) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.posted = &s; b.leaseless {
		b.onLease = &s
	}
}

// shown returns the summary that is on the Lease. Transition times are relative to it, so that a state between two
// writes, as after each start, does not count.
func (b *board) shown() summary.Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onLease == nil {
		return summary.Summary{}
	}
	return *b.onLease
}

// found keeps what an earlier process wrote. What cannot be read counts as nothing: anybody who can write the Lease can
// write it.
func (b *board) found(lease *coordinationv1.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onLease == nil {
		read, _ := summary.Parse(lease.Annotations[summary.Annotation])
		b.onLease = &read
	}
}

// addTo adds the label and the last summary to a Lease that is about to be written for its holder. A summary that the
// Lease has stays until there is a newer one.
func (b *board) addTo(lease *coordinationv1.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	metav1.SetMetaDataLabel(&lease.ObjectMeta, summary.Label, summary.LabelValue)
	holder := lease.Spec.HolderIdentity
	if b.posted == nil || holder == nil || *holder == "" {
		return
	}
	s := *b.posted
	s.Holder = *holder
	if acquired := lease.Spec.AcquireTime; acquired != nil && s.Time.Before(acquired.Time) {
		s.Time = acquired.Time // the clock was ahead; readers take an earlier summary for one of before a restart
	}
	s.GuestCredential.From, s.GuestCredential.Until = b.credential()
	s.GuestCredentialRenewed = s.GuestCredentialRenewed && b.renewal() == nil
	if encoded, err := summary.Encode(s); err == nil { // an error would be a defect that TestEncodeFits finds
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, summary.Annotation, encoded)
		b.onLease = &s
	}
}

// summarizedLeases are Leases to which each write adds the summary. The elector writes its Lease anyway, so the summary
// costs no request.
type summarizedLeases struct {
	coordinationclient.LeasesGetter
	board *board
}

// Leases returns the Leases of a namespace.
func (l summarizedLeases) Leases(namespace string) coordinationclient.LeaseInterface {
	return summarizedLease{l.LeasesGetter.Leases(namespace), l.board}
}

type summarizedLease struct {
	coordinationclient.LeaseInterface
	board *board
}

// Get returns a Lease, and keeps what it has for this process: the summary that an earlier process wrote, and the
// request for a rotation.
func (l summarizedLease) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := l.LeaseInterface.Get(ctx, name, options)
	if err == nil {
		l.board.found(lease)
		l.board.read(lease)
	}
	return lease, err
}

// Create creates a Lease with the summary.
func (l summarizedLease) Create(
	ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	l.board.addTo(lease)
	return l.LeaseInterface.Create(ctx, lease, options)
}

// Update updates a Lease, with the summary.
func (l summarizedLease) Update(
	ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	l.board.addTo(lease)
	return l.LeaseInterface.Update(ctx, lease, options)
}
