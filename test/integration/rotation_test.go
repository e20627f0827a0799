package integration_test

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/summary"
)

// caState is the state of a rotation in the Secret of the mesh CA, in istiod and in the guest's webhook.
type caState struct {
	Phase                 string
	RootsInSecret, Bundle int
	Generation            int64
}

func (w *harness) caState() caState {
	secret := w.caSecret()
	out := caState{Phase: secret.Annotations[model.PhaseAnnotation], RootsInSecret: certificates(secret.Data["root-cert.pem"])}
	if webhook := w.webhook(); webhook != nil {
		out.Bundle = certificates(webhook.Webhooks[0].ClientConfig.CABundle)
	}
	if d := w.istiod(); d != nil {
		out.Generation = d.Generation
	}
	return out
}

func (w *harness) caSecret() *corev1.Secret {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), model.CASecretName, metav1.GetOptions{})
	if err != nil {
		return &corev1.Secret{}
	}
	return secret
}

func certificates(bundle []byte) (n int) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	return n
}

// effective returns the time from which all clients can know the result of the phase. It is empty before that.
func (w *harness) effective() string { return w.caSecret().Annotations[model.PhaseEffectiveAnnotation] }

// TestARotationOfTheCA checks the phases of a rotation, with a restart during each phase. Only the test moves the
// clock, for less than the lifetime of istiod's token.
func TestARotationOfTheCA(t *testing.T) {
	w := newHarness(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	w.clock, w.caOverlap = clock, 5*time.Minute
	later := func(by time.Duration, name string) {
		clock.SetTime(clock.Now().Add(by))
		w.stir(name)
	}
	stop := w.run()
	w.install("demo")
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	old, generation := w.caSecret(), w.istiod().Generation

	t.Log("a rotation is requested")
	w.patchSecret(model.CASecretName, `{"metadata":{"annotations":{"`+model.RotateAnnotation+`":"a"}}}`)
	w.Eventually(w.caState).Should(gomega.Equal(caState{"spreading", 2, 2, generation + 1}))
	w.Expect(w.caSecret().Data["ca-key.pem"]).To(gomega.Equal(old.Data["ca-key.pem"]), "the old one still issues")

	t.Log("the phase does not end before istiod runs with both roots, even after the overlap and a restart")
	w.playIstiod(corev1.ConditionFalse)
	stop()
	later(2*w.caOverlap, "unavailable")
	stop = w.restart()
	w.looksAgain()
	w.Expect(w.caState().Phase).To(gomega.Equal("spreading"))
	w.Expect(w.effective()).To(gomega.BeEmpty())

	t.Log("nor before the guest's gateways get both roots")
	w.playIstiod(corev1.ConditionTrue)
	later(2*w.caOverlap, "unpublished")
	w.looksAgain()
	w.Expect(w.caState().Phase).To(gomega.Equal("spreading"))
	w.Expect(w.effective()).To(gomega.BeEmpty())

	t.Log("from then on, it lasts for the overlap")
	w.publishRoots()
	w.Eventually(func() bool { return w.effective() != "" || w.caState().Phase != "spreading" }).Should(gomega.BeTrue())
	later(w.caOverlap-2*time.Second, "spreading")
	w.looksAgain()
	w.Expect(w.caState()).To(gomega.Equal(caState{"spreading", 2, 2, generation + 1}))
	later(4*time.Second, "spread")
	w.Eventually(w.caState).Should(gomega.Equal(caState{"settling", 2, 2, generation + 1}))
	w.Expect(w.caSecret().Data["ca-key.pem"]).NotTo(gomega.Equal(old.Data["ca-key.pem"]))

	t.Log("so does the next phase, with a restart in it")
	w.Eventually(w.effective).ShouldNot(gomega.BeEmpty())
	stop()
	later(w.caOverlap-2*time.Second, "settling")
	w.restart()
	w.looksAgain()
	w.Expect(w.caState()).To(gomega.Equal(caState{"settling", 2, 2, generation + 1}))
	later(4*time.Second, "settled")
	w.Eventually(w.caState).Should(gomega.Equal(caState{"", 1, 1, generation + 2}))
	now := w.caSecret()
	w.Expect(bytes.Contains(now.Data["root-cert.pem"], bytes.TrimSpace(old.Data["root-cert.pem"]))).To(gomega.BeFalse())
	w.Expect(now.Data).To(gomega.HaveLen(4), "nothing is left of the rotation")
	t.Log("the request is followed only once")
	w.playIstiod(corev1.ConditionTrue)
	w.settle()
	w.Expect(w.caState().Phase).To(gomega.BeEmpty())
}

// publishRoots publishes the roots to the gateways, as istiod does.
func (w *harness) publishRoots() {
	w.Helper()
	_, err := w.guest.CoreV1().ConfigMaps(w.cfg.GuestNamespace).Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: w.cfg.TrustBundleName()},
		Data:       map[string]string{"root-cert.pem": string(w.caSecret().Data["root-cert.pem"])},
	}, metav1.CreateOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
}

