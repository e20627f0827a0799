package watch

// Meter returns the meter that limits the watch to its budget.
func (w *Watch) Meter() *Meter { return w.meter }
