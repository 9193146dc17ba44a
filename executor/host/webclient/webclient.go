// Package webclient is how a host speaks HTTP to others: to the webhooks of owners and to
// the witness of a ledger.
package webclient

import (
	"errors"
	"net"
	"net/http"
	"net/url"
)

// New makes a client. A redirect is an answer like any other that is not 2xx: a request
// goes where the operator has configured it.
func New() *http.Client {
	return &http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// OnThisMachine reports whether a host of a URL is this machine, by its name or address.
func OnThisMachine(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

// WithoutURL is an error of a client without the URL, which often holds a secret.
func WithoutURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
