package leak

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// shortest is the minimum length of a byte string that is searched for.
const shortest = 8

// Secrets are byte strings that a guest must not contain. Secrets is safe for concurrent use.
type Secrets struct {
	mu      sync.Mutex
	atoms   map[string]atom
	skipped map[string]bool
	index   *index
}

// atom is a byte string that reveals a secret.
type atom struct {
	name string
	// word means that a match counts only if no letter or digit is next to it.
	word bool
}

// NewSecrets returns an empty set.
func NewSecrets() *Secrets { return &Secrets{atoms: map[string]atom{}, skipped: map[string]bool{}} }

// Add adds a value of any kind: text, a PEM bundle, a token or a kubeconfig. It leaves out the public parts, which
// are certificates and public keys.
func (s *Secrets) Add(name string, value []byte) {
	for _, secret := range secretsIn(value) {
		s.add(name, secret, false)
	}
}

// AddName adds a name or an address.
func (s *Secrets) AddName(what, value string) { s.add(what, []byte(value), true) }

// AddCertificates adds certificates, which Add would leave out as public.
func (s *Secrets) AddCertificates(what string, bundle []byte) {
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		s.add(what, cert.Signature, false)
		// The earlier lines may be equal to those of another certificate (names, times). The last full line contains
		// the signature.
		if lines := fullLines(block); len(lines) > 0 {
			s.add(what, []byte(lines[len(lines)-1]), false)
		}
	}
}

func (s *Secrets) add(name string, value []byte, word bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(value) == 0:
	case len(value) < shortest:
		s.skipped[fmt.Sprintf("%s (%d bytes)", name, len(value))] = true
	default:
		if _, known := s.atoms[string(value)]; !known {
			s.atoms[string(value)], s.index = atom{name, word}, nil
		}
	}
}

// Skipped returns the names of the values that are too short for a search.
func (s *Secrets) Skipped() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.skipped))
}

// Names returns the names of all values that are searched for.
func (s *Secrets) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, a := range s.atoms {
		names[a.name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

var (
	jwt       = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.([A-Za-z0-9_-]{20,})`)
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/]{64,}={0,2}`)
)

// secretsIn returns the byte strings that reveal a value: the value itself, unless it is public, the keys in it, and
// the tokens in it with their signatures.
func secretsIn(value []byte) [][]byte {
	rest, keys := takePEM(value)
	rest = bytes.TrimSpace(rest)
	if len(rest) == 0 && len(keys) == 0 {
		return nil // entirely public
	}
	out := append([][]byte{bytes.TrimSpace(value)}, keys...)
	for _, match := range jwt.FindAllSubmatch(value, -1) {
		out = append(out, match[0], match[1])
	}
	for _, run := range base64Run.FindAll(rest, -1) {
		if decoded, err := base64.StdEncoding.DecodeString(string(run)); err == nil && bytes.Contains(decoded, []byte("-----BEGIN ")) {
			out = append(out, secretsIn(decoded)...)
		}
	}
	return out
}

// takePEM removes PEM blocks from a value. It returns the rest, and the byte strings that reveal the keys among the
// blocks.
func takePEM(value []byte) (rest []byte, keys [][]byte) {
	for {
		begin := bytes.Index(value, []byte("-----BEGIN "))
		if begin < 0 {
			return append(rest, value...), keys
		}
		block, after := pem.Decode(value[begin:])
		if block == nil {
			return append(rest, value...), keys
		}
		rest, value = append(rest, value[:begin]...), after
		if block.Type == "CERTIFICATE" || block.Type == "PUBLIC KEY" {
			continue
		}
		keys = append(keys, block.Bytes)
		for _, line := range fullLines(block) {
			keys = append(keys, []byte(line))
		}
		keys = append(keys, secretNumber(block.Bytes)...)
	}
}

// fullLines returns the full lines of a PEM block.
func fullLines(block *pem.Block) []string {
	var out []string
	for line := range strings.Lines(string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))) {
		if line = strings.TrimSpace(line); len(line) == 64 && !strings.HasPrefix(line, "-") {
			out = append(out, line)
		}
	}
	return out
}

func secretNumber(der []byte) [][]byte {
	var key any
	if ec, err := x509.ParseECPrivateKey(der); err == nil {
		key = ec
	} else if pkcs1, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		key = pkcs1
	} else if pkcs8, err := x509.ParsePKCS8PrivateKey(der); err == nil {
		key = pkcs8
	}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		if scalar, err := key.Bytes(); err == nil {
			return [][]byte{scalar}
		}
	case *rsa.PrivateKey:
		return [][]byte{key.D.Bytes(), key.Primes[0].Bytes(), key.Primes[1].Bytes()}
	}
	return nil
}
