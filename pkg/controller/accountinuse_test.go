package controller

import (
	"encoding/base64"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/hypergate/hypergate/pkg/model"
)

// ofAccount returns a credential whose token is of an account with this UID.
func ofAccount(uid types.UID) model.Credential {
	claims := `{"kubernetes.io":{"serviceaccount":{"uid":"` + string(uid) + `"}}}`
	return model.Credential{Token: "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"}
}

// TestTheFormerAccountOutlivesItsToken checks how long istiod's former account is kept: for the whole time after this
// process first found istiod's Secret with a token of the new account, however often a pass looks.
func TestTheFormerAccountOutlivesItsToken(t *testing.T) {
	t.Parallel()
	var inUse accountInUse
	for _, step := range []struct {
		account types.UID
		at      time.Duration
		want    time.Duration
	}{
		{"old", 0, formerAccessTime},
		{"old", time.Minute, formerAccessTime - time.Minute},
		{"new", 2 * time.Minute, formerAccessTime},
		{"new", 3 * time.Minute, formerAccessTime - time.Minute},
		{"new", 2*time.Minute + formerAccessTime, 0},
		{"new", time.Hour, 0},
		{"newer", time.Hour, formerAccessTime},
	} {
		now := start.Add(step.at)
		inUse = inUse.after(ofAccount(step.account), now)
		if got := inUse.pickedUp(now); got != step.want || inUse.account != step.account {
			t.Errorf("after %s with account %s: another token may be in use for %s, account %s; want %s",
				step.at, step.account, got, inUse.account, step.want)
		}
	}
}
