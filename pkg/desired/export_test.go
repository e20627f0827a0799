package desired

import (
	"github.com/hypergate/hypergate/pkg/leakcheck"
	"github.com/hypergate/hypergate/pkg/model"
)

// FindLeak is what a text would tell the guest.
func FindLeak(cfg model.Config, hosted model.ManagementObservation, guest model.GuestObservation, text string) string {
	return leakcheck.SecretsOf(cfg, hosted, guest).Find(text)
}
