package integration_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// webhookSecret returns the Secret for a party that writes the webhooks, or nil.
func (w *harness) webhookSecret() *corev1.Secret {
	secret, err := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace).Get(w.Context(), w.cfg.WebhookSecretName(), metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return secret
}

// writeWebhooks plays the other party: it writes the configurations of the Secret under a name of its own.
func (w *harness) writeWebhooks(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	w.Helper()
	var all []admissionregistrationv1.ValidatingWebhookConfiguration
	w.Expect(json.Unmarshal(w.webhookSecret().Data[model.WebhookConfigurationsFile], &all)).To(gomega.Succeed())
	w.Expect(all).To(gomega.HaveLen(1))
	all[0].Name = name
	configurations := w.guest.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	out, err := configurations.Create(w.Context(), &all[0], metav1.CreateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Cleanup(func() { _ = configurations.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return out
}

// TestWebhooksOfAnotherParty changes over to webhooks of another party, and back.
func TestWebhooksOfAnotherParty(t *testing.T) {
	w := newHarness(t)
	stop := w.run()
	w.install("demo")
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	w.Expect(w.webhookSecret()).To(gomega.BeNil())
	own := w.webhook()
	stop()

	t.Log("another party takes over: hypergate deletes its own webhook, and hands out what it has")
	w.cfg.Webhooks = model.WebhooksExternal
	stop = w.run()
	w.Eventually(w.webhook).Should(gomega.BeNil())
	w.Eventually(w.webhookSecret).ShouldNot(gomega.BeNil())
	w.Expect(w.webhookSecret().Data).To(gomega.And(
		gomega.HaveKeyWithValue(model.WebhookURLFile, []byte("https://"+w.cfg.WebhookHost+":443")),
		gomega.HaveKeyWithValue(model.WebhookCAFile, w.caSecret().Data[model.CARootFile])))
	theirs := w.writeWebhooks("third-party-" + w.cfg.Revision)
	w.Expect(theirs.Webhooks[0].ClientConfig).To(gomega.Equal(own.Webhooks[0].ClientConfig))
	w.Eventually(func() *metav1.Condition { return w.condition("demo", "ControllerInstalled") }).Should(gomega.And(
		haveStatus(metav1.ConditionTrue, "Installed"),
		gomega.HaveField("Message", gomega.ContainSubstring("another party writes the webhooks"))))

	t.Log("a rotation reaches the other party, and an edited Secret is restored")
	w.patchSecret(model.CASecretName, `{"metadata":{"annotations":{"`+model.RotateAnnotation+`":"a"}}}`)
	handedOut := func() int { return certificates(w.webhookSecret().Data[model.WebhookCAFile]) }
	w.Eventually(handedOut).Should(gomega.Equal(2))
	w.patchSecret(w.cfg.WebhookSecretName(), `{"data":{"ca.crt":"","url":null}}`)
	w.Eventually(handedOut).Should(gomega.Equal(2))
	w.playIstiod(corev1.ConditionTrue)
	w.settle()
	stop()

	t.Log("hypergate takes them back")
	w.cfg.Webhooks = model.WebhooksManaged
	w.run()
	w.Eventually(w.webhook).ShouldNot(gomega.BeNil())
	w.Eventually(w.webhookSecret).Should(gomega.BeNil())
	w.Expect(certificates(w.webhook().Webhooks[0].ClientConfig.CABundle)).To(gomega.Equal(2))
	now, err := w.guest.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), theirs.Name, metav1.GetOptions{})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Expect(now.ResourceVersion).To(gomega.Equal(theirs.ResourceVersion), "the other party's webhook was never changed")
}

// TestABroughtCAAndWebhooksOfAnotherParty checks that a brought CA stays as it is, and that its next root reaches the
// other party. Uninstalling deletes the Secret.
func TestABroughtCAAndWebhooksOfAnotherParty(t *testing.T) {
	w := newHarness(t)
	w.cfg.Webhooks = model.WebhooksExternal
	ca, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	secrets := w.mgmt.CoreV1().Secrets(w.cfg.MgmtNamespace)
	theirs := func(ca pki.CA) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: model.CASecretName},
			Data: map[string][]byte{
				model.CACertFile: ca.Cert, model.CAKeyFile: ca.Key, model.CAChainFile: ca.Chain, model.CARootFile: ca.Root,
			},
		}
	}
	_, err = secrets.Create(t.Context(), theirs(ca), metav1.CreateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.run()
	w.install("demo")
	handedOut := func() string {
		if secret := w.webhookSecret(); secret != nil {
			return string(secret.Data[model.WebhookCAFile])
		}
		return ""
	}
	w.Eventually(handedOut).Should(gomega.Equal(string(ca.Root)))
	next, err := pki.New(time.Now())
	w.Expect(err).NotTo(gomega.HaveOccurred())
	brought, err := secrets.Update(t.Context(), theirs(next), metav1.UpdateOptions{FieldManager: "third-party"})
	w.Expect(err).NotTo(gomega.HaveOccurred())
	w.Eventually(handedOut).Should(gomega.Equal(string(next.Root)))
	w.Expect(w.caSecret().ResourceVersion).To(gomega.Equal(brought.ResourceVersion))
	w.deleteClass("demo")
	w.Eventually(w.webhookSecret).Should(gomega.BeNil())
}
