package answer

import (
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Limits for reading and passing on an unsuccessful response.
const (
	// failureRead is how many bytes are read. Normal failures have a few KiB; the denial of a webhook can have any
	// length.
	failureRead = 64 << 10
	// failureKept is how many bytes of that are passed on. A Status of this size names a hundred fields.
	failureKept = 16 << 10
	// literalKept is how much of one string in it is passed on. An escape sequence counts as one. Who denied a
	// request, and which RBAC permission is missing, is in the first KiB.
	literalKept = 2 << 10
	// otherKept is how many bytes are passed on of a response that is not JSON. client-go shows 2 KiB of plain text.
	otherKept = 2 << 10
)

// failureBody returns the limited body of an unsuccessful response.
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

// cutJSON reads JSON and cuts its long strings. If the source ends within a string, or if failureKept is reached, it
// closes the open brackets and adds the code. The beginning of a Status is then a valid Status.
type cutJSON struct {
	source io.Reader
	code   int

	raw  [4 << 10]byte
	out  []byte // bytes that are ready to read
	sent int    // number of bytes that were read or are ready
	err  error  // error with which the source ended

	open    []byte // closing brackets of the open brackets
	text    bool   // within a string
	length  int    // length of the current string, in bytes and escape sequences
	escape  []byte // current escape sequence; it is kept whole, or not at all
	escaped int    // missing bytes of the escape sequence
}

// Read reads the cut JSON.
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

// take processes one byte of the source.
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

// takeText processes one byte within a string.
func (c *cutJSON) takeText(b byte) {
	switch {
	case c.escaped == 0 && b == '"':
		c.endText()
		return
	case c.escaped == 0 && b == '\\':
		c.escaped = 2 // the backslash and the escaped byte
	case c.escaped == 1 && b == 'u' && len(c.escape) == 1:
		c.escaped = 5 // the u and four digits
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

// finish closes the open brackets. The result is valid JSON if the source ended after a value or within a string.
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
