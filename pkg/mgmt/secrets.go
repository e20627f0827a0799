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
	"github.com/hypergate/hypergate/pkg/desired"
	"github.com/hypergate/hypergate/pkg/pki"
)

// requestTimeout ends a reading that is not answered: one worker does everything, and must not wait for that.
const requestTimeout = 10 * time.Second

// secrets is what the two Secrets hold, once they were read or made.
type secrets struct {
	read       bool
	ca         pki.CA
	rotation   pki.Rotation
	invalidCA  error
	rereadCA   bool
	credential desired.Credential
	// shownAs is the version in which the watch showed the CA's Secret when that was last read; empty: it showed none.
	shownAs string
	// forgotten says that nothing is kept because ForgetSecrets was called, remained that there was something all the
	// same when it was read again.
	forgotten, remained bool
	// accepted is the credential that the management side is known to have: where it refuses the next, that one is none.
	accepted desired.Credential
}

// readMissing reads both Secrets when this process begins to lead, and the CA again when what is kept of it is
// of no use and the watch shows another version of it: a CA that stays as it is must not be read in each pass.
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

// readCA reads the CA, if it is ours; one of somebody else is always what the watch shows.
func (c *Cluster) readCA(ctx context.Context, into *secrets) error {
	shownAs := versionOf(c.shownCA())
	found, exists, err := c.secret(ctx, desired.CASecretName)
	if err != nil {
		return err
	}
	into.ca, into.rotation, into.invalidCA, into.rereadCA = pki.CA{}, pki.Rotation{}, nil, false
	into.shownAs = shownAs
	if exists && c.objects.Ours(found) {
		into.ca, into.rotation, into.invalidCA = desired.CAFromSecret(found.Annotations, found.Data)
	}
	return nil
}

// versionOf is the version of the CA's Secret as the watch shows it; empty when there is none.
func versionOf(shown *corev1.Secret) string {
	if shown == nil {
		return ""
	}
	return shown.ResourceVersion
}

// RereadCA says that the CA which Observe shows cannot be used. It is read again when its Secret has changed.
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
	credential, found, err := c.secret(ctx, desired.CredentialSecretName)
	if err != nil || !found {
		return err
	}
	// A credential that cannot be read is not worth keeping: a new one is made, which costs nothing.
	into.credential, _ = desired.CredentialFromSecret(credential.Annotations, credential.Data)
	into.accepted = into.credential
	return nil
}

// errNoCredential says that there is no Secret with istiod's guest credential.
var errNoCredential = errors.New("istiod has no guest credential")

// FindCredential reads istiod's guest credential where Observe could not: an istiod that cannot be seen lives on it. It
// reports whether there is one.
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

// CacheCA makes a new CA, and where its rotation stands, what Observe shows. The caller applies it.
func (c *Cluster) CacheCA(ca pki.CA, rotation pki.Rotation) {
	c.secrets.ca, c.secrets.rotation, c.secrets.remained = ca, rotation, false
}

// Credential is istiod's guest credential, or the zero value.
func (c *Cluster) Credential() desired.Credential { return c.secrets.credential }

// CacheCredential makes a new credential the one that Credential shows. The caller applies it.
func (c *Cluster) CacheCredential(credential desired.Credential) {
	c.secrets.credential, c.secrets.remained = credential, false
}

// keepAccepted goes by what became of the Secret with the credential. One whose content the management side refuses is forgotten, so that
// the caller asks for another: the guest has a say in how large it is. One that could not be written for another reason stays.
func (s *secrets) keepAccepted(report apply.Report) {
	for _, o := range report.Outcomes() {
		if o.ID().GVK.Kind != "Secret" || o.ID().Key.Name != desired.CredentialSecretName {
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

// ForgetSecrets is for after an uninstallation: what is there then is read again, and the next installation starts with a CA and a credential
// of its own where there are none. What remains after that is not of the installation, and is not read in each pass.
func (c *Cluster) ForgetSecrets() {
	if c.secrets.any() && !c.secrets.remained {
		c.secrets = secrets{forgotten: true}
	}
}

func (s secrets) any() bool { return s.ca.Exists() || s.credential.Token != "" }
