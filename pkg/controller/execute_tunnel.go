package controller

import (
	"context"
	"fmt"

	"github.com/hypergate/hypergate/pkg/model"
	"github.com/hypergate/hypergate/pkg/pki"
	"github.com/hypergate/hypergate/pkg/publish"
)

// currentSidecar returns the Secret of the tunnel's sidecar, with a new token and a new certificate where they are due.
// Nil: there is no tunnel, or nothing for it yet.
func (e *execution) currentSidecar(ctx context.Context) []model.MgmtObject {
	plane := e.observed.mgmt.ControlPlane
	if !publish.UsesTunnel(e.config, plane) {
		return nil
	}
	t := &e.memory.tokens[model.SidecarBearer]
	defer e.noteToken(model.SidecarBearer)
	credential := e.currentToken(ctx, model.SidecarBearer)
	if credential.Token == "" {
		return nil
	}
	serving, err := e.currentServing()
	if err != nil {
		t.problem = err
		return nil
	}
	secret, err := model.TunnelSecret(e.config, plane, credential, serving)
	if err != nil {
		t.problem = err
		return nil
	}
	return []model.MgmtObject{secret}
}

// currentServing returns the key pair with which the sidecar proves to the relays that it is istiod's. It is new if it
// is due, if it begins in the future, or if another CA issues certificates. If the CA is not known, it is the one in
// use.
func (e *execution) currentServing() (pki.Serving, error) {
	now, serving := e.clock.Now(), e.memory.secrets.Serving()
	if !e.ca.Exists() {
		return serving, nil
	}
	if renewal := serving.RenewAt(now, e.ca, e.config.TunnelName()); now.Before(renewal) {
		e.requeueAfter(max(renewal.Sub(now), tokenRetry))
		return serving, nil
	}
	serving, err := e.ca.Serving(now, e.config.TunnelName())
	if err != nil {
		return pki.Serving{}, fmt.Errorf("issuing the certificate of the tunnel's sidecar: %w", err)
	}
	e.memory.secrets.SetServing(serving)
	e.requeueAfter(max(serving.RenewAt(now, e.ca, e.config.TunnelName()).Sub(now), tokenRetry))
	return serving, nil
}
