package bundle

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strings"
)

// redacted replaces a text that looks like a credential.
const redacted = "<redacted>"

// longestString is the limit of a text in an object, in bytes. To search a longer one for credentials can take minutes,
// and a part of it could end within one. So it is replaced as a whole.
const longestString = 64 << 10

// tooLong replaces such a text.
const tooLong = "<redacted: more than 64 KiB>"

// deepest is how many encodings within each other are read. Deeper ones are redacted.
const deepest = 3

// credentials returns expressions that match credentials in any text. The first group is kept.
func credentials() []*regexp.Regexp {
	return []*regexp.Regexp{
		// A private key, up to the end of its block, or of the text.
		regexp.MustCompile(`()-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`),
		// A JSON Web Token, and the beginning of one.
		regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*`),
		// Credentials in a header.
		regexp.MustCompile(`(?i)(\b(?:bearer|basic|negotiate)\s+)[A-Za-z0-9+/=._~-]{6,}`),
		// The user in a URL.
		regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/@]+@`),
	}
}

// named returns an expression that matches credentials after a name.
func named() *regexp.Regexp {
	return regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|api[-_]?key|access[-_]?key)` +
		`\\?["']?[ \t]*[:=][ \t]*\\?["']?)[^\s"',;&}\\]{4,}`)
}

// sentence returns an expression that matches the part of a sentence that named would redact: "istiod's token: expired
// 5m ago", and "accepts the token: context deadline exceeded". It needs an article or a genitive before the name, and a
// word of these sentences or a duration after it. A setting has neither.
func sentence() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|\s)(?:the|[a-z]+''?s) token: (?:expired|context|(?:[0-9]{1,4}[a-z]){1,2}) [a-z0-9]`)
}

// redactor replaces credentials in the objects of an API server.
type redactor struct {
	expressions []*regexp.Regexp
	// named matches a credential after its name, and sentence where it does not.
	named, sentence *regexp.Regexp
	// encoded matches what can be base64.
	encoded *regexp.Regexp
}

func newRedactor() redactor {
	return redactor{credentials(), named(), sentence(), regexp.MustCompile(`[A-Za-z0-9+/_-]{24,}={0,2}`)}
}

// Redact returns a text without what looks like a credential.
func Redact(text string) string { return newRedactor().text(text, 0) }

// trim leaves out the managed fields of an object, which repeat names only, and kubectl's copy of the whole object. It
// replaces texts that are too long.
func trim(o map[string]any) {
	if metadata, is := o["metadata"].(map[string]any); is {
		delete(metadata, "managedFields")
		if annotations, is := metadata["annotations"].(map[string]any); is {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	shortened(o)
}

// shortened returns a value without texts that are too long. Maps and lists are changed in place.
func shortened(v any) any {
	switch v := v.(type) {
	case string:
		if len(v) > longestString {
			return tooLong
		}
	case []any:
		for i := range v {
			v[i] = shortened(v[i])
		}
	case map[string]any:
		for key, of := range v {
			if len(key) > longestString {
				delete(v, key)
				key = tooLong
			}
			v[key] = shortened(of)
		}
	}
	return v
}

// value returns a value without credentials. Maps and lists are changed in place.
func (r redactor) value(v any) any {
	switch v := v.(type) {
	case string:
		return r.text(v, 0)
	case []any:
		for i := range v {
			v[i] = r.value(v[i])
		}
	case map[string]any:
		r.entries(v)
	}
	return v
}

// entries redacts the values of a map. A pair of name and value is a header, or a variable of a container.
func (r redactor) entries(m map[string]any) {
	name, _ := m["name"].(string)
	for key, v := range m {
		if s, is := v.(string); is && s != "" && (isCredential(key) || key == "value" && isCredential(name)) {
			m[key] = redacted
			continue
		}
		clean := r.text(key, 0)
		if clean != key {
			delete(m, key)
		}
		m[clean] = r.value(v)
	}
}

// isCredential reports whether a field, a header or a variable has a credential by its name.
func isCredential(name string) bool {
	plain := strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
	exact := []string{"authorization", "proxyauthorization", "cookie", "setcookie"}
	ends := strings.Fields("password passwd passphrase pwd secret token apikey accesskey secretkey privatekey keydata credentials")
	return slices.Contains(exact, plain) || slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(plain, end) })
}

// text returns a text without credentials, also if they are encoded in it.
func (r redactor) text(s string, depth int) string {
	for _, expression := range r.expressions {
		s = expression.ReplaceAllString(s, "${1}"+redacted)
	}
	s = r.outsideSentences(s)
	return r.encoded.ReplaceAllStringFunc(s, func(part string) string {
		if r.isEncoded(part, depth) {
			return redacted
		}
		return part
	})
}

// outsideSentences returns a text without credentials after a name. Sentences about tokens stay.
func (r redactor) outsideSentences(s string) string {
	var out strings.Builder
	from := 0
	for _, at := range r.sentence.FindAllStringIndex(s, -1) {
		out.WriteString(r.named.ReplaceAllString(s[from:at[0]], "${1}"+redacted))
		from = at[1] - 1 // its last letter can begin a name
		out.WriteString(s[at[0]:from])
	}
	out.WriteString(r.named.ReplaceAllString(s[from:], "${1}"+redacted))
	return out.String()
}

// isEncoded reports whether a text is the base64 of a text with a credential.
func (r redactor) isEncoded(s string, depth int) bool {
	s = strings.TrimRight(s, "=")
	for cut := range 4 { // it can begin within other letters
		part := s[cut:]
		part = part[:len(part)/4*4]
		decoded, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil { // what both can decode is the same
			decoded, err = base64.RawURLEncoding.DecodeString(part)
		}
		if err != nil {
			continue
		}
		plain := string(decoded)
		if depth >= deepest && isPlain(plain) || depth < deepest && r.text(plain, depth+1) != plain {
			return true
		}
	}
	return false
}

// isPlain reports whether a text has printable ASCII characters and white space only.
func isPlain(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c > '~' || c < ' ' && c != '\n' && c != '\t' && c != '\r' })
}
