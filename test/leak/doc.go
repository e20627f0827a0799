// Package leak searches everything that a guest holds for what only the management side may know: each object of its API, managed fields and
// events included; each key and value in its etcd; and etcd's database as a file, where what was deleted or overwritten still is for a while.
//
// It is a proof that shares no code with what it is about: the check in package desired, which refuses a plan that leaks, looks at what
// hypergate is about to write. This looks at what is there, whoever wrote it: hypergate, istiod, or a server of the guest that was told something.
//
// A secret is found as it is, in base64 at each of its three alignments (with both alphabets), in base64 of that, and in hexadecimal digits.
// A key is also found by each line of its PEM and by its secret number alone, a token by its signature, a certificate by its signature.
//
// # What it does not show
//
//   - What is shorter than eight bytes is not looked for, and is listed. Nor is a secret that was cut, compressed, encrypted or hashed.
//   - It is about what the guest stores. What istiod sends to gateways is not stored, nor are the guest's logs, its audit logs and its metrics, nor
//     what a gateway logs of its configuration.
//   - etcd's history reaches back to its last compaction (the API server asks for one every five minutes), and beyond that as far as pages of the
//     file were not used again. Its write-ahead log is not read.
//   - What is looked for is what was seen: the Secrets that the namespace of the hosted control plane had while they were watched. A key that
//     never was in a Secret, like that of a mesh root, which is thrown away once it has signed, is not looked for.
//   - A name is a leak where no letter or digit is next to it.
package leak
