package webhookurl

import (
	"errors"
	"fmt"
	"strings"
)

// What can be wrong. Each error of this package wraps at least one of these.
var (
	// ErrEndpoint means that an endpoint's service or ports are wrong, or that it was not made by NewEndpoint.
	ErrEndpoint = errors.New("endpoint is not usable")
	// ErrCABundle means that a CA bundle is no list of CA certificates, or that an object holds another one.
	ErrCABundle = errors.New("CA bundle is wrong")
	// ErrSecretMaterial means that a CA bundle holds something that must not be published with it, such as a key.
	ErrSecretMaterial = errors.New("CA bundle holds more than certificates")
	// ErrInvalidURL means that a URL, or the path of a service, is not one that a webhook may have.
	ErrInvalidURL = errors.New("URL is not valid for a webhook")
	// ErrNotOurs means that a webhook leads elsewhere than to the endpoint.
	ErrNotOurs = errors.New("webhook does not lead to the endpoint")
	// ErrNotRewritten means that a webhook leads to the endpoint, but not in the form that Rewrite gives it.
	ErrNotRewritten = errors.New("webhook is not rewritten")
	// ErrMalformed means that an object is not built as its kind is.
	ErrMalformed = errors.New("object is malformed")
	// ErrUnsupported means that an object may hold webhooks where this package cannot see them.
	ErrUnsupported = errors.New("kind or version is not supported")
)

// RefusedError is everything that is wrong with one object. Rewrite and Check return no other error.
type RefusedError struct {
	// Kind and Name are those of the object.
	Kind, Name string
	// Problems is never empty. One about the whole object comes first, then there is one for each webhook that
	// something is wrong with, in the object's order.
	Problems []Problem
}

// Problem is what is wrong with one webhook.
type Problem struct {
	// Webhook is the name of the webhook, "webhooks[<index>]" where it has none, "conversion" for that of a
	// CustomResourceDefinition, and empty where the whole object is meant.
	Webhook string
	// Err wraps this package's error values, several if several things are wrong.
	Err error
}

// Error names the object and lists all problems, each with its webhook, on one line.
func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		// errors.Join puts a line break between errors; there are no others, as all that is not ours is quoted.
		texts[i] = strings.ReplaceAll(problem.Err.Error(), "\n", "; ")
		if problem.Webhook != "" {
			texts[i] = fmt.Sprintf("webhook %q: %s", problem.Webhook, texts[i])
		}
	}
	return fmt.Sprintf("%s %q is refused: %s", e.Kind, e.Name, strings.Join(texts, "; "))
}

// Unwrap returns the errors of all problems, for errors.Is.
func (e *RefusedError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, problem := range e.Problems {
		errs[i] = problem.Err
	}
	return errs
}
