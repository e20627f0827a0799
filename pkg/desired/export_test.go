package desired

// FindLeak is what a text would tell the guest.
func FindLeak(cfg Config, hosted ManagementObservation, guest GuestObservation, text string) string {
	return SecretsOf(cfg, hosted, guest).Find(text)
}
