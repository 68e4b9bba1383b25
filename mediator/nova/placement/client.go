package placement

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"

	"vgpud/mediator/statefile"
)

// microversion of Placement's API: consumers' generations (1.28) are the newest that is needed.
// reserved may equal total since 1.26, and providers have parents since 1.14.
const microversion = "1.28"

// maxAnswer bounds an answer, in bytes. A tree of a thousand providers has a third of that.
const maxAnswer = 4 << 20

// Client asks Placement. It gets a token from Keystone at the first request and again when that one
// has expired. It is safe for concurrent use.
type Client struct {
	config Config
	http   http.Client

	mu      sync.Mutex
	service *gophercloud.ServiceClient // nil before the first token
}

// New returns a client. It sends nothing yet.
func New(c Config) (*Client, error) {
	t := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: c.Timeout}).DialContext,
		ResponseHeaderTimeout: c.Timeout,
		TLSHandshakeTimeout:   c.Timeout,
		MaxIdleConns:          2,
		IdleConnTimeout:       2 * c.Heartbeat,
	}
	if c.CAFile != "" {
		pem, err := statefile.Read(c.CAFile, maxFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file %s has no certificate", c.CAFile)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return NewWith(c, t), nil
}

// NewWith is [New] over another transport, for tests.
func NewWith(c Config, t http.RoundTripper) *Client {
	return &Client{config: c, http: http.Client{Transport: bounded{t}, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a redirection would carry the token elsewhere
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// bounded bounds answers.
type bounded struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = limited{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

type limited struct {
	io.Reader
	io.Closer
}

// connect returns a client of Placement with a token.
func (c *Client) connect(ctx context.Context) (*gophercloud.ServiceClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.service != nil {
		return c.service, nil
	}
	s, err := c.authenticate(ctx)
	if err != nil {
		return nil, err
	}
	s.Type, s.Microversion = "placement", microversion
	c.service = s
	return s, nil
}

func (c *Client) authenticate(ctx context.Context) (*gophercloud.ServiceClient, error) {
	k := &c.config.Keystone
	if k.URL == "" {
		p := &gophercloud.ProviderClient{HTTPClient: c.http}
		p.UseTokenLock()
		p.SetToken("admin") // what noauth2 takes
		return &gophercloud.ServiceClient{ProviderClient: p, Endpoint: withSlash(c.config.Endpoint)}, nil
	}
	options := gophercloud.AuthOptions{IdentityEndpoint: k.URL, AllowReauth: true}
	var err error
	if k.ApplicationCredential != "" {
		options.ApplicationCredentialID = k.ApplicationCredential
		options.ApplicationCredentialSecret, err = secret("secret_file", k.SecretFile)
	} else {
		options.Username, options.DomainName = k.Username, k.UserDomain
		options.Scope = &gophercloud.AuthScope{ProjectName: k.Project, DomainName: k.ProjectDomain}
		options.Password, err = secret("password_file", k.PasswordFile)
	}
	if err != nil {
		return nil, err
	}
	p, err := openstack.NewClient(k.URL)
	if err != nil {
		return nil, fmt.Errorf("keystone.url: %w", err)
	}
	p.HTTPClient = c.http
	if err := openstack.AuthenticateV3(ctx, p, &options, gophercloud.EndpointOpts{}); err != nil {
		return nil, c.explainKeystone(err)
	}
	endpoint := c.config.Endpoint
	if endpoint == "" {
		opts := gophercloud.EndpointOpts{Type: "placement", Region: k.Region, Availability: gophercloud.Availability(k.Interface)}
		opts.ApplyDefaults("placement")
		if endpoint, err = p.EndpointLocator(opts); err != nil {
			return nil, fmt.Errorf("the catalog of Keystone has no %s endpoint of Placement in region %q: want one, or `endpoint` in the configuration: %w", k.Interface, k.Region, err)
		}
	}
	return &gophercloud.ServiceClient{ProviderClient: p, Endpoint: withSlash(endpoint)}, nil
}

func withSlash(s string) string { return strings.TrimSuffix(s, "/") + "/" }

// explainKeystone says what to do if there is no token.
func (c *Client) explainKeystone(err error) error {
	k := &c.config.Keystone
	who := "the user " + k.Username
	if k.ApplicationCredential != "" {
		who = "the application credential " + k.ApplicationCredential
	}
	switch {
	case gophercloud.ResponseCodeIs(err, http.StatusUnauthorized):
		return fmt.Errorf("Keystone on %s does not know %s with this password: see keystone in the configuration: %w", k.URL, who, ErrDenied)
	case gophercloud.ResponseCodeIs(err, http.StatusForbidden):
		return fmt.Errorf("Keystone on %s refuses %s: %w", k.URL, who, ErrDenied)
	}
	return fmt.Errorf("get a token from Keystone on %s: %w", k.URL, brief(err))
}

// brief returns an error without the URL and the body of an answer, which may be a whole page.
func brief(err error) error {
	if e, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err); ok {
		return fmt.Errorf("it answers %d: %.200s", e.Actual, strings.Join(strings.Fields(string(e.Body)), " "))
	}
	return err
}
