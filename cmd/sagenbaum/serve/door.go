package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/door"
	"github.com/sagenbaum/sagenbaum/executor/host/webclient"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// opening is how `serve` lets agents in any language in, over NATS and over HTTP. The listener
// outlives the embedded server, which may be started again.
type opening struct {
	http       string // HOST:PORT or off
	httpChosen bool   // an operator has chosen that
	httpCert   string
	httpKey    string

	web     *door.Web // nil: none
	webURL  string
	webOnce bool // it was tried

	mu    sync.Mutex
	close func() // ends the door of this host; nil: none
}

// HTTPOff is the value of --http that serves none.
const (
	httpDefault = "127.0.0.1:4270"
	HTTPOff     = "off"
)

const httpUsage = "`HOST:PORT|off` of the door over HTTP for agents in any language; port 0 " +
	"takes a free one, an address that others can reach needs --http-cert and --http-key"

func (o *opening) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.http, "http", httpDefault, httpUsage)
	f.StringVar(&o.httpCert, "http-cert", "", "PEM `FILE` of the certificate of --http")
	f.StringVar(&o.httpKey, "http-key", "", "PEM `FILE` of that certificate's key")
}

func (o *opening) check(external bool) error {
	const hint = "--http 127.0.0.1:4270, or --http off"
	host, _, err := net.SplitHostPort(o.http)
	switch {
	case o.http == HTTPOff:
		return nil
	case err != nil:
		return cli.Fail(cli.ExitUsage, hint, "%q is no address for --http", o.http)
	case external && o.httpChosen:
		return cli.Fail(cli.ExitUsage, "drop it: --http is for the embedded server",
			"--http needs users that this process knows, and those of --nats are the server's")
	case (o.httpCert == "") != (o.httpKey == ""):
		return cli.Fail(cli.ExitUsage, "--http-cert FILE --http-key FILE",
			"--http-cert and --http-key go together")
	case !webclient.OnThisMachine(host) && o.httpCert == "":
		return cli.Fail(cli.ExitUsage, hint+", or --http-cert FILE --http-key FILE",
			"cannot serve the door over HTTP: %s can be reached from the network without TLS", o.http)
	}
	return nil
}

// startWeb listens for the door over HTTP, once. That another server of this machine has the
// default address is no reason not to serve.
func (v *serving) startWeb(log *slog.Logger) error {
	if v.http == HTTPOff || v.webOnce {
		return nil
	}
	v.webOnce = true
	listener, err := net.Listen("tcp", v.http)
	switch {
	case err != nil && !v.httpChosen:
		log.Warn("no door over HTTP: its address is taken; choose another with --http, or --http off",
			"cause", err)
		return nil
	case err != nil:
		return cli.Fail(cli.ExitFailed, "--http 127.0.0.1:0 takes a free port",
			"cannot listen for --http: %v", err)
	}
	var pair tls.Certificate
	if v.httpCert != "" {
		if pair, err = tls.LoadX509KeyPair(v.httpCert, v.httpKey); err != nil {
			listener.Close()
			return cli.Fail(cli.ExitUsage, "--http-cert and --http-key: PEM files that fit each other",
				"cannot serve the door over HTTP: %v", err)
		}
		listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12})
	}
	config := door.WebConfig{Version: cli.ReadVersion().Version, Logger: log}
	if v.directory != nil {
		config.Users = v.directory
	}
	v.web = door.NewWeb(config)
	v.webURL = v.doorURL(listener.Addr(), pair.Leaf)
	v.web.Run(listener)
	log.Info("door", "url", v.webURL)
	if v.directory != nil { // a full disk is no reason not to serve
		v.local.Door = v.webURL
		if err := v.writeLocal(); err != nil {
			log.Warn("the credentials of this user name no door", "cause", err)
		}
	}
	return nil
}

// doorURL is the address of the door over HTTP that credentials get, with the host as an operator
// has named it. A wildcard is no address to send a token to: instead of it there is a name that
// the certificate has, or that of this machine.
func (o *opening) doorURL(listens net.Addr, certificate *x509.Certificate) string {
	scheme := "http"
	if certificate != nil {
		scheme = "https"
	}
	_, port, _ := net.SplitHostPort(listens.String()) // of a listener, which has both
	host, _, _ := net.SplitHostPort(o.http)           // see check
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if name, err := os.Hostname(); err == nil && name != "" {
			host = name
		}
		if certificate != nil {
			for _, name := range certificate.DNSNames {
				if name != "localhost" && !strings.Contains(name, "*") {
					host = name
					break
				}
			}
		}
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

func (v *serving) closeWeb() {
	if v.web != nil {
		v.web.Close()
	}
}

// openDoor serves agents through this host until shutDoor, or not at all where ctx has ended.
// conn is in the hub, and connect leads to a tenant.
func (v *serving) openDoor(ctx context.Context, conn *nats.Conn,
	connect func(tenant string) (*nats.Conn, error), log *slog.Logger) error {
	if connect == nil {
		return nil
	}
	v.opening.mu.Lock()
	defer v.opening.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	d := door.New(door.Config{Connect: connect, Logger: log,
		Serves: func(tenant string) bool { return slices.Contains(v.living(), tenant) }})
	silence, err := d.Serve(conn)
	if err != nil {
		d.Close()
		return fmt.Errorf("cannot open the door: %w", err)
	}
	detach := func() {}
	if v.web != nil {
		detach = v.web.Attach(d)
	}
	v.opening.close = func() { detach(); silence(); d.Close() }
	return nil
}

// shutDoor ends the door of this host. ctx of openDoor has ended.
func (v *serving) shutDoor() {
	v.opening.mu.Lock()
	defer v.opening.mu.Unlock()
	if v.opening.close != nil {
		v.opening.close()
		v.opening.close = nil
	}
}
