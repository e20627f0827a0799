package leakcheck

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"iter"
	"strconv"
	"strings"
	"unicode"

	"github.com/hypergate/hypergate/pkg/pki"
)

const (
	// maxUnwrappings is how many encodings, one in another, are undone.
	maxUnwrappings = 6
	// shortestRun is the shortest text that is taken for an encoding: of a name of the shortest length.
	shortestRun = 11
)

// Find finds a secret in a text, or in what it is an encoding of, and says which it is.
func (s Secrets) Find(text string) string {
	for plain := range unwrapped(text, maxUnwrappings) {
		if what := s.plain(plain); what != "" {
			return what
		}
	}
	return ""
}

// unwrapped are all texts that can be read out of a text: the text; without white space, where it has some; and, over and over, what is
// in it in base64 (of both alphabets, from any character on), in hexadecimal digits, and behind the escapes of JSON, YAML and URLs.
func unwrapped(text string, depth int) iter.Seq[string] {
	return func(yield func(string) bool) { unwrap(text, depth, yield) }
}

func unwrap(text string, depth int, yield func(string) bool) bool {
	if len(text) < ShortestName {
		return true
	}
	if !yield(text) {
		return false
	}
	if depth == 0 {
		return true
	}
	if !unwrapRuns(text, depth, yield) {
		return false
	}
	if joined := withoutSpace(text); joined != text && (!yield(joined) || !unwrapRuns(joined, depth, yield)) {
		return false
	}
	unescaped := unescape(text)
	return unescaped == text || unwrap(unescaped, depth-1, yield)
}

// unwrapRuns decodes each run of base64 characters.
func unwrapRuns(text string, depth int, yield func(string) bool) bool {
	for begin := 0; begin < len(text); {
		end := begin
		for end < len(text) && isBase64(text[end]) {
			end++
		}
		if end-begin >= shortestRun && !unwrapRun(text[begin:end], depth, yield) {
			return false
		}
		begin = end + 1
	}
	return true
}

// unwrapRun decodes a run from each of its first four characters on: what is before the encoding may look like a part of it.
func unwrapRun(run string, depth int, yield func(string) bool) bool {
	if decoded, err := hex.DecodeString(run); err == nil && !unwrap(string(decoded), depth-1, yield) {
		return false
	}
	standard := []byte(run)
	for i, c := range standard {
		switch c {
		case '-':
			standard[i] = '+'
		case '_':
			standard[i] = '/'
		}
	}
	for offset := range 4 {
		part := standard[offset:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1] // six bits are no byte
		}
		decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(part)))
		if n, err := base64.RawStdEncoding.Decode(decoded, part); err == nil && !unwrap(string(decoded[:n]), depth-1, yield) {
			return false
		}
	}
	return true
}

// plain finds a secret in a text as it is.
func (s Secrets) plain(text string) string {
	for _, c := range s {
		for _, form := range c.forms {
			if c.word && ContainsWord(text, form) || !c.word && strings.Contains(text, form) {
				return c.description
			}
		}
	}
	return ""
}

// ContainsWord finds a word that no letter or digit precedes or follows.
func ContainsWord(text, word string) bool {
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		begin, end := from+i, from+i+len(word)
		if (begin == 0 || !isAlphanumeric(text[begin-1])) && (end == len(text) || !isAlphanumeric(text[end])) {
			return true
		}
		from = begin + 1
	}
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isBase64(c byte) bool { return isAlphanumeric(c) || c == '+' || c == '/' || c == '-' || c == '_' }

func withoutSpace(text string) string {
	if !strings.ContainsAny(text, " \t\r\n") {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, text)
}

// unescape undoes the escapes of JSON, of YAML's double quotes, and of URLs, wherever they are: what nests text in text need not be whole.
func unescape(text string) string {
	if !strings.ContainsAny(text, `\%`) {
		return text
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '%':
			i += writeCode(&out, text[i:], 1, 2)
		case text[i] != '\\' || i+1 == len(text):
			out.WriteByte(text[i])
		case text[i+1] == 'u':
			i += writeCode(&out, text[i:], 2, 4)
		case text[i+1] == 'x':
			i += writeCode(&out, text[i:], 2, 2)
		case strings.IndexByte("nrt\n", text[i+1]) >= 0:
			out.WriteByte('\n')
			i++
		default:
			out.WriteByte(text[i+1])
			i++
		}
	}
	return out.String()
}

// writeCode writes the character whose number is written in hexadecimal digits behind an escape, and says how much of the text behind the
// first byte it stood for. What is no such number stays.
func writeCode(out *strings.Builder, text string, escape, digits int) int {
	if len(text) < escape+digits {
		out.WriteByte(text[0])
		return 0
	}
	code, err := strconv.ParseUint(text[escape:escape+digits], 16, 32)
	if err != nil {
		out.WriteByte(text[0])
		return 0
	}
	if digits == 2 {
		out.WriteByte(byte(code)) //nolint:gosec // two digits
	} else {
		out.WriteRune(rune(code)) //nolint:gosec // four digits
	}
	return escape + digits - 1
}

// keyForms are what gives a private key away: the lines of its PEM, and the secret numbers in it, which are in every other encoding of the
// key too.
func keyForms(data []byte) []string {
	var out []string
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == pki.CertificateBlock {
			continue
		}
		out = append(append(out, pemLines(block)...), secretNumbers(block.Bytes)...)
	}
	if len(out) == 0 {
		out = append(out, strings.TrimSpace(string(data)))
	}
	return out
}

// certificateForms are what gives certificates away: their signatures, which no two have in common.
func certificateForms(bundles ...[]byte) []string {
	var out []string
	for _, bundle := range bundles {
		for _, der := range pki.Certificates(bundle) {
			form := der
			if cert, err := x509.ParseCertificate(der); err == nil {
				form = cert.Signature
			}
			out = append(out, string(form))
		}
	}
	return out
}

// pemLines are the lines of a PEM block's body that are long enough to be nobody else's.
func pemLines(block *pem.Block) []string {
	const long = 32
	var out []string
	for line := range strings.Lines(string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))) {
		if line = strings.TrimSpace(line); len(line) >= long && !strings.HasPrefix(line, "-----") {
			out = append(out, line)
		}
	}
	return out
}

// secretNumbers are those of an encoded private key, or all of what is no known encoding.
func secretNumbers(der []byte) []string {
	key, err := x509.ParsePKCS8PrivateKey(der)
	if ec, ecErr := x509.ParseECPrivateKey(der); ecErr == nil {
		key, err = ec, nil
	}
	if pkcs1, rsaErr := x509.ParsePKCS1PrivateKey(der); rsaErr == nil {
		key, err = pkcs1, nil
	}
	if err != nil {
		return []string{string(der)}
	}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if scalar, err := key.Bytes(); err == nil {
			return []string{string(scalar)}
		}
	case *rsa.PrivateKey:
		out := []string{string(key.D.Bytes())}
		for _, prime := range key.Primes {
			out = append(out, string(prime.Bytes()))
		}
		return out
	case ed25519.PrivateKey:
		return []string{string(key.Seed())}
	}
	return []string{string(der)}
}
