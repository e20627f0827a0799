package status

import "time"

// How long what passes by itself must last until it is somebody's matter: a kube-apiserver of one replica is replaced in two minutes, and a load
// balancer and its name are there in ten.
const (
	lasts          = 2 * time.Minute
	lastsPublished = 10 * time.Minute
)

// Ailment remembers since when something that passes by itself is wrong; the zero value: nothing is.
type Ailment struct{ since time.Time }

// Ailing is what is to be remembered now. again is how soon it will be told as something that lasts; zero means never.
func (a Ailment) Ailing(r Result, now time.Time) (next Ailment, again time.Duration) {
	passing := r.passing()
	if len(passing) == 0 {
		return Ailment{}, 0
	}
	if a.since.IsZero() {
		a.since = now
	}
	for _, p := range passing {
		if left := a.since.Add(p.lasts()).Sub(now); left > 0 && (again == 0 || left < again) {
			again = left
		}
	}
	return a, again
}

func (a Ailment) lasted(p problem, now time.Time) bool {
	return !a.since.IsZero() && now.Sub(a.since) >= p.lasts()
}

// lasts is how long it must last until it is somebody's matter.
func (p problem) lasts() time.Duration {
	if p.reason == ReasonNotReached || p.reason == ReasonNotPublished {
		return lastsPublished
	}
	return lasts
}
