package crds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/crds"
)

const (
	routes  = "httproutes.gateway.networking.k8s.io"
	filters = "envoyfilters.networking.istio.io"
)

func us() crds.Identity {
	return crds.Identity{LabelKey: "example.com/owner", LabelValue: "rev.guest", FieldManager: "hypergate"}
}

func manager(name string, operation metav1.ManagedFieldsOperationType, subresource, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{Manager: name, Operation: operation, Subresource: subresource}
	if fields != "" {
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
	}
	return entry
}

const versionsField, labelsField = `{"f:spec":{"f:versions":{}}}`, `{"f:metadata":{"f:labels":{}}}`

// olm63 is the label of a package with a name so long that the namespace is truncated completely.
const olm63 = "an-operator-with-a-name-that-is-longer-than-a-label-of-kubernet"

// metadataCase is the metadata of a CRD, and what is read from it.
type metadataCase struct {
	name string
	meta metav1.ObjectMeta
	want crds.Metadata
}

// TestMetadataOf checks our label, the field managers, and what the annotations say.
func TestMetadataOf(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	deleted := metav1.NewTime(time.Unix(1, 0))
	checkMetadata(t, []metadataCase{
		{"nothing", metav1.ObjectMeta{}, crds.Metadata{}},
		{
			"our label",
			metav1.ObjectMeta{Labels: map[string]string{"example.com/owner": "rev.guest"}},
			crds.Metadata{Membership: crds.Member},
		},
		{"our label, and our versions", metav1.ObjectMeta{
			Labels:        map[string]string{"example.com/owner": "rev.guest"},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", apply, "", versionsField)},
		}, crds.Metadata{Membership: crds.Member, Authorship: crds.Author, Writers: []string{"hypergate"}}},
		{"our label, and the versions of another client", metav1.ObjectMeta{
			Labels: map[string]string{"example.com/owner": "rev.guest"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				manager("hypergate", apply, "", labelsField), manager("helm", update, "", versionsField),
			},
		}, crds.Metadata{Membership: crds.Member, Writers: []string{"helm"}}},
		{"another revision's label, and its fields", metav1.ObjectMeta{
			Labels:        map[string]string{"example.com/owner": "other.guest"},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", apply, "", versionsField)},
		}, crds.Metadata{Writers: []string{"hypergate"}}},
		{
			"our label was taken away",
			metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", apply, "", labelsField)}},
			crds.Metadata{Membership: crds.Member},
		},
		{"a label of ours that is empty", metav1.ObjectMeta{
			Labels:        map[string]string{"example.com/owner": ""},
			ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", apply, "", labelsField)},
		}, crds.Metadata{}},
		{
			"our field manager, without server-side apply",
			metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", update, "", versionsField)}},
			crds.Metadata{Writers: []string{"hypergate"}},
		},
		{
			"a status of ours",
			metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("hypergate", apply, "status", versionsField)}},
			crds.Metadata{},
		},
		{"writers, each once and sorted, but not those of labels", metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
			manager("kubectl", update, "", versionsField), manager("helm", apply, "", versionsField),
			manager("kubectl", apply, "", versionsField),
			manager("labeller", update, "", labelsField), manager("without", update, "", ""),
			manager("kube-apiserver", update, "status", versionsField),
		}}, crds.Metadata{Writers: []string{"helm", "kubectl"}}},
		{
			"unreadable fields",
			metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{manager("odd", update, "", `{"f:spec":7}`)}},
			crds.Metadata{Writers: []string{"odd"}},
		},
		{"being deleted", metav1.ObjectMeta{DeletionTimestamp: &deleted}, crds.Metadata{Deletion: crds.Terminating}},
		{"the Gateway API's annotations", metav1.ObjectMeta{Name: routes, Annotations: map[string]string{
			"gateway.networking.k8s.io/bundle-version": "v1.4.0",
			"gateway.networking.k8s.io/channel":        "experimental", crds.IstioVersionAnnotation: "1.20.3",
		}}, crds.Metadata{Version: "v1.4.0", Channel: "experimental"}},
		{"Istio's annotation", metav1.ObjectMeta{Name: filters, Annotations: map[string]string{
			"gateway.networking.k8s.io/bundle-version": "v1.4.0", crds.IstioVersionAnnotation: "1.20.3",
		}}, crds.Metadata{Version: "1.20.3"}},
	})
}

