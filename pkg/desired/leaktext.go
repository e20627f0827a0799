package desired

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"strconv"
	"strings"
	"unicode"
)

const (
	// maxUnwrappings is how many encodings, one in another, are undone.
	maxUnwrappings = 6
	// shortestRun is the shortest text that is taken for base64. A secret of the shortest length is longer in it.
	shortestRun = 10
)

// in finds a secret in a text: as it is; over several lines; and, in any order, six times over, in base64 of both alphabets from any character
// on, and behind the escapes of JSON, YAML and URLs. It returns what was found.
func (s secrets) in(text string) string { return s.unwrap(text, maxUnwrappings) }

func (s secrets) unwrap(text string, depth int) string {
	if len(text) < shortest {
		return ""
	}
	if what := s.plain(text); what != "" || depth == 0 {
		return what
	}
	texts := []string{text}
	if joined := withoutSpace(text); joined != text {
		if what := s.plain(joined); what != "" {
			return what
		}
		texts = append(texts, joined)
	}
	for _, text := range texts {
		for _, run := range strings.FieldsFunc(text, notBase64) {
			if what := s.unwrapRun(run, depth); what != "" {
				return what
			}
		}
	}
	if strings.ContainsAny(text, `\%`) {
		return s.unwrap(unescape(text), depth-1)
	}
	return ""
}

// unwrapRun decodes a run of base64 characters from each of its first four on: what is before the encoding may look like a part of it.
func (s secrets) unwrapRun(run string, depth int) string {
	if len(run) < shortestRun {
		return ""
	}
	if decoded, err := hex.DecodeString(run); err == nil {
		if what := s.unwrap(string(decoded), depth-1); what != "" {
			return what
		}
	}
	run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
	for offset := range 4 {
		part := run[offset:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1] // six bits are no byte
		}
		decoded, err := base64.RawStdEncoding.DecodeString(part)
		if err != nil {
			continue
		}
		if what := s.unwrap(string(decoded), depth-1); what != "" {
			return what
		}
	}
	return ""
}

// plain finds a secret in a text as it is.
func (s secrets) plain(text string) string {
	for _, secret := range s {
		for _, form := range secret.forms {
			if secret.word && containsWord(text, form) || !secret.word && strings.Contains(text, form) {
				return secret.what
			}
		}
	}
	return ""
}

// containsWord finds a word that no letter or digit precedes or follows.
func containsWord(text, word string) bool {
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

func notBase64(r rune) bool {
	return r > unicode.MaxASCII || !isAlphanumeric(byte(r)) && !strings.ContainsRune("+/-_", r)
}

func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// unescape undoes the escapes of JSON, of YAML's double quotes, and of URLs, wherever they are: what nests text in text need not be whole.
func unescape(text string) string {
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
		out.WriteByte(byte(code))
	} else {
		out.WriteRune(rune(code))
	}
	return escape + digits - 1
}

// keyForms are what gives a private key away: the lines of its PEM, and the secret numbers in it, which are in every other encoding of the
// key too.
func keyForms(data []byte) []string {
	var out []string
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == certificateBlock {
			continue
		}
		out = append(append(out, pemLines(block)...), secretNumbers(block.Bytes)...)
	}
	if len(out) == 0 {
		out = append(out, strings.TrimSpace(string(data)))
	}
	return out
}

// certificateForms are what gives certificates away: the lines of their PEM, and their DER.
func certificateForms(bundles ...[]byte) []string {
	var out []string
	for _, bundle := range bundles {
		for _, der := range certificates(bundle) {
			out = append(append(out, pemLines(&pem.Block{Type: certificateBlock, Bytes: der})...), string(der))
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
