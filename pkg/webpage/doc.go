// Package webpage makes pages of summaries for a browser: the picture of one installation, and the tiles of a fleet. It
// is pure: the caller passes the time.
//
// # Workflow
//
//	summary.Reading ─► pictureOf (boxes and arrows with a state) ─┐
//	                ─► rows of tables ────────────────────────────┴─► page.html.tmpl ─► one file
//
// # Invariants
//
//   - A page is one file. It loads nothing: no script, no font, no image. Its content security policy permits its own
//     style sheet, by its hash, and nothing else.
//   - html/template escapes all text. Readings have printable text of limited length only (package summary).
//   - A state is a word and a color, never a color alone.
//   - The page is well-formed XML, so that a test can read all of it.
package webpage
