package webhookurl

import (
	"errors"
	"fmt"
	"strings"
)

// Errors. Each error of this package wraps at least one of these.
var (
	// ErrEndpoint means that an endpoint's service or ports are wrong, or that it was not created by NewEndpoint.
	ErrEndpoint = errors.New("endpoint is not usable")
	// ErrCABundle means that a CA bundle is not a list of CA certificates, or that an object has another one.
	ErrCABundle = errors.New("CA bundle is wrong")
	// ErrSecretMaterial means that a CA bundle has content that must not be published, such as a key.
	ErrSecretMaterial = errors.New("CA bundle holds more than certificates")
	// ErrInvalidURL means that a URL, or the path of a service, is not allowed for a webhook.
	ErrInvalidURL = errors.New("URL is not valid for a webhook")
	// ErrNotOurs means that a webhook does not lead to the endpoint.
	ErrNotOurs = errors.New("webhook does not lead to the endpoint")
	// ErrNotRewritten means that a webhook leads to the endpoint, but not in the form that Rewrite writes.
	ErrNotRewritten = errors.New("webhook is not rewritten")
	// ErrMalformed means that an object does not have the structure of its kind.
	ErrMalformed = errors.New("object is malformed")
	// ErrUnsupported means that an object can have webhooks that this package cannot see.
	ErrUnsupported = errors.New("kind or version is not supported")
)

// RefusedError has all problems of one object. Rewrite and Check return no other error.
type RefusedError struct {
	// Kind and Name are those of the object.
	Kind, Name string
	// Problems is never empty. A problem of the whole object comes first. Then there is one for each webhook with
	// problems, in the object's order.
	Problems []Problem
}

// Problem is what is wrong with one webhook.
type Problem struct {
	// Webhook is the name of the webhook. It is "webhooks[<index>]" for a webhook without a name, "conversion" for
	// the webhook of a CustomResourceDefinition, and empty for the whole object.
	Webhook string
	// Err wraps the error values of this package. It wraps several if there are several problems.
	Err error
}

// Error returns one line with the object and all problems, each with its webhook.
func (e *RefusedError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		// errors.Join puts line breaks between errors. There are no other line breaks, because all foreign text is
		// quoted.
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
