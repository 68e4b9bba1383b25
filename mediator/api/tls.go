package api

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"
)

// DefaultTLSPort is the port of the daemon's listener for other hosts where an address has none.
const DefaultTLSPort = "9837"

// TLSFiles are the PEM files of a client over TLS: its certificate and key, and the authorities that
// sign the daemon's certificate. Without CA, those of the system count.
type TLSFiles struct{ Cert, Key, CA string }

// NewTLSClient returns a client of the daemon whose TLS listener is at a host and port. It reads the
// files, and connects at the first request.
func NewTLSClient(address string, f TLSFiles) (*Client, error) {
	cert, err := f.load()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13}
	if f.CA != "" {
		if config.RootCAs, err = f.authorities(); err != nil {
			return nil, err
		}
	}
	return &Client{
		where: "https://" + address, base: "https://" + address, tls: &tlsIdentity{files: f, leaf: cert.Leaf},
		http: http.Client{Transport: &http.Transport{TLSClientConfig: config}},
	}, nil
}

// load reads the certificate and its key. The error names the file that is wrong.
func (f *TLSFiles) load() (tls.Certificate, error) {
	fail := func(err error) (tls.Certificate, error) { return tls.Certificate{}, err }
	certPEM, err := os.ReadFile(f.Cert)
	if err != nil {
		return fail(fmt.Errorf("read the client's certificate: %w", err))
	}
	keyPEM, err := os.ReadFile(f.Key)
	if err != nil {
		return fail(fmt.Errorf("read the key of the client's certificate: %w", err))
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return fail(fmt.Errorf("client's certificate %s with key %s: %w", f.Cert, f.Key, err))
	}
	return cert, nil
}

// authorities reads the authorities of the daemon's certificate.
func (f *TLSFiles) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of the daemon's certificate: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM", f.CA)
	}
	return authorities, nil
}

// tlsIdentity is what a client over TLS shows and trusts, for messages.
type tlsIdentity struct {
	files TLSFiles
	leaf  *x509.Certificate
}

// explain says which of the two certificates is wrong, and what would be right, if a request to the
// daemon at where has failed for one of them.
func (t *tlsIdentity) explain(where string, err error) error {
	unknown, isUnknown := errors.AsType[x509.UnknownAuthorityError](err)
	name, isName := errors.AsType[x509.HostnameError](err)
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, isPlain := errors.AsType[tls.RecordHeaderError](err)
	op, isOp := errors.AsType[*net.OpError](err)
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case isUnknown:
		return fmt.Errorf("the daemon's certificate on %s is not signed by an authority of %s; name the file with its authority (--ca): %w", where, cmp.Or(t.files.CA, "this system"), unknown)
	case isName:
		return fmt.Errorf("the daemon's certificate on %s is for another name; use one that it has, or give the daemon a certificate for this one: %w", where, name)
	case isInvalid:
		return fmt.Errorf("the daemon's certificate on %s is not valid: %w", where, invalid)
	case isPlain, errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%s does not speak TLS; want the address and port of tls.address in the daemon's configuration: %w", where, err)
	case isDNS:
		return fmt.Errorf("no host for %s: %w", where, dns)
	case isOp && op.Op == "remote error":
		return fmt.Errorf("the daemon on %s refuses the client's certificate %s; want one for clients that an authority of its tls.client_ca has signed: %w", where, t.shown(), op.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon listens on %s; tls.address of its configuration says where it does: %w", where, err)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("%s has closed the connection; it may refuse the client's certificate %s: %w", where, t.shown(), err)
	}
	return fmt.Errorf("ask the daemon on %s: %w", where, err)
}

// shown returns the client's certificate for messages: its file, its subject, and whether it is out
// of date.
func (t *tlsIdentity) shown() string {
	s := fmt.Sprintf("%s (%s", t.files.Cert, t.leaf.Subject)
	switch now := time.Now(); {
	case now.After(t.leaf.NotAfter):
		s += ", expired on " + t.leaf.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(t.leaf.NotBefore):
		s += ", valid only from " + t.leaf.NotBefore.UTC().Format(time.RFC3339) + " on"
	}
	return s + ")"
}
