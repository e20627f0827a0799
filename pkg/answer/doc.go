// Package answer bounds what is read and kept of an API server's answers.
//
// The admin of a cluster decides what its API server answers: by admission webhooks, by aggregated API servers, by objects. A process that
// works with several clusters must not pay for that with its memory or its log.
//
//	request ─► Limit ─► API server
//	                       │
//	success ◄── JSON alone, limited by what is asked for (a write, an object, a list) ◄──┤
//	failure ◄── the Status with its long texts cut, still valid JSON ◄───────────────────┘
//	   │
//	   └► Brief: what is kept of the error that client-go makes of it
//
// # Invariants
//
//   - Of an answer that is not a success no more than 64 KiB are read, and no more than 16 KiB handed on.
//   - A success is read only if it is JSON: Scanner estimates what JSON takes once it is decoded, and nothing else.
//   - Of a success no more is read than 512 KiB after a write, 2 MiB for an object and 8 MiB for a list; and no more than
//     takes 2 MiB after a write, and 16 MiB otherwise, once it is decoded. Beyond that, reading is a TooLongError.
//   - A failure keeps its code, and the beginning of its message: that is what says who denied a request.
//   - Watches that work are not limited here: they have no end, and package watch bounds what they show.
package answer
