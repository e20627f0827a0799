package pki

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"time"
)

// HasCAs says whether a CA bundle has all the certificates of another.
func HasCAs(bundle, wanted []byte) bool {
	if bytes.Equal(bundle, wanted) {
		return true
	}
	have, want := Certificates(bundle), Certificates(wanted)
	return len(want) > 0 && !slices.ContainsFunc(want, func(der []byte) bool { return !contains(have, der) })
}

// OverlapCAs is the CA bundle for istiod where before stood the one and now holds the other. While a CA is replaced, the guest's API server may
// still serve a certificate of the old one, so what is not expired of it is kept; the next renewal, which finds all that is wanted, drops it.
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

const CertificateBlock = "CERTIFICATE"

// Certificates are what a PEM bundle holds of them.
func Certificates(bundle []byte) [][]byte {
	var out [][]byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == CertificateBlock {
			out = append(out, block.Bytes)
		}
	}
	return out
}

// CanonicalCAs is the same for all bundles of the same certificates. One without any is left as it is.
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
