package desired

// What the external tests need to see of the gate that every object passes.
var (
	MintMgmt  = newMgmtObject
	MintGuest = newGuestObject
)

// FindLeak is what a text would tell the guest.
func FindLeak(cfg Config, hosted ManagementObservation, guest GuestObservation, text string) string {
	return secretsOf(cfg, hosted, guest).in(text)
}
