package apply

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/hypergate/hypergate/pkg/answer"
	"github.com/hypergate/hypergate/pkg/watch"
)

// causeCase is an error, and its class and text.
type causeCase struct {
	err    error
	kind   Kind
	class  ErrorClass
	want   string
	detail string // expected in the detail, if not empty
}

// TestClassifyPermissions, TestClassifyRejections and TestClassifyOutages have all responses of an API server.
// TestRealCauses has the ones that a plain API server can produce.
func TestClassifyPermissions(t *testing.T) {
	t.Parallel()
	deployments := Kind{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments"}
	bindings := Kind{
		GVK:      schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		Resource: "rolebindings",
	}
	gr := deployments.resource()
	forbidden := func(format string, args ...any) error {
		return apierrors.NewForbidden(gr, "secret-name", fmt.Errorf(format, args...))
	}
	terminating := apierrors.NewForbidden(gr, "secret-name",
		errors.New("unable to create new content in namespace secret-ns because it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: "NamespaceTerminating"}}
	checkCauses(t, map[string]causeCase{
		"rbac": {
			err:   forbidden(`User "secret-user" cannot create resource "deployments" in API group "apps" in the namespace "secret-ns"`),
			class: Forbidden, want: "not allowed to create deployments.apps (RBAC)",
		},
		"rbac with the authorizer's reason": {
			err: forbidden(`User "u" cannot patch resource "deployments" in API group "apps" in the namespace "n": ` +
				`RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`),
			class: Forbidden, want: "not allowed to patch deployments.apps (RBAC)",
		},
		"escalation": {
			err: forbidden(`user "u" (groups=["g"]) is attempting to grant RBAC permissions not currently held:`), kind: bindings,
			class: Forbidden, want: "not allowed to bind rolebindings.rbac.authorization.k8s.io (RBAC)",
		},
		"a bound": {
			err: &watch.LimitError{Resource: "x", Bound: "b"}, class: Oversized, want: "the API server sends too much of x: b",
		},
		"a long answer to a write": {
			err: &answer.TooLongError{Limit: 1 << 10}, class: Enlarged,
			want: "the API server's answer is longer than 1 KiB: a mutating webhook may have enlarged it",
		},
		"pod security": {
			err: forbidden("violates PodSecurity"), class: Denied, want: "denied by admission",
			detail: "violates PodSecurity",
		},
		"namespace terminating": {err: terminating, class: NamespaceTerminating, want: "the namespace is being deleted"},
		"namespace missing": {
			err:   apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "secret-ns"),
			class: NamespaceMissing, want: "the namespace does not exist",
		},
		"not served": {
			err:   apierrors.NewGenericServerResponse(404, "PATCH", gr, "secret-name", "404 page not found", 0, true),
			class: NotServed, want: "the API server does not serve deployments.apps",
		},
		"role of a binding missing": {
			err: apierrors.NewNotFound(bindings.resource(), "secret-name"), kind: bindings,
			class: UnknownError, want: "patch rolebindings.rbac.authorization.k8s.io failed",
		},
		"unauthorized": {err: apierrors.NewUnauthorized("no"), class: Unauthorized, want: "the API server does not accept the credentials"},
	})
}

func TestClassifyRejections(t *testing.T) {
	t.Parallel()
	deployments := Kind{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments"}
	gr := deployments.resource()
	checkCauses(t, map[string]causeCase{
		"invalid": {
			err: apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "Deployment"}, "secret-name", field.ErrorList{
				field.Invalid(field.NewPath("spec", "replicas"), "secret-value", "no"),
				field.Required(field.NewPath("a"), ""), field.Required(field.NewPath("b"), ""),
				field.Required(field.NewPath("c"), ""), field.Required(field.NewPath("a"), "again"),
			}),
			class: Invalid, want: "rejected as invalid: a, b, c and 1 more", detail: "secret-value",
		},
		"unknown field": {
			err: apierrors.NewInternalError(errors.New("failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): " +
				".spec.what: field not declared in schema")),
			class: Invalid, want: "rejected as invalid", detail: ".spec.what",
		},
		"too large": {err: apierrors.NewRequestEntityTooLargeError("limit is 3145728"), class: Invalid, want: "rejected as invalid"},
		"conflict": {
			err: apierrors.NewApplyConflict([]metav1.StatusCause{
				{
					Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.b",
					Message: `conflict with "kubectl \"x\"" using apps/v1 at 2020-01-01T00:00:00Z`,
				},
				{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.a", Message: `conflict with "argo"`},
			}, "Apply failed with 2 conflicts"),
			class: Conflict, want: `.spec.a, .spec.b is managed by argo, kubectl \"x\"`,
		},
		"written at the same time": {
			err:   apierrors.NewConflict(gr, "secret-name", errors.New("the object has been modified")),
			class: Conflict, want: "another client changed the object at the same time",
		},
		"webhook denies": {
			err: &apierrors.StatusError{
				ErrStatus: metav1.Status{Code: 400, Message: `admission webhook "guard.example.com" denied the request: no`},
			},
			class: Denied,
			want:  "denied by the admission webhook guard.example.com", detail: "no",
		},
		"webhook is gone": {
			err: apierrors.NewInternalError(errors.New(`failed calling webhook "guard.example.com": ` +
				`failed to call webhook: Post "https://secret-host": refused`)),
			class: Denied, want: "denied by the admission webhook guard.example.com, which could not be called",
		},
		"policy denies": {
			err: apierrors.NewInvalid(schema.GroupKind{}, "x", field.ErrorList{
				field.Forbidden(nil, "ValidatingAdmissionPolicy 'guard' with binding 'b' denied request: no"),
			}),
			class: Denied, want: "denied by the admission policy guard",
		},
	})
}

func TestClassifyOutages(t *testing.T) {
	t.Parallel()
	get := func(err error) error { return &url.Error{Op: "Get", URL: "https://secret-host:6443/api", Err: err} }
	checkCauses(t, map[string]causeCase{
		"busy": {
			err:   apierrors.NewTooManyRequests("no", 1),
			class: Unreachable, want: "the API server is unavailable: it answered 429 too many requests",
		},
		"etcd is gone": {
			err:   apierrors.NewInternalError(errors.New("etcdserver: leader changed at secret-host")),
			class: Unreachable, want: "the API server is unavailable: it answered 500 internal server error",
		},
		"refused": {
			err:   get(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
			class: Unreachable, want: "the API server cannot be reached: connection refused", detail: "secret-host",
		},
		"reset": {
			err:   get(&net.OpError{Op: "read", Err: syscall.ECONNRESET}),
			class: Unreachable, want: "the API server cannot be reached: connection closed",
		},
		"cut off": {
			err:   fmt.Errorf("reading: %w", io.ErrUnexpectedEOF),
			class: Unreachable, want: "the API server cannot be reached: connection closed",
		},
		"slow": {err: get(context.DeadlineExceeded), class: Unreachable, want: "the API server cannot be reached: timed out"},
		"unknown name": {
			err:   get(&net.OpError{Op: "dial", Err: &net.DNSError{Name: "secret-host"}}),
			class: Unreachable, want: "the API server cannot be reached: its host name does not resolve",
		},
		"untrusted": {
			err:   get(&tls.CertificateVerificationError{Err: errors.New("x509: secret-host")}),
			class: Unreachable, want: "the API server cannot be reached: its certificate is not trusted",
		},
		"other network": {
			err:   get(errors.New("http2: client connection lost")),
			class: Unreachable, want: "the API server cannot be reached: no connection",
		},
		"cancelled":    {err: get(context.Canceled), class: Cancelled, want: "cancelled before the API server answered"},
		"other status": {err: apierrors.NewResourceExpired("old"), class: UnknownError, want: "patch deployments.apps failed"},
		"other":        {err: errors.New("what?"), class: UnknownError, want: "patch deployments.apps failed", detail: "what?"},
	})
}

func checkCauses(t *testing.T, cases map[string]causeCase) {
	t.Helper()
	deployments := Kind{GVK: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments"}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := deployments
			if test.kind.Resource != "" {
				kind = test.kind
			}
			got := Classify(fmt.Errorf("doing something: %w", test.err), "patch", kind.resource())
			if got.Class() != test.class || got.String() != test.want {
				t.Errorf("got %s %q, want %s %q", got.Class(), got, test.class, test.want)
			}
			if strings.Contains(got.String(), "secret-") {
				t.Errorf("%q contains secret data", got)
			}
			if !strings.Contains(got.Detail(), test.detail) {
				t.Errorf("detail = %q, want %q in it", got.Detail(), test.detail)
			}
		})
	}
}

func TestEveryClassAndVerdictHasAName(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for c := NoCause; c <= UnknownError; c++ {
		if seen[c.String()] || strings.HasPrefix(c.String(), "Class") {
			t.Errorf("class %d: %q", c, c)
		}
		seen[c.String()] = true
	}
	for v := VerdictUnchanged; v <= VerdictFailed; v++ {
		if seen[v.String()] || strings.HasPrefix(v.String(), "verdict") {
			t.Errorf("verdict %d: %q", v, v)
		}
		seen[v.String()] = true
	}
	for _, beyond := range []fmt.Stringer{ErrorClass(-1), UnknownError + 1, Verdict(-1), VerdictFailed + 1} {
		if beyond.String() == "" {
			t.Errorf("%d has no name", beyond)
		}
	}
}
