package answer

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// How much of an answer that is not a success is read, and handed on.
const (
	// failureRead is how much is read. Honest failures have a few KiB; a webhook's denial may have any length.
	failureRead = 64 << 10
	// failureKept is how much of that is handed on. A Status of this size names a hundred fields.
	failureKept = 16 << 10
	// literalKept is how much of one text in it is handed on. Who denied a request, and what RBAC lacks, stands in its first KiB.
	literalKept = 2 << 10
	// otherKept is how much is handed on of what is not JSON. client-go shows 2 KiB of plain text.
	otherKept = 2 << 10
)

// failureBody is the body of an answer that is not a success, bounded.
func failureBody(response *http.Response) io.ReadCloser {
	if !strings.Contains(response.Header.Get("Content-Type"), "json") {
		return readCloser{io.LimitReader(response.Body, otherKept), response.Body}
	}
	return readCloser{&cutJSON{source: io.LimitReader(response.Body, failureRead), code: response.StatusCode}, response.Body}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// cutJSON reads JSON with its long texts cut. Where the source ends within a text, or more was handed on than failureKept, it closes what
// is open, so that the beginning of a Status is one, and says the code.
type cutJSON struct {
	source io.Reader
	code   int

	raw  [4 << 10]byte
	out  []byte // what is ready
	sent int    // how much was handed on, or is ready
	err  error  // what the source ended with

	open    []byte // the brackets that are open, each as the one that closes it
	text    bool   // within a text
	length  int    // of the text so far
	escape  []byte // the escape sequence that has begun; it is kept whole, or not at all
	escaped int    // how many bytes of it are missing
}

// Read reads what is left of the JSON.
func (c *cutJSON) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		n, err := c.source.Read(c.raw[:])
		for _, b := range c.raw[:n] {
			if c.sent >= failureKept {
				err = io.EOF
				break
			}
			c.take(b)
		}
		if c.err = err; err == io.EOF {
			c.finish()
		}
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *cutJSON) put(s string) {
	c.out = append(c.out, s...)
	c.sent += len(s)
}

func (c *cutJSON) putByte(b byte) {
	c.out = append(c.out, b)
	c.sent++
}

// take takes one byte of the source.
func (c *cutJSON) take(b byte) {
	if c.text {
		c.takeText(b)
		return
	}
	switch b {
	case '"':
		c.text, c.length = true, 0
	case '{':
		c.open = append(c.open, '}')
	case '[':
		c.open = append(c.open, ']')
	case '}', ']':
		c.open = c.open[:max(len(c.open)-1, 0)]
	}
	c.putByte(b)
}

// takeText takes one byte within a text.
func (c *cutJSON) takeText(b byte) {
	switch {
	case c.escaped == 0 && b == '"':
		c.endText()
		return
	case c.escaped == 0 && b == '\\':
		c.escaped = 2 // itself, and what it escapes
	case c.escaped == 1 && b == 'u' && len(c.escape) == 1:
		c.escaped = 5 // itself, and four digits
	}
	if c.escape = append(c.escape, b); c.escaped > 0 {
		c.escaped--
	}
	if c.escaped > 0 {
		return
	}
	if c.length < literalKept {
		c.put(string(c.escape))
	}
	c.escape = c.escape[:0]
	c.length++
}

func (c *cutJSON) endText() {
	if c.length > literalKept {
		c.put("...")
	}
	c.putByte('"')
	c.text, c.escape, c.escaped = false, nil, 0
}

// finish closes what is open. It is valid JSON if a value ended here, or was a text.
func (c *cutJSON) finish() {
	if len(c.open) == 0 {
		return
	}
	if c.text {
		c.length = literalKept + 1
		c.endText()
	}
	for len(c.open) > 1 {
		c.putByte(c.open[len(c.open)-1])
		c.open = c.open[:len(c.open)-1]
	}
	if c.open[0] == '}' {
		c.put(`,"code":` + strconv.Itoa(c.code))
	}
	c.putByte(c.open[0])
	c.open = nil
}
