package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// HasCAs reports whether a CA bundle has all the certificates of another.
func HasCAs(bundle, wanted []byte) bool {
	if bytes.Equal(bundle, wanted) {
		return true
	}
	have, want := Certificates(bundle), Certificates(wanted)
	return len(want) > 0 && !slices.ContainsFunc(want, func(der []byte) bool { return !contains(have, der) })
}

// OverlapCAs returns the CA bundle for istiod while wanted replaces before. The guest's API server can still serve a
// certificate of the old CA then, so the bundle keeps what is not expired of before. The next renewal finds all of
// wanted and drops the rest.
func OverlapCAs(before, wanted []byte, now time.Time) []byte {
	if HasCAs(before, wanted) {
		return wanted
	}
	out, have := slices.Clone(wanted), Certificates(wanted)
	for _, der := range Certificates(before) {
		cert, err := x509.ParseCertificate(der)
		if err != nil || now.After(cert.NotAfter) || contains(have, der) {
			continue
		}
		if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
			out = append(out, '\n')
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: CertificateBlock, Bytes: der})...)
		have = append(have, der)
	}
	return out
}

// CertificateBlock is the type of a certificate's PEM block.
const CertificateBlock = "CERTIFICATE"

// Certificates returns the certificates of a PEM bundle, as DER.
func Certificates(bundle []byte) [][]byte {
	var out [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == CertificateBlock {
			out = append(out, block.Bytes)
		}
	}
	return out
}

// CanonicalCAs returns the same bytes for all bundles with the same certificates. A bundle without any is returned
// unchanged.
func CanonicalCAs(bundle []byte) []byte {
	all := Certificates(bundle)
	if len(all) == 0 {
		return bundle
	}
	slices.SortFunc(all, bytes.Compare)
	return bytes.Join(slices.CompactFunc(all, bytes.Equal), nil)
}

func contains(all [][]byte, der []byte) bool {
	return slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(der, other) })
}
