// Package accesstest has an authority that signs certificates, for tests of the API over TLS.
package accesstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. It writes them, and its own as ca.pem, into a directory.
type Authority struct {
	// Cert is its own certificate.
	Cert *x509.Certificate

	tb  testing.TB
	dir string
	key *ecdsa.PrivateKey
}

// NewAuthority returns an authority that writes into a directory, which must exist.
func NewAuthority(tb testing.TB, dir string) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, dir: dir}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.Cert, a.key = a.sign("ca", template, template)
	return a
}

// File returns the path of a file in its directory.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Issue writes a certificate whose common name is name, for servers at 127.0.0.1 and for clients, to
// NAME.pem, and its key to NAME.key. It is valid for an hour.
func (a *Authority) Issue(name string, serial int64) {
	a.tb.Helper()
	a.IssueUntil(name, serial, time.Now().Add(time.Hour))
}

// IssueUntil is [Authority.Issue] for a certificate that expires at end.
func (a *Authority) IssueUntil(name string, serial int64, end time.Time) {
	a.tb.Helper()
	a.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotAfter: end, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert)
}

// sign writes a certificate and its key to NAME.pem and NAME.key. Without a key of the authority's
// own, the certificate signs itself.
func (a *Authority) sign(name string, template, parent *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	by := a.key
	if by == nil {
		by = own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, by)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(a.File(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.tb.Fatal(err)
		}
	}
	return cert, own
}
