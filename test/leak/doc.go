// Package leak searches all data of a guest for secrets of the management side. It searches each object of the
// guest's API with managed fields and events, and each key and value in its etcd. It also searches etcd's database
// file, which keeps deleted and overwritten data for some time.
//
// It also searches the archive of hypergate bundle, in which the names of the management side may be.
//
// The search shares no code with the check in package desired that refuses a plan that leaks. That check inspects
// what hypergate is about to write. This package inspects the existing data, whether hypergate, istiod or another
// component of the guest wrote it.
//
// A secret is found in plain form, in base64 at each of its three alignments (with both alphabets), in base64 of
// base64, and in hexadecimal. A key is also found by each line of its PEM and by its secret number alone. A token and
// a certificate are also found by their signatures.
//
// # Limits
//
//   - A value shorter than eight bytes is not searched for, but is listed. A secret that was cut, compressed, encrypted
//     or hashed is not found.
//   - Only data that the guest stores is searched. This excludes what istiod sends to gateways, the guest's logs, audit
//     logs and metrics, and what a gateway logs about its configuration.
//   - etcd's history reaches back to its last compaction (the API server requests one every five minutes). Older data
//     is found only in pages of the file that were not reused. The write-ahead log is not read.
//   - Only observed values are searched for: the Secrets in the namespace of the hosted control plane while they
//     were watched. A key that was never in a Secret is not searched for. One example is the key of a mesh root, which
//     is deleted after it has signed.
//   - A name counts as a leak only if no letter or digit is next to it.
package leak
