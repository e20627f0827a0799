package mgmt

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// requestTimeout limits each read. A single worker does everything, and a read without an answer must not block it.
const requestTimeout = 10 * time.Second

// secrets is the content of the two Secrets after it was read or created.
type secrets struct {
	read       bool
	ca         pki.CA
	rotation   pki.Rotation
	invalidCA  error
	rereadCA   bool
	credential model.Credential
	// shownAs is the resource version of the CA's Secret in the watch at the time of the last read. It is empty if
	// the watch had no such Secret.
	shownAs string
	// forgotten is true if ForgetSecrets discarded the content. remained is true if the next read found content
	// nevertheless.
	forgotten, remained bool
	// accepted is the last credential that the management side accepted. It replaces a credential that the management
	// side refuses.
	accepted model.Credential
}

// readMissing reads both Secrets when this process starts to lead.
//
// It reads the CA again if the cached CA is not usable and the watch shows another version of the Secret. An unusable
// CA that does not change must not be read in each pass.
func (c *Cluster) readMissing(ctx context.Context) error {
	shown := c.shownCA()
	restored := shown != nil && c.objects.Ours(shown) && !c.secrets.ca.Exists()
	useless := c.secrets.invalidCA != nil || c.secrets.rereadCA || restored
	switch {
	case !c.secrets.read:
		read, err := c.readSecrets(ctx)
		if err != nil {
			return err
		}
		c.secrets = read
	case useless && versionOf(shown) != c.secrets.shownAs:
		return c.readCA(ctx, &c.secrets)
	}
	return nil
}

// readCA reads the CA if hypergate owns it. A CA of another owner is always taken from the watch.
func (c *Cluster) readCA(ctx context.Context, into *secrets) error {
	shownAs := versionOf(c.shownCA())
	found, exists, err := c.secret(ctx, model.CASecretName)
	if err != nil {
		return err
	}
	into.ca, into.rotation, into.invalidCA, into.rereadCA = pki.CA{}, pki.Rotation{}, nil, false
	into.shownAs = shownAs
	if exists && c.objects.Ours(found) {
		into.ca, into.rotation, into.invalidCA = model.CAFromSecret(found.Annotations, found.Data)
	}
	return nil
}

// versionOf returns the resource version of the CA's Secret from the watch. It is empty if there is no such Secret.
func versionOf(shown *corev1.Secret) string {
	if shown == nil {
		return ""
	}
	return shown.ResourceVersion
}

// RereadCA marks the observed CA as unusable. It is read again after its Secret has changed.
func (c *Cluster) RereadCA() { c.secrets.rereadCA = true }

func (c *Cluster) readSecrets(ctx context.Context) (secrets, error) {
	out := secrets{read: true}
	if err := c.readCA(ctx, &out); err != nil {
		return secrets{}, err
	}
	if err := c.readCredential(ctx, &out); err != nil {
		return secrets{}, err
	}
	out.remained = c.secrets.forgotten && out.any()
	return out, nil
}

func (c *Cluster) readCredential(ctx context.Context, into *secrets) error {
	credential, found, err := c.secret(ctx, model.CredentialSecretName)
	if err != nil || !found {
		return err
	}
	// An unreadable credential is discarded. Creating a new one costs nothing.
	into.credential, _ = model.CredentialFromSecret(credential.Annotations, credential.Data)
	into.accepted = into.credential
	return nil
}

// errNoCredential means that there is no Secret with istiod's credential for the guest.
var errNoCredential = errors.New("istiod has no guest credential")

// FindCredential reads istiod's credential if Observe could not read it: an istiod that cannot be observed needs its
// credential too. It reports whether there is a credential.
func (c *Cluster) FindCredential(ctx context.Context) (bool, error) {
	if c.secrets.read || c.secrets.credential.Token != "" {
		return c.secrets.credential.Token != "", nil
	}
	err := c.credentialRead.read(func() error {
		if err := c.readCredential(ctx, &c.secrets); err != nil || c.secrets.credential.Token != "" {
			return err
		}
		return errNoCredential
	})
	if errors.Is(err, errNoCredential) {
		return false, nil
	}
	return c.secrets.credential.Token != "", err
}

func (c *Cluster) secret(ctx context.Context, name string) (*corev1.Secret, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	found, err := c.core.Secrets(c.cfg.MgmtNamespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading Secret %s on the management side: %w", name, err)
	}
	return found, true, nil
}

// CacheCA sets the CA and its rotation state that Observe returns. The caller applies them.
func (c *Cluster) CacheCA(ca pki.CA, rotation pki.Rotation) {
	c.secrets.ca, c.secrets.rotation, c.secrets.remained = ca, rotation, false
}

// Credential returns istiod's credential for the guest, or the zero value.
func (c *Cluster) Credential() model.Credential { return c.secrets.credential }

// CacheCredential sets the credential that Credential returns. The caller applies it.
func (c *Cluster) CacheCredential(credential model.Credential) {
	c.secrets.credential, c.secrets.remained = credential, false
}

// keepAccepted evaluates the outcome for the credential's Secret. If the management side refuses the content, the
// credential is discarded, so that the caller requests another one: the guest influences its size.
//
// A credential that could not be written for another reason stays.
func (s *secrets) keepAccepted(report apply.Report) {
	for _, o := range report.Outcomes() {
		if o.ID().GVK.Kind != "Secret" || o.ID().Key.Name != model.CredentialSecretName {
			continue
		}
		switch class := o.Cause().Class(); {
		case o.Verdict() == apply.VerdictApplied, o.Verdict() == apply.VerdictUnchanged:
			s.accepted = s.credential
		case class == apply.Invalid, class == apply.Denied, class == apply.Enlarged:
			s.credential = s.accepted
		}
	}
}

// ForgetSecrets discards the cached content after an uninstallation. The Secrets are read again, and the next
// installation creates a CA and a credential where none exist.
//
// Content that remains after that does not belong to the installation, and is not read in each pass.
func (c *Cluster) ForgetSecrets() {
	if c.secrets.any() && !c.secrets.remained {
		c.secrets = secrets{forgotten: true}
	}
}

func (s secrets) any() bool { return s.ca.Exists() || s.credential.Token != "" }
