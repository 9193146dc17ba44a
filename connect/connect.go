// Package connect finds the server and the credentials of a program and connects to NATS with
// them, so that a program that uses Sagenbaum needs no settings on the machine where
// `sagenbaum serve` runs, and one file everywhere else.
//
//	nc, err := connect.Default(nats.Name("writer"))
//
// What it looks at: SAGENBAUM_CREDS (a file of `sagenbaum user add`); otherwise the context of
// SAGENBAUM_CONTEXT or of `sagenbaum context use`; otherwise the context that `serve` has made for
// the user who runs it. SAGENBAUM_SERVER counts more than the server that any of them names.
package connect

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
)

// ServerDefault is where `serve` listens when it is not told.
const ServerDefault = "nats://127.0.0.1:4222"

// Options are what credentials mean to a connection. tenant is the one that a user of all
// tenants wants to reach; access.AllTenants: none of them.
func Options(c access.Credentials, tenant string) ([]nats.Option, error) {
	pair, err := nkeys.FromSeed(c.Seed)
	if err != nil {
		return nil, ledger.Refuse("creds", "the seed is none: "+err.Error(), "a seed of a user")
	}
	key, err := pair.PublicKey()
	if err != nil {
		return nil, ledger.Refuse("creds", "the seed is none: "+err.Error(), "a seed of a user")
	}
	identity := nats.Nkey(key, pair.Sign)
	if c.JWT != "" {
		identity = nats.UserJWTAndSeed(c.JWT, string(c.Seed))
	}
	more, err := surroundings(c, tenant)
	return append([]nats.Option{identity}, more...), err
}

// surroundings are the options of credentials beside the identity of the user.
func surroundings(c access.Credentials, tenant string) (options []nats.Option, err error) {
	if c.Inbox != "" {
		options = append(options, nats.CustomInboxPrefix(c.Inbox))
	}
	if c.Role == access.Local && tenant != "" {
		options = append(options, nats.UserInfo(tenant, ""))
	}
	if c.CA != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(c.CA)) {
			return nil, ledger.Refuse("creds", "its authority is no certificate", "PEM")
		}
		options = append(options,
			nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}))
	}
	return options, nil
}

// File is Options of a file of credentials. Where it has a JWT, the file is read again at each
// reconnect, so that one that runs out can be replaced.
func File(path, tenant string) ([]nats.Option, access.Credentials, error) {
	c, err := access.ReadCredentials(path)
	if err != nil {
		return nil, c, err
	}
	if c.JWT == "" {
		options, err := Options(c, tenant)
		return options, c, err
	}
	more, err := surroundings(c, tenant)
	return append([]nats.Option{nats.UserCredentials(path)}, more...), c, err
}

// Default connects with what this program finds, and connects again for as long as the program
// runs; options may say otherwise (nats.MaxReconnects). It is closed for good all the same when the
// server refuses the credentials: Lost of coordinator.Coordinator and worker.Worker tells. Errors:
// *ledger.Refused for a context or a file of credentials that it cannot use, or those of the
// connection, with its server.
func Default(options ...nats.Option) (*nats.Conn, error) {
	found, err := find()
	if err != nil {
		return nil, fmt.Errorf("cannot connect: %w", err)
	}
	server := cmp.Or(os.Getenv("SAGENBAUM_SERVER"), found.Server)
	if found.NATS != "" && server == "" { // only commands read the contexts of the NATS CLI
		return nil, fmt.Errorf("cannot connect: %w", ledger.Refuse("context.nats",
			"server and credentials are those of the NATS CLI's context "+found.NATS,
			"a context with a server, or SAGENBAUM_SERVER"))
	}
	var own []nats.Option
	if found.Creds != "" {
		tenant := cmp.Or(os.Getenv("SAGENBAUM_TENANT"), found.Tenant)
		var c access.Credentials
		if own, c, err = File(found.Creds, tenant); err != nil {
			return nil, fmt.Errorf("cannot connect: %w", err)
		}
		server = cmp.Or(server, c.Servers)
	}
	if found.Inbox != "" {
		own = append(own, nats.CustomInboxPrefix(found.Inbox))
	}
	if ca := cmp.Or(os.Getenv("SAGENBAUM_TLS_CA"), found.TLSCA); ca != "" {
		own = append(own, nats.RootCAs(ca))
	}
	if cert := cmp.Or(os.Getenv("SAGENBAUM_CLIENT_CERT"), found.ClientCert); cert != "" {
		own = append(own, nats.ClientCert(cert,
			cmp.Or(os.Getenv("SAGENBAUM_CLIENT_KEY"), found.ClientKey)))
	}
	server = cmp.Or(server, ServerDefault)
	own = append([]nats.Option{nats.MaxReconnects(-1)}, own...)
	conn, err := nats.Connect(server, append(own, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", server, err)
	}
	return conn, nil
}

// find is the context of this program.
func find() (Saved, error) {
	if creds := os.Getenv("SAGENBAUM_CREDS"); creds != "" {
		return Saved{Creds: creds}, nil
	}
	if name := cmp.Or(os.Getenv("SAGENBAUM_CONTEXT"), Chosen()); name != "" {
		return Context(name)
	}
	c, _ := Local(cmp.Or(os.Getenv("SAGENBAUM_SERVER"), ServerDefault))
	return c, nil
}
