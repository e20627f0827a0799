// Package deploy performs the steps that the README of deploy/ describes for an administrator: it applies the folder
// and creates kubeconfigs of its accounts. Tests and the demo run hypergate with exactly these accounts.
package deploy
