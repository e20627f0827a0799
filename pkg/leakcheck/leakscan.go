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
	// maxUnwrappings is how many nested encodings are decoded.
	maxUnwrappings = 6
	// shortestRun is the length of the shortest text that is decoded: base64 of a name of ShortestName bytes.
	shortestRun = 11
)

// Find searches a text, and everything that can be decoded from it. It returns the description of the first secret, or
// an empty string.
func (s Secrets) Find(text string) string {
	for plain := range unwrapped(text, maxUnwrappings) {
		if description := s.findPlain(plain); description != "" {
			return description
		}
	}
	return ""
}

// unwrapped returns all texts that can be decoded from a text:
//   - the text itself
//   - the text without white space
//   - what the text contains in base64 (both alphabets, from any character on) or in hexadecimal digits
//   - the text without the escapes of JSON, YAML and URLs
//
// Decoded texts are decoded again, up to depth times.
func unwrapped(text string, depth int) iter.Seq[string] {
	return func(yield func(string) bool) { unwrap(text, depth, yield) }
}

// unwrap yields the texts of unwrapped. It returns false if yield returned false.
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

// unwrapRuns decodes each run of base64 characters in a text.
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

// unwrapRun decodes a run of base64 characters, starting at each of its first four characters. Characters before the
// encoded text can look like a part of it.
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
			part = part[:len(part)-1] // six bits are not a byte
		}
		decoded := make([]byte, base64.RawStdEncoding.DecodedLen(len(part)))
		if n, err := base64.RawStdEncoding.Decode(decoded, part); err == nil && !unwrap(string(decoded[:n]), depth-1, yield) {
			return false
		}
	}
	return true
}

// findPlain searches a text without decoding it. It returns the description of the first secret, or an empty string.
func (s Secrets) findPlain(text string) string {
	for _, secret := range s {
		for _, pattern := range secret.patterns {
			if secret.wholeWord && ContainsWord(text, pattern) || !secret.wholeWord && strings.Contains(text, pattern) {
				return secret.description
			}
		}
	}
	return ""
}

// ContainsWord reports whether a text contains a word without a letter or digit directly before or after it.
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

// unescape decodes the escapes of JSON, of double-quoted YAML, and of URLs, wherever they are. The text does not have
// to be a complete document of any of these formats.
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

// writeCode writes the character of an escape at the beginning of text: escape bytes, then its number in hexadecimal
// digits. It returns how many bytes it consumed after the first one. If there is no such number, it writes the first
// byte unchanged.
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

// keyPatterns returns the patterns that reveal a private key: the lines of its PEM, and its secret numbers, which every
// other encoding of the key also contains.
func keyPatterns(data []byte) []string {
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

// certificatePatterns returns the patterns that reveal certificates: their signatures, which are unique.
func certificatePatterns(bundles ...[]byte) []string {
	var out []string
	for _, bundle := range bundles {
		for _, der := range pki.Certificates(bundle) {
			pattern := der
			if cert, err := x509.ParseCertificate(der); err == nil {
				pattern = cert.Signature
			}
			out = append(out, string(pattern))
		}
	}
	return out
}

// pemLines returns the lines of a PEM block's body that are long enough to be unique.
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

// secretNumbers returns the secret numbers of an encoded private key. If the encoding is not known, it returns der
// itself.
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
