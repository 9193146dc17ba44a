package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// LocalName is what a console on a loopback address answers to. Browsers take every name
// below localhost for this machine. A cookie belongs to a host and not to a port: one of
// 127.0.0.1 goes to every other server there, one of this name to none that does not
// use it.
const LocalName = "sagenbaum.localhost"

// place is where a console listens, and by which name.
type place struct {
	name  string   // that requests name, without a certificate
	hosts []string // to listen on
	port  string
}

// placeOf reads an address to listen on. The error is a *ledger.Refused.
func placeOf(listen string) (place, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		problem := fmt.Sprintf("%q is no address to listen on", listen)
		return place{}, ledger.Refuse("listen", problem, "HOST:PORT, as in 127.0.0.1:4280")
	}
	both := []string{"127.0.0.1", "::1"} // a browser tries one, then the other
	switch {
	case host == "127.0.0.1", host == "::1", host == "localhost":
		return place{LocalName, both, port}, nil
	case belowLocalhost(host):
		return place{strings.ToLower(host), both, port}, nil
	}
	return place{host, []string{host}, port}, nil
}

// belowLocalhost reports whether a name is one that never leaves this machine.
func belowLocalhost(name string) bool {
	return strings.HasSuffix(strings.ToLower(name), ".localhost")
}

// here reports whether the place can be reached from this machine only.
func (p place) here() bool {
	ip := net.ParseIP(p.hosts[0])
	return ip != nil && ip.IsLoopback()
}

// portTries bounds how often a free port is looked for that is free on both addresses.
const portTries = 20

// listen listens on all hosts of a place, on one port. Who has another one of them could
// answer a browser in the console's name, so that all are taken or none.
func (p place) listen() (all []net.Listener, port string, err error) {
	for range portTries {
		all, port, err = p.listenOnce()
		if err == nil || p.port != "0" {
			break
		}
	}
	return all, port, err
}

func (p place) listenOnce() (all []net.Listener, port string, err error) {
	port = p.port
	for i, host := range p.hosts {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if i > 0 && errors.Is(err, syscall.EADDRNOTAVAIL) || i > 0 && noSuchFamily(err) {
			continue // this machine has no IPv6, or no IPv4
		}
		if err != nil {
			closeAll(all)
			return nil, "", err
		}
		all = append(all, listener)
		port = strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	}
	return all, port, nil
}

func noSuchFamily(err error) bool { return errors.Is(err, syscall.EAFNOSUPPORT) }

func closeAll(all []net.Listener) {
	for _, listener := range all {
		_ = listener.Close()
	}
}

// misdirected answers a request that names another host. Who used an address of this
// machine is shown where the console is; a name that is made to point here learns nothing.
func (s *Server) misdirected(w http.ResponseWriter, name string) {
	ip := net.ParseIP(strings.Trim(name, "[]"))
	if name != "localhost" && (ip == nil || !ip.IsLoopback()) || s.leaf != nil {
		http.Error(w, "This console does not answer to that name.", http.StatusMisdirectedRequest)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusMisdirectedRequest)
	const text = "<!doctype html><title>Sagenbaum</title><p>The console is at <a href=%q>%s</a>.\n"
	fmt.Fprintf(w, text, s.URL(), s.URL())
}

// DialContext connects as browsers do: a name below localhost is this machine. For
// clients in Go, whose resolver may ask elsewhere.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil && belowLocalhost(host) {
		address = net.JoinHostPort("localhost", port)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, network, address)
}