// TestMetadataOfOLM checks the labels of OLM.
func TestMetadataOfOLM(t *testing.T) {
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	checkMetadata(t, []metadataCase{
		{"OLM's packages, sorted", metav1.ObjectMeta{Labels: map[string]string{
			"operators.coreos.com/z.openshift-operators": "", "operators.coreos.com/a.ns": "",
			"olm.managed": "true", "operators.coreos.com.example.com/b.ns": "",
		}}, crds.Metadata{Packages: []string{"a.ns", "z.openshift-operators"}}},
		{
			"a package's label that was cut off before the namespace",
			metav1.ObjectMeta{Labels: map[string]string{"operators.coreos.com/" + olm63: ""}},
			crds.Metadata{Packages: []string{olm63}},
		},
		{
			"a label of OLM without a package",
			metav1.ObjectMeta{Labels: map[string]string{"operators.coreos.com/maintained": ""}},
			crds.Metadata{},
		},
		{
			"installed by an unknown operator of OLM",
			metav1.ObjectMeta{Labels: map[string]string{"olm.managed": "true"}},
			crds.Metadata{OLM: crds.Nameless},
		},
		{"OLM has put its own in the place of ours", metav1.ObjectMeta{
			Labels: map[string]string{"olm.managed": "true"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				manager("hypergate", apply, "", labelsField), manager("catalog", update, "", versionsField),
			},
		}, crds.Metadata{OLM: crds.Nameless, Writers: []string{"catalog"}}},
		{
			"we have adopted what was OLM's",
			metav1.ObjectMeta{Labels: map[string]string{"olm.managed": "true", "example.com/owner": "rev.guest"}},
			crds.Metadata{OLM: crds.Nameless, Membership: crds.Member},
		},
	})
}

func checkMetadata(t *testing.T, cases []metadataCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, crds.MetadataOf(&tc.meta, us())); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestConsent(t *testing.T) {
	const owned = "ingress.operator.openshift.io/owned"
	for _, tc := range []struct {
		annotation string
		labels     map[string]string
		want       crds.Consent
	}{
		{"", nil, crds.Unasked},
		{"true", nil, crds.Given},
		{"True", nil, crds.Given},
		{" TRUE ", nil, crds.Given},
		{"false", nil, crds.Refused},
		{"False", nil, crds.Refused},
		{"yes", nil, crds.InvalidAnnotation},
		{"1", nil, crds.InvalidAnnotation},
		{"no", nil, crds.InvalidAnnotation},
		{"", map[string]string{owned: "true"}, crds.Given},
		{"", map[string]string{owned: ""}, crds.Given},
		{"", map[string]string{owned: "false"}, crds.Unasked},
		{"false", map[string]string{owned: "true"}, crds.Refused},
		{"maybe", map[string]string{owned: "true"}, crds.InvalidAnnotation},
	} {
		m := &metav1.ObjectMeta{Labels: tc.labels, Annotations: map[string]string{crds.ManageAnnotation: tc.annotation}}
		if got := crds.MetadataOf(m, us()).Consent; got != tc.want {
			t.Errorf("annotation %q, labels %v: consent %d, want %d", tc.annotation, tc.labels, got, tc.want)
		}
	}
}

// ownerCase is metadata of a CRD, what is known of operators, and the owner.
type ownerCase struct {
	name      string
	marks     crds.Metadata
	operators map[string]crds.Operator
	want      crds.Owner
	text      string
}

func TestOwnerOf(t *testing.T) {
	checkOwner(t, []ownerCase{
		{"a third party without a name", crds.Metadata{}, nil, crds.Owner{Kind: crds.ThirdParty}, "third party"},
		{
			"a third party's",
			crds.Metadata{Writers: []string{"helm", "kubectl"}},
			nil,
			crds.Owner{Kind: crds.ThirdParty, Name: "helm, kubectl"},
			"third party: helm, kubectl",
		},
		{"ours", crds.Metadata{Membership: crds.Member, Writers: []string{"hypergate"}}, nil, crds.Owner{Kind: crds.Ours}, "hypergate"},
		{
			"ours, and kubectl has touched it",
			crds.Metadata{Membership: crds.Member, Writers: []string{"kubectl"}},
			nil,
			crds.Owner{Kind: crds.Ours},
			"hypergate",
		},
		{
			"the ingress operator's",
			crds.Metadata{Writers: []string{"ingress-operator"}},
			nil,
			crds.Owner{Kind: crds.IngressOperator},
			"ingress-operator",
		},
	})
}

