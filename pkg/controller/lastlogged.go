package controller

// lastLogged is what was logged last, so that a state that lasts is logged once. The zero value: nothing was logged.
type lastLogged struct {
	logged bool
	text   string
}

// isNew reports whether a text differs from what was logged last, and takes it as logged.
func (l *lastLogged) isNew(text string) bool {
	isNew := *l != lastLogged{true, text}
	*l = lastLogged{true, text}
	return isNew
}
