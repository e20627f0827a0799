package mgmt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/apply"
	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
)

// requestTimeout limits each read. A single worker does everything, and a read without an answer must not block it.
const requestTimeout = 10 * time.Second

// Secrets is what is known of the content of the Secrets: the mesh CA, istiod's credential for the guest, and those of
// the tunnel's sidecar. The caller of Observe keeps it between passes. The zero value is for a process that has just
// begun to lead: nothing was read.
type Secrets struct {
	read      bool
	ca        pki.CA
	rotation  pki.Rotation
	invalidCA error
	rereadCA  bool
	// credentials are those of each bearer. serving is the key pair of the tunnel's sidecar.
	credentials [model.Bearers]heldCredential
	serving     pki.Serving
	// shownAs is the resource version of the CA's Secret in the watch at the time of the last read. It is empty if
	// the watch had no such Secret.
	shownAs string
	// forgotten is true if Forget discarded the content. remained is true if the next read found content
	// nevertheless.
	forgotten, remained bool
}

// heldCredential is a credential, and the last one that the management side accepted. That one replaces a credential
// that the management side refuses.
type heldCredential struct{ current, accepted model.Credential }

// readMissing reads the Secrets when this process starts to lead.
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

// versionOf returns the resource version of the CA's Secret from the watch. It is empty if the Secret does not exist.
func versionOf(shown *corev1.Secret) string {
	if shown == nil {
		return ""
	}
	return shown.ResourceVersion
}

// readSecrets reads the Secrets. After an error, s is as it was.
func (c *Cluster) readSecrets(ctx context.Context, s *Secrets) error {
	read := Secrets{read: true}
	if err := c.readCA(ctx, &read); err != nil {
		return err
	}
	if err := c.readCredentials(ctx, &read); err != nil {
		return err
	}
	read.remained = s.forgotten && read.any()
	*s = read
	return nil
}

// readCredentials reads the credentials of istiod's pod. An unreadable one is discarded, because creating a new one
// costs nothing. Without an image for relays there is no tunnel, and nothing to read for its sidecar.
func (c *Cluster) readCredentials(ctx context.Context, into *Secrets) error {
	found, exists, err := c.secret(ctx, model.CredentialSecretName)
	if err != nil {
		return err
	}
	var read [model.Bearers]model.Credential
	if exists {
		read[model.IstiodBearer], _ = model.CredentialFromSecret(found.Annotations, found.Data)
	}
	if c.cfg.Publish.RelayImage != "" {
		if found, exists, err = c.secret(ctx, model.TunnelSecretName); err != nil {
			return err
		}
		if exists {
			read[model.SidecarBearer], into.serving, _ = model.TunnelFromSecret(found.Annotations, found.Data)
		}
	}
	for of, credential := range read {
		into.credentials[of] = heldCredential{current: credential, accepted: credential}
	}
	return nil
}

// secretID returns the identity of the Secret with a bearer's credential.
func (c *Cluster) secretID(of model.Bearer) apply.ID {
	return apply.ID{
		GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"},
		Key: types.NamespacedName{Namespace: c.cfg.MgmtNamespace, Name: of.SecretName()},
	}
}

// errNoCredential means that the Secret with istiod's credential for the guest does not exist.
var errNoCredential = errors.New("istiod has no guest credential")

// FindCredentials reads the credentials of istiod's pod into s if Observe could not read them: an istiod that cannot be
// observed needs them too. It reports whether istiod has a credential.
func (c *Cluster) FindCredentials(ctx context.Context, s *Secrets) (bool, error) {
	has := func() bool { return s.Credential(model.IstiodBearer).Token != "" }
	if s.read || has() {
		return has(), nil
	}
	err := c.credentialRead.read(func() error {
		if err := c.readCredentials(ctx, s); err != nil || has() {
			return err
		}
		return errNoCredential
	})
	if errors.Is(err, errNoCredential) {
		return false, nil
	}
	return has(), err
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

// Credential returns a bearer's credential for the guest, or the zero value.
func (s *Secrets) Credential(of model.Bearer) model.Credential { return s.credentials[of].current }

// SetCredential sets a bearer's credential for the guest. The caller applies it.
func (s *Secrets) SetCredential(of model.Bearer, credential model.Credential) {
	s.credentials[of].current, s.remained = credential, false
}

// Serving returns the key pair of the tunnel's sidecar, or the zero value.
func (s *Secrets) Serving() pki.Serving { return s.serving }

// SetServing sets the key pair of the tunnel's sidecar. The caller applies it.
func (s *Secrets) SetServing(serving pki.Serving) { s.serving = serving }

// Applied evaluates the outcome for the Secrets with credentials. If the management side refuses the content, the
// credential is discarded, so that the caller requests another one: the guest influences its size.
//
// A credential that could not be written for another reason stays.
func (s *Secrets) Applied(report apply.Report) {
	for _, o := range report.Outcomes() {
		of, is := model.BearerOf(o.ID().Key.Name)
		if o.ID().GVK.Kind != "Secret" || !is {
			continue
		}
		held := &s.credentials[of]
		switch class := o.Cause().Class(); {
		case o.Verdict() == apply.VerdictApplied, o.Verdict() == apply.VerdictUnchanged:
			held.accepted = held.current
		case class == apply.Invalid, class == apply.Denied, class == apply.Enlarged:
			held.current = held.accepted
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

func (s *Secrets) any() bool {
	return s.ca.Exists() || slices.ContainsFunc(s.credentials[:], func(c heldCredential) bool { return c.current.Token != "" })
}
