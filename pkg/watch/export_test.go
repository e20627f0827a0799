package watch

// Meter is what holds the watch to its budget.
func (w *Watch) Meter() *Meter { return w.meter }
