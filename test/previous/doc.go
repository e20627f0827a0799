// Package previous finds the previous hypergate for stories that begin with it: its binary and its manifests.
// hack/previous/build.sh names the commit.
package previous
