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

// Secrets is what is known of the content of the two Secrets: the mesh CA, and istiod's credential for the guest. The
// caller of Observe keeps it between passes. The zero value is for a process that has just begun to lead: nothing was
// read.
type Secrets struct {
	read       bool
	ca         pki.CA
	rotation   pki.Rotation
	invalidCA  error
	rereadCA   bool
	credential model.Credential
	// shownAs is the resource version of the CA's Secret in the watch at the time of the last read. It is empty if
	// the watch had no such Secret.
	shownAs string
	// forgotten is true if Forget discarded the content. remained is true if the next read found content
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
func (c *Cluster) readMissing(ctx context.Context, s *Secrets) error {
	shown := c.shownCA()
	restored := shown != nil && c.objects.Ours(shown) && !s.ca.Exists()
	useless := s.invalidCA != nil || s.rereadCA || restored
	switch {
	case !s.read:
		return c.readSecrets(ctx, s)
	case useless && versionOf(shown) != s.shownAs:
		return c.readCA(ctx, s)
	}
	return nil
}

// readCA reads the CA if hypergate owns it. A CA of another owner is always taken from the watch.
func (c *Cluster) readCA(ctx context.Context, into *Secrets) error {
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

// readSecrets reads both Secrets. After an error, s is as it was.
func (c *Cluster) readSecrets(ctx context.Context, s *Secrets) error {
	read := Secrets{read: true}
	if err := c.readCA(ctx, &read); err != nil {
		return err
	}
	if err := c.readCredential(ctx, &read); err != nil {
		return err
	}
	read.remained = s.forgotten && read.any()
	*s = read
	return nil
}

func (c *Cluster) readCredential(ctx context.Context, into *Secrets) error {
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

// FindCredential reads istiod's credential into s if Observe could not read it: an istiod that cannot be observed needs
// its credential too. It reports whether there is a credential.
func (c *Cluster) FindCredential(ctx context.Context, s *Secrets) (bool, error) {
	if s.read || s.credential.Token != "" {
		return s.credential.Token != "", nil
	}
	err := c.credentialRead.read(func() error {
		if err := c.readCredential(ctx, s); err != nil || s.credential.Token != "" {
			return err
		}
		return errNoCredential
	})
	if errors.Is(err, errNoCredential) {
		return false, nil
	}
	return s.credential.Token != "", err
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

// RereadCA marks the CA as unusable. Observe reads it again after its Secret has changed.
func (s *Secrets) RereadCA() { s.rereadCA = true }

// SetCA sets the CA and its rotation state. The caller applies them.
func (s *Secrets) SetCA(ca pki.CA, rotation pki.Rotation) {
	s.ca, s.rotation, s.remained = ca, rotation, false
}

// Credential returns istiod's credential for the guest, or the zero value.
func (s *Secrets) Credential() model.Credential { return s.credential }

// SetCredential sets istiod's credential for the guest. The caller applies it.
func (s *Secrets) SetCredential(credential model.Credential) {
	s.credential, s.remained = credential, false
}

// Applied evaluates the outcome for the credential's Secret. If the management side refuses the content, the credential
// is discarded, so that the caller requests another one: the guest influences its size.
//
// A credential that could not be written for another reason stays.
func (s *Secrets) Applied(report apply.Report) {
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

// Forget discards the content after an uninstallation. The Secrets are read again, and the next installation creates a
// CA and a credential where none exist.
//
// Content that remains after that does not belong to the installation, and is not read in each pass.
func (s *Secrets) Forget() {
	if s.any() && !s.remained {
		*s = Secrets{forgotten: true}
	}
}

func (s *Secrets) any() bool { return s.ca.Exists() || s.credential.Token != "" }
