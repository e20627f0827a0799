// Package bundle writes an archive of what API servers show of an installation, for a bug report or for support.
//
// # Workflow
//
//	Tables of kinds ─► pages of lists of both sides ─► redact ─► one YAML file for each kind and namespace ─► Archive
//
// An Archive is written as a compressed tar archive, or as a folder.
//
// # Invariants
//
//   - No Secret is requested, so the archive has no value of one. A text that looks like a credential is replaced,
//     wherever it is: a private key, a token, a header with credentials, a user in a URL, a variable or a field with
//     the name of a credential.
//   - The archive has a size limit, and so have each kind and each object. These are checked while objects are listed,
//     before their YAML is made, so memory has a limit, too. What is left out, or cannot be read, is in errors.txt.
//   - Names of files consist of letters, digits, dots, dashes and underscores, whatever an API server answers.
//   - It reads only. It needs no permission: what the user is not allowed to read is left out.
package bundle
