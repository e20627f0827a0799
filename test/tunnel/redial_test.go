package tunnel_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRedial checks what happens to a tunnel if the API server no longer accepts its token: the open tunnel stays, and
// a new one comes up with the next token. No tunnel ends by itself.
func TestRedial(t *testing.T) {
	w := newHarness(t)
	w.pod("istiod-relay-0", relay0IP)
	w.relay("istiod-relay-0", relay0IP)
	w.boundToken("first")
	w.sidecar("--relays=istiod-relay-0", "--max-age=5s")
	w.talks(relay0IP)

	t.Log("the token is revoked after the file has the next one")
	w.boundToken("second")
	// An attempt may have read the first token. The next tunnel shows that it is over.
	w.grows(relay0IP, "hypergate_relay_tunnels_total", w.value(relay0IP, "hypergate_relay_tunnels_total"))
	w.revoke("first")
	w.grows(istiodIP, reconnects("aged"), w.value(istiodIP, reconnects("aged"))+1)
	w.talks(relay0IP)
	if failed := w.value(istiodIP, reconnects("forbidden")); failed != 0 {
		t.Errorf("%v attempts were forbidden", failed)
	}

	t.Log("the token is revoked, and the file has no other one")
	w.revoke("second")
	w.grows(istiodIP, reconnects("forbidden"), 2)
	conn := w.talks(relay0IP)
	w.grows(istiodIP, reconnects("forbidden"), w.value(istiodIP, reconnects("forbidden"))+1)
	w.must(talk(conn, "still here"))
	if w.value(istiodIP, up0) != 1 {
		t.Error("the open tunnel counts as down")
	}

	t.Log("the next token arrives")
	before := w.value(istiodIP, reconnects("aged"))
	w.boundToken("third")
	w.grows(istiodIP, reconnects("aged"), before)
	w.talks(relay0IP)
	for _, reason := range []string{"ended", "silent", "abused"} {
		if n := w.value(istiodIP, reconnects(reason)); n != 0 {
			t.Errorf("%v tunnels were lost, reason %s", n, reason)
		}
	}
	if ready := w.value(relay0IP, "hypergate_relay_tunnels"); ready < 1 {
		t.Error("the relay has no tunnel")
	}
}

// boundToken gives the sidecar a token that is valid as long as a Secret exists.
func (w *harness) boundToken(name string) {
	w.t.Helper()
	secret, err := w.guest.CoreV1().Secrets(namespace).Create(w.t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	token, err := w.guest.CoreV1().ServiceAccounts(namespace).CreateToken(w.t.Context(), "istiod-tunnel",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Secret", Name: name, UID: secret.UID,
		}}}, metav1.CreateOptions{})
	w.must(err)
	w.write("guest/token", []byte(token.Status.Token+"\n"))
}

// revoke deletes the Secret of a token.
func (w *harness) revoke(name string) {
	w.t.Helper()
	w.must(w.guest.CoreV1().Secrets(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}