// TestAThirdPartyCA checks that a CA of a third party is used unchanged, for as long as it exists.
func TestAThirdPartyCA(t *testing.T) {
	w := newHarness(t)
	ca, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	secrets := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace)
	theirs, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: model.CASecretName},
		Data:       map[string][]byte{"ca-cert.pem": ca.Cert, "ca-key.pem": ca.Key, "cert-chain.pem": ca.Chain, "root-cert.pem": ca.Root},
	}, metav1.CreateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.run()
	w.install("demo")
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	w.Expect(w.webhook().Webhooks[0].ClientConfig.CABundle).To(gomega.Equal(ca.Root))
	generation := w.istiod().Generation

	t.Log("the third party's next CA rolls istiod out")
	next, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	theirs.Data = map[string][]byte{
		"ca-cert.pem": next.Cert, "ca-key.pem": next.Key, "cert-chain.pem": next.Chain,
		"root-cert.pem": next.Root,
	}
	theirs, err = secrets.Update(t.Context(), theirs, metav1.UpdateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(func() int64 { return w.istiod().Generation }).Should(gomega.Equal(generation + 1))
	w.Eventually(func() []byte { return w.webhook().Webhooks[0].ClientConfig.CABundle }).Should(gomega.Equal(next.Root))

	t.Log("an incomplete CA is reported, and nothing else is done")
	_, err = secrets.Patch(t.Context(), theirs.Name, types.MergePatchType, []byte(`{"data":{"ca-key.pem":null}}`),
		metav1.PatchOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.playIstiod(corev1.ConditionTrue)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(
		gomega.HaveField("Message", gomega.ContainSubstring("but hypergate changes nothing until this is resolved")))

	t.Log("it survives an uninstallation")
	w.deleteClass("demo")
	w.Eventually(w.istiod).Should(gomega.BeNil())
	w.settle()
	w.Expect(w.caSecret().UID).To(gomega.Equal(theirs.UID))
}

// TestARepairedCAIsUsed checks that a repaired CA is used without a restart, and that a CA restored from a
// backup is not replaced.
func TestARepairedCAIsUsed(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	stop()
	good := w.caSecret()
	other, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.patchSecret(model.CASecretName, `{"data":{"ca-key.pem":"`+base64.StdEncoding.EncodeToString(other.Key)+`"}}`)
	stop = w.run()
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(
		gomega.HaveField("Message", gomega.ContainSubstring("but hypergate changes nothing until this is resolved")))
	w.patchSecret(model.CASecretName, `{"data":{"ca-key.pem":"`+base64.StdEncoding.EncodeToString(good.Data["ca-key.pem"])+`"}}`)
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).ShouldNot(
		gomega.HaveField("Message", gomega.ContainSubstring("but hypergate changes nothing until this is resolved")))

	t.Log("uninstalled, restored from a backup, and installed again")
	w.deleteClass("demo")
	w.Eventually(w.members).Should(gomega.BeEmpty())
	w.settle()
	restored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: good.Name, Labels: good.Labels}, Data: good.Data}
	_, err = w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Create(t.Context(), restored, metav1.CreateOptions{FieldManager: "restore"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.settle()
	w.install("again")
	w.Expect(w.caSecret().Data).To(gomega.Equal(good.Data))
	stop()
}

// TestARotationByTheLease requests a rotation without access to the Secret of the mesh CA, and waits for it.
func TestARotationByTheLease(t *testing.T) {
	w := newHarness(t)
	w.elects, w.caOverlap = true, 2*time.Second
	w.run()
	w.install("demo")
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	w.playIstiod(corev1.ConditionTrue)
	old := w.caSecret()
	phase := func() string {
		if _, reading := w.status(); reading.Summary != nil {
			return reading.Summary.CA.Phase
		}
		return ""
	}
	w.Eventually(phase).Should(gomega.Equal(summary.PhaseSteady))

	type result struct {
		code        int
		out, errOut string
	}
	ended := make(chan result, 1)
	rotate := []string{"rotate-ca", "-n", w.cfg.MgmtNamespace, "--revision", w.cfg.Revision}
	go func() {
		code, out, errOut := command(t, w.pair, append(rotate, "--wait=5m")...)
		ended <- result{code, out, errOut}
	}()
	w.Eventually(w.caState).Should(gomega.HaveField("Phase", "spreading"))
	t.Log("the controller does not follow the request twice, and the command does not repeat it")
	w.Eventually(phase).Should(gomega.Equal("spreading"))
	code, _, errOut := command(t, w.pair, rotate...)
	w.Expect(code).To(gomega.Equal(1))
	w.Expect(errOut).To(gomega.ContainSubstring("a rotation is already in progress, in phase spreading"))

	w.playIstiod(corev1.ConditionTrue)
	w.publishRoots()
	var got result
	w.Eventually(ended).Should(gomega.Receive(&got))
	t.Logf("code %d\n%s%s", got.code, got.out, got.errOut)
	w.Expect(got.code).To(gomega.BeZero())
	w.Expect(got.out).To(gomega.And(gomega.HavePrefix("lease/hypergate-"+w.cfg.Revision+": rotation requested at "),
		gomega.ContainSubstring("\nspreading: "), gomega.HaveSuffix("\ndone: the old root is removed\n")))
	w.Expect(w.caState()).To(gomega.And(gomega.HaveField("Phase", ""), gomega.HaveField("RootsInSecret", 1)))
	w.Expect(w.caSecret().Data["root-cert.pem"]).NotTo(gomega.Equal(old.Data["root-cert.pem"]))
	w.Expect(w.caSecret().Annotations).NotTo(gomega.HaveKey(model.RotateAnnotation))
}