func TestOwnerOfOLM(t *testing.T) {
	live := crds.Operator{Found: crds.Live, Kind: "Subscription", Namespace: "operators", Name: "mesh"}
	checkOwner(t, []ownerCase{
		{
			"a live operator's",
			crds.Metadata{Packages: []string{"a.ns"}},
			map[string]crds.Operator{"a.ns": live},
			crds.Owner{Kind: crds.LiveOLM, Name: "Subscription mesh", Namespace: "operators"},
			"OLM: Subscription mesh in operators",
		},
		{
			"ours, until an operator came",
			crds.Metadata{Membership: crds.Member, Packages: []string{"a.ns"}},
			map[string]crds.Operator{"a.ns": live},
			crds.Owner{Kind: crds.LiveOLM, Name: "Subscription mesh", Namespace: "operators"},
			"OLM: Subscription mesh in operators",
		},
		{
			"ours, since the operator went",
			crds.Metadata{Membership: crds.Member, Packages: []string{"a.ns"}},
			map[string]crds.Operator{"a.ns": {Found: crds.None}},
			crds.Owner{Kind: crds.Ours},
			"hypergate",
		},
		{
			"an operator's that is gone",
			crds.Metadata{Packages: []string{"a.ns", "b.ns"}},
			map[string]crds.Operator{"a.ns": {Found: crds.None}, "b.ns": {Found: crds.None}},
			crds.Owner{Kind: crds.OrphanedOLM, Name: "a.ns, b.ns"},
			"OLM (gone): a.ns, b.ns",
		},
		{
			"one of two is live, and the other was not found out",
			crds.Metadata{Packages: []string{"a.ns", "b.ns"}},
			map[string]crds.Operator{"a.ns": {Found: crds.Unsure}, "b.ns": live},
			crds.Owner{Kind: crds.LiveOLM, Name: "Subscription mesh", Namespace: "operators"},
			"",
		},
		{
			"one of two is gone, and the other is unknown",
			crds.Metadata{Packages: []string{"a.ns", "b.ns"}, Membership: crds.Member},
			map[string]crds.Operator{"a.ns": {Found: crds.None}},
			crds.Owner{Kind: crds.Unknown, Name: "whether OLM's b.ns is installed"},
			"",
		},
		{
			"a search that failed",
			crds.Metadata{Packages: []string{"a.ns"}},
			map[string]crds.Operator{"a.ns": {Name: "forbidden"}},
			crds.Owner{Kind: crds.Unknown, Name: "whether OLM's a.ns is installed: forbidden"},
			"unknown: whether OLM's a.ns is installed: forbidden",
		},
		{
			"an unknown operator of OLM",
			crds.Metadata{OLM: crds.Nameless},
			nil,
			crds.Owner{Kind: crds.Unknown, Name: "which of OLM's operators has installed it"},
			"",
		},
		{"adopted from OLM", crds.Metadata{OLM: crds.Nameless, Membership: crds.Member}, nil, crds.Owner{Kind: crds.Ours}, "hypergate"},
	})
	if got := (crds.Owner{}).String(); got != "none" {
		t.Errorf("without an owner, the text is %q", got)
	}
}

func checkOwner(t *testing.T, cases []ownerCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := crds.OwnerOf(tc.marks, tc.operators)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if tc.text != "" && got.String() != tc.text {
				t.Errorf("the text is %q, want %q", got, tc.text)
			}
		})
	}
}

// TestReadingMetadataChangesNothing checks that MetadataOf does not change its input, which belongs to the watch.
func TestReadingMetadataChangesNothing(t *testing.T) {
	fresh := func() *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: routes, Labels: map[string]string{"operators.coreos.com/b.ns": "", "operators.coreos.com/a.ns": ""}}
	}
	m := fresh()
	marks := crds.MetadataOf(m, us())
	slices.Reverse(marks.Packages)
	if diff := cmp.Diff(fresh(), m); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

// TestLittleIsKeptOfTheMetadataOfACRD checks the limits of packages and writers. The writers that decisions depend on
// are always kept.
func TestLittleIsKeptOfTheMetadataOfACRD(t *testing.T) {
	const update = metav1.ManagedFieldsOperationUpdate
	meta := metav1.ObjectMeta{Labels: map[string]string{}}
	for i := range 100 {
		meta.Labels[fmt.Sprintf("operators.coreos.com/p%02d.%s", i, strings.Repeat("n", 200))] = ""
		writer := fmt.Sprintf("a%02d%s", i, strings.Repeat("m", 200))
		meta.ManagedFields = append(meta.ManagedFields, manager(writer, update, "", versionsField))
	}
	for _, decides := range []string{"hypergate", "ingress-operator"} {
		meta.ManagedFields = append(meta.ManagedFields, manager(decides, update, "", versionsField))
	}
	got := crds.MetadataOf(&meta, us())
	if len(got.Packages) != 16 || !strings.HasPrefix(got.Packages[15], "p15.") {
		t.Errorf("%d packages: %q", len(got.Packages), got.Packages)
	}
	if len(got.Writers) != 16 || !slices.Contains(got.Writers, "hypergate") || !slices.Contains(got.Writers, "ingress-operator") {
		t.Errorf("%d writers: %q", len(got.Writers), got.Writers)
	}
	for _, name := range slices.Concat(got.Packages, got.Writers) {
		if len(name) > 128 {
			t.Errorf("%d bytes are kept of a name", len(name))
		}
	}
}
