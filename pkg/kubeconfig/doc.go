// Package kubeconfig knows what a kubeconfig of a guest looks like: which key of a Secret has it, in which directory a
// Secret is mounted, and what in it cannot be used.
//
// # Workflow
//
//	Secret of the management cluster ─► FromSecret ─► rest.Config
//	file, or directory of a mounted Secret ─► Load ─► rest.Config
//
// # Invariants
//
//   - A kubeconfig from a Secret names no file and runs no program: both would be those of hypergate's own pod.
//   - A server has https and no user, so that no credential travels unprotected.
//   - Errors name the cause and the next step. They never contain the address of a server or of a proxy, which can have
//     a password.
package kubeconfig
