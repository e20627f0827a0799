// Package answer limits how much of an API server's responses is read and kept.
//
// The admin of a cluster controls what its API server answers: with admission webhooks, with aggregated API servers,
// and with objects. A process that works with several clusters must protect its memory and its log against that.
//
// # Workflow
//
//	request ─► Limit ─► API server
//	                       │
//	success ◄── JSON only, limited by the kind of request (write, object, list) ◄──┤
//	failure ◄── the Status with its long texts cut, still valid JSON ◄─────────────┘
//	   │
//	   └► Brief: the part of client-go's error that is kept
//
// # Invariants
//
//   - Of an unsuccessful response, at most 64 KiB are read. At most 16 KiB are passed on, plus the brackets that
//     close the JSON.
//   - A successful response is read only if it is JSON. Scanner can estimate the decoded size of JSON, and of no
//     other format.
//   - A successful response has a size limit: 512 KiB after a write, 2 MiB for an object, and 8 MiB for a list. Its
//     estimated decoded size is limited to 2 MiB after a write, and to 16 MiB otherwise. Beyond these limits, reading
//     returns a TooLongError.
//   - Pages reads a list although some of its objects are large: after a TooLongError, it requests a smaller page.
//   - An unsuccessful response keeps its code and the beginning of its message. The beginning contains who denied
//     the request.
//   - This package does not limit a watch that works, because it has no end. Package watch limits what it reads.
package answer
