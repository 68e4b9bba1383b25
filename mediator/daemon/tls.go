package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"vgpud/mediator/access"
)

// TLSConfig is the API's listener for other hosts. Every client must have a certificate.
type TLSConfig struct {
	// Address is a TCP address, such as :9837; empty means that there is no such listener.
	Address string `yaml:"address,omitempty"`
	// Cert and Key are PEM files with the daemon's certificates and its key.
	Cert string `yaml:"cert,omitempty"`
	Key  string `yaml:"key,omitempty"`
	// ClientCA is a PEM file with the authorities that sign clients' certificates.
	ClientCA string `yaml:"client_ca,omitempty"`
}

// check returns an error if a setting is missing.
func (c *TLSConfig) check() error {
	if *c == (TLSConfig{}) {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("address %q: want an address and a port, such as :9837: %w", c.Address, err)
	}
	for name, value := range map[string]string{"cert": c.Cert, "key": c.Key, "client_ca": c.ClientCA} {
		if value == "" {
			return fmt.Errorf("%s: want a PEM file, since there is an address", name)
		}
	}
	return nil
}

// Load reads the certificates and returns how the listener uses them.
func (c *TLSConfig) Load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	if err != nil {
		return nil, fmt.Errorf("tls: read cert %s and key %s: %w", c.Cert, c.Key, err)
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls: read client_ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: client_ca %s has no certificate in PEM", c.ClientCA)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS13,
		// Only HTTP/1: requests of one HTTP/2 connection would not be counted.
		NextProtos: []string{"http/1.1"},
		// A session must not outlive the authorities that it was verified by.
		SessionTicketsDisabled: true,
	}, nil
}

// loadTLS reads the certificates of the listener, if there is one.
func (s *Service) loadTLS(c *TLSConfig) error {
	if c.Address == "" {
		return nil
	}
	config, err := c.Load()
	if err != nil {
		return err
	}
	s.tls.Store(config)
	return nil
}

// listenTLS opens the listener for other hosts. Each connection has the certificates that were read
// last.
func (s *Service) listenTLS(address string) (net.Listener, error) {
	if s.tls.Load() == nil {
		return nil, errors.New("listen for API requests over TLS: no certificates were read")
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for API requests over TLS: %w", err)
	}
	return tls.NewListener(access.Limit(l), &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.tls.Load(), nil },
	}), nil
}
