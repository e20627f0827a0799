package mgmt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/hypergate/hypergate/pkg/desired"
)

// TestItIsKnownHowTheAPIIsReached, so that a plan can be searched for it.
func TestItIsKnownHowTheAPIIsReached(t *testing.T) {
	f := newFixture(t)
	f.start()
	if f.observe().API.Server == "" {
		t.Error("the API server's address is not observed")
	}
}
