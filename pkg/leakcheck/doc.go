// Package leakcheck finds secrets of the management side in objects for the guest. The users of a guest can read these
// objects.
//
// The secrets are private keys and non-root certificates of the mesh CA, the CA and address of the management API, and
// the name of the management namespace.
//
// # Workflow
//
//	Config, observations ─► SecretsOf ─► Secrets ─┬─► Refuse: checks an object, with its name, keys and values
//	                                              └─► Find: checks a text, as it is and decoded
//
// NamesNamespace checks a host before there is a plan.
//
// # Invariants
//
//   - An error names the kind of secret and where it was found, never the secret itself.
//   - Find also finds a secret in base64 (both alphabets), in hexadecimal digits, split by white space, and behind the
//     escapes of JSON, YAML and URLs. At most maxUnwrappings of these encodings can be nested.
//   - Refuse permits the host of the webhooks at the beginning of a webhook's URL, even if it contains the name of the
//     management namespace. No other place is exempt.
//   - Texts and patterns shorter than ShortestName bytes are never reported.
//   - What is in the roots of the mesh CA is never reported, because every gateway has these roots.
//   - A name or address that is in the flags for the guest, or in the name of a GatewayClass, is not reported. So the
//     users of the guest cannot block a plan with it.
//   - Nothing but the arguments is read. The keys of an object are checked in a fixed order, so the same object has the
//     same error.
package leakcheck
