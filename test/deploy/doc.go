// Package deploy does with the folder deploy/ what its README tells an administrator to do: apply it, and make kubeconfigs of the accounts in
// it. Tests and the demo run hypergate under exactly these.
package deploy
