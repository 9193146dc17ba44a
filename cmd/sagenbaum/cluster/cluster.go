// Package cluster is `sagenbaum cluster`: the files of NATS servers that keep ledgers together.
package cluster

import (
	"cmp"
	_ "embed" // of the unit
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Command is `sagenbaum cluster` with all below it.
func Command(*cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "cluster",
		Short: "Write the files of a cluster of NATS servers and its hosts",
		Long: `Write the files of a cluster of NATS servers and its hosts. What runs is asked for
by 'sagenbaum host ls' and 'sagenbaum status'.`,
		Annotations: map[string]string{cli.Offline: ""},
		Example: `  sagenbaum cluster config cluster --server nats-1=192.0.2.1 --server nats-2=192.0.2.2 \
    --server nats-3=192.0.2.3 --host host-a --host host-b`,
	}, newConfig())
}

// layout is what a cluster has, in cluster.json of its folder.
type layout struct {
	Servers []server `json:"servers"`
	Hosts   []string `json:"hosts"`
	Tenants []string `json:"tenants"`
	// StoreDir is the folder of the servers' data, on the servers.
	StoreDir string `json:"store_dir,omitempty"`
}

// server is one NATS server: its name, and the address by which all others reach it.
type server struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// The ports of a server.
const (
	clientPort = 4222
	routePort  = 6222
)

// storeDefault is the folder of a server's data where no one says another.
const storeDefault = "/var/lib/nats"

// The files of a cluster's folder.
const (
	layoutFile = "cluster.json"
	usersFile  = "users"
	keysFolder = "keys"
)

// The users that a cluster has from the beginning, beside one for each host.
const (
	systemUser   = "system"
	operatorUser = "operator"
)

func newConfig() *cobra.Command {
	var servers, hosts, tenants []string
	var store string
	cmd := &cobra.Command{
		Use:   "config DIR",
		Short: "Write the configuration of three NATS servers and of the hosts that use them",
		Long: `Write the configuration of NATS servers, and of the hosts that use them, to a folder:

  SERVER/         nats.conf, accounts.conf and certificates of each server
  HOST/           host.env, credentials, keys and the systemd unit of each host
  operator.creds  an operator of all tenants
  users           who may connect; no secret
  ca.pem, ca.key  the authority that signs the certificates

TLS is used between servers, and by every client: the authority is in each file of
credentials. Nothing has a password. Keep the folder as you keep a master key.

Run it again without flags after 'user add --file DIR/users', or to renew certificates
a year before they end: servers, hosts, tenants, users and keys that are there are
kept. nats.conf, accounts.conf, host.env and the unit are written again: what you changed
in them is lost. With --server, --host or --tenant those are added; --store-dir
replaces what was given before.`,
		Example: `  sagenbaum cluster config cluster --server nats-1=192.0.2.1 --server nats-2=192.0.2.2 \
    --server nats-3=192.0.2.3 --host host-a --host host-b --tenant default
  sagenbaum user add coder --role agent --file cluster/users --out coder.creds
  sagenbaum cluster config cluster`,
		Args: cli.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f := folder{dir: args[0], now: time.Now()}
			err := f.read()
			if err != nil {
				return err
			}
			if f.StoreDir, err = f.store(store); err != nil {
				return err
			}
			if err := f.add(servers, hosts, tenants); err != nil {
				return err
			}
			if err := f.write(); err != nil {
				var refused *ledger.Refused
				if errors.As(err, &refused) {
					return cli.Fail(cli.ExitFailed, refused.Want, "cannot write the cluster: %s: %s",
						refused.Field, refused.Problem)
				}
				return cli.Failed("write the cluster", err)
			}
			f.explain(cmd)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&servers, "server", nil, "`NAME=ADDRESS` of a NATS server, a host name or an IP "+
		"address that servers and clients reach it by; give three")
	f.StringArrayVar(&hosts, "host", nil,
		"`NAME` of a host that runs sagenbaum serve; give two or more")
	f.StringArrayVar(&tenants, "tenant", nil, "`TENANT` that the hosts serve (default default)")
	f.StringVar(&store, "store-dir", "", "`DIR` of the servers' data, on the servers (default the "+
		"one that was given before, or "+storeDefault+")")
	return cmd
}

// unit is the systemd unit of a host.
//
//go:embed sagenbaum-host.service
var unit []byte

// folder is a cluster's folder.
type folder struct {
	dir string
	now time.Time
	layout
}

func (f *folder) path(elements ...string) string {
	return filepath.Join(append([]string{f.dir}, elements...)...)
}

func (f *folder) read() error {
	text, err := os.ReadFile(f.path(layoutFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &f.layout)
	}
	return cli.Failed("read "+f.path(layoutFile), err)
}

// storeLine is where nats.conf says it.
var storeLine = regexp.MustCompile(`(?m)^  store_dir: (".*")$`)

// store is the folder of the servers' data: the one that is given, or was before. A layout of an
// earlier version does not name it, and another one would be an empty store: it is read from what
// was written for the servers.
func (f *folder) store(given string) (string, error) {
	if given = cmp.Or(given, f.StoreDir); given != "" || len(f.Servers) == 0 {
		return cmp.Or(given, storeDefault), nil
	}
	for _, s := range f.Servers {
		text, err := os.ReadFile(f.path(s.Name, "nats.conf"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", cli.Failed("read the configuration of "+s.Name, err)
		}
		var said string
		if line := storeLine.FindSubmatch(text); line != nil {
			if said, err = strconv.Unquote(string(line[1])); err != nil {
				return "", cli.Failed("read the configuration of "+s.Name, err)
			}
		}
		if said == "" || given != "" && said != given {
			return "", cli.Fail(cli.ExitUsage, "--store-dir DIR, the folder that these servers have their "+
				"data in", "%s names no folder of the servers' data, and what was written for %s does not "+
				"say it", f.path(layoutFile), s.Name)
		}
		given = said
	}
	return given, nil
}

// add takes what flags name to what is there.
func (f *folder) add(servers, hosts, tenants []string) error {
	const token = ledger.TokenWanted
	for _, given := range servers {
		name, address, _ := strings.Cut(given, "=")
		at := slices.IndexFunc(f.Servers, func(s server) bool { return s.Name == name })
		switch {
		case !ledger.ValidToken(name):
			return cli.Fail(cli.ExitUsage, "--server NAME=ADDRESS with a name of "+token,
				"--server %.80q has no name", given)
		case !validAddress(address):
			return cli.Fail(cli.ExitUsage, "--server "+name+"=192.0.2.1, without a port",
				"--server %.80q has no address", given)
		case at >= 0 && f.Servers[at].Address == address:
		case slices.ContainsFunc(f.Servers, func(s server) bool { return s.Address == address }):
			return cli.Fail(cli.ExitUsage, "another address for each server",
				"another server has the address %s", address)
		case at >= 0:
			f.Servers[at].Address = address
		default:
			f.Servers = append(f.Servers, server{name, address})
		}
	}
	for _, list := range []struct {
		flag  string
		given []string
		to    *[]string
	}{{"host", hosts, &f.Hosts}, {"tenant", tenants, &f.Tenants}} {
		for _, name := range list.given {
			if !ledger.ValidToken(name) {
				return cli.Fail(cli.ExitUsage, "--"+list.flag+" of "+token, "--%s cannot be %.80q",
					list.flag, name)
			}
			if !slices.Contains(*list.to, name) {
				*list.to = append(*list.to, name)
			}
		}
	}
	if len(f.Tenants) == 0 {
		f.Tenants = []string{"default"}
	}
	return f.check()
}

// reservedNames are those of no server and no host: their files, folders or users are others'.
// A server's certificate is beside the authority's, under its name.
var reservedNames = []string{"ca", keysFolder, usersFile, systemUser, operatorUser}

func (f *folder) check() error {
	// Some file systems do not tell letters from capital ones.
	var folders []string
	for _, name := range f.Hosts {
		folders = append(folders, strings.ToLower(name))
	}
	for _, s := range f.Servers {
		folders = append(folders, strings.ToLower(s.Name))
	}
	slices.Sort(folders)
	reserved := func(name string) bool { return slices.Contains(reservedNames, name) }
	switch {
	case len(f.Servers) == 0 || len(f.Servers)%2 == 0:
		return cli.Fail(cli.ExitUsage, "--server NAME=ADDRESS three times, or five",
			"%s keep no majority better than one less",
			cli.CountOf(len(f.Servers), "NATS server"))
	case len(f.Hosts) == 0:
		return cli.Fail(cli.ExitUsage, "--host NAME, twice or more", "the cluster has no hosts")
	case len(slices.Compact(slices.Clone(folders))) != len(folders) ||
		slices.ContainsFunc(folders, reserved):
		return cli.Fail(cli.ExitUsage,
			"names that are used once, and not "+strings.Join(reservedNames, ", "),
			"servers and hosts are folders here: their names collide")
	}
	return nil
}

// validAddress takes an IP address or a host name (RFC 1123), without a port.
func validAddress(address string) bool {
	if net.ParseIP(address) != nil {
		return true
	}
	if address == "" || len(address) > 253 {
		return false
	}
	for label := range strings.SplitSeq(address, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz"+
			"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" || label[0] == '-' ||
			label[len(label)-1] == '-' {
			return false
		}
	}
	return true
}

// write writes all files; those that are there and hold are kept.
func (f *folder) write() error {
	if err := f.checkUsers(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f.layout, "", "  ")
	if err != nil {
		return err
	}
	if err := access.WriteSecret(f.path(layoutFile), append(text, '\n')); err != nil {
		return err
	}
	authority, err := access.OpenAuthority(f.dir, f.now)
	if err != nil {
		return err
	}
	users, err := f.users(authority)
	if err != nil {
		return err
	}
	for _, tenant := range f.Tenants {
		have, err := proof.Keys(f.path(keysFolder), tenant)
		if err == nil && len(have) == 0 {
			_, err = proof.NewKey(f.path(keysFolder), tenant)
		}
		if err != nil {
			return fmt.Errorf("cannot make a key that signs checkpoints: %w", err)
		}
	}
	tenants := access.TenantsOf(users, f.Tenants)
	accounts, err := access.Configuration{Tenants: tenants, Users: users}.Format(f.now)
	if err != nil {
		return err
	}
	for _, s := range f.Servers {
		if err := f.writeServer(s, authority, accounts); err != nil {
			return err
		}
	}
	for _, host := range f.Hosts {
		if err := f.writeHost(host); err != nil {
			return err
		}
	}
	return nil
}

// checkUsers refuses a host that has the name of a user with another role: its key would be
// replaced by one that the host has.
func (f *folder) checkUsers() error {
	directory, err := access.OpenDirectory(f.path(usersFile))
	if err != nil {
		return err
	}
	for _, host := range f.Hosts {
		u, err := directory.Find(access.AllTenants, host)
		if err == nil && u.Role != access.Host {
			return ledger.Refuse("host", fmt.Sprintf("%s is a user already, with role %s", host, u.Role),
				"--host with another name")
		}
	}
	return nil
}

// Beside finds the cluster that a file of users belongs to: the URLs of its servers and the
// certificate of its authority, which credentials of its users name; empty: none.
func Beside(users string) (urls, ca string) {
	f := folder{dir: filepath.Dir(users)}
	text, err := os.ReadFile(f.path("ca.pem"))
	if f.read() != nil || err != nil || len(f.Servers) == 0 {
		return "", ""
	}
	return f.urls(), string(text)
}

// urls are all servers, as clients name them.
func (f *folder) urls() string {
	var urls []string
	for _, s := range f.Servers {
		urls = append(urls, "tls://"+net.JoinHostPort(s.Address, fmt.Sprint(clientPort)))
	}
	return strings.Join(urls, ",")
}

// users makes the users that are missing, and returns all.
func (f *folder) users(authority *access.Authority) ([]access.User, error) {
	directory, err := access.OpenDirectory(f.path(usersFile))
	if err != nil {
		return nil, err
	}
	want := map[string]access.User{ // by the file of the credentials
		f.path("system.creds"):   {Name: systemUser, Role: access.System},
		f.path("operator.creds"): {Name: operatorUser, Role: access.Operator},
	}
	for _, host := range f.Hosts {
		want[f.path(host, "host.creds")] = access.User{Name: host, Role: access.Host, Provision: true}
	}
	for file, u := range want {
		u.Tenant, u.Created = access.AllTenants, f.now.UTC().Truncate(time.Second)
		have, err := directory.Find(u.Tenant, u.Name)
		found := err == nil
		creds, err := access.ReadCredentials(file)
		switch missing := errors.Is(fileError(file), fs.ErrNotExist); {
		case !missing && (err != nil || !found || creds.Key() != have.Key):
			return nil, ledger.Refuse(file, "it is not that of a user in "+f.path(usersFile),
				"the folder as it was written, or without that file: then it is made")
		case missing:
			if creds, err = access.NewCredentials(&u); err != nil {
				return nil, err
			}
			// The user first: without the file it gets another key the next time.
			if err := directory.Put(u); err != nil {
				return nil, err
			}
		default:
			u = have
		}
		creds.Servers, creds.CA = f.urls(), string(authority.PEM)
		text, err := creds.Format()
		if err == nil {
			err = access.WriteSecret(file, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return directory.Users(), nil
}

func fileError(path string) error {
	_, err := os.Stat(path)
	return err
}

// writeServer writes the folder of a NATS server.
func (f *folder) writeServer(s server, authority *access.Authority, accounts []byte) error {
	certificate, key, err := authority.Certificate(s.Name,
		[]string{s.Address, "localhost", "127.0.0.1"}, f.now)
	if err != nil {
		return err
	}
	files := map[string][]byte{"accounts.conf": accounts, "ca.pem": authority.PEM,
		"nats.conf": []byte(f.natsConf(s))}
	for name, from := range map[string]string{"server.pem": certificate, "server.key": key} {
		if files[name], err = os.ReadFile(from); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := access.WriteSecret(f.path(s.Name, name), text); err != nil {
			return err
		}
	}
	return nil
}

// natsConf is the configuration of a server. Its files are found in the folder that the server
// is started in.
func (f *folder) natsConf(s server) string {
	var w strings.Builder
	fmt.Fprintf(&w, `# Written by sagenbaum cluster config. Start it in this folder:
#   nats-server -c nats.conf
# After a change of accounts.conf, twice, a second apart: nats-server --signal reload
server_name: %q
listen: %q

tls { cert_file: "server.pem", key_file: "server.key", timeout: 5 }

jetstream {
  store_dir: %q
  # Without it a power cut loses records that were acknowledged. Every host asks for it and
  # refuses a server that has anything else.
  sync_interval: always
  # Requests with unknown fields are refused. Hosts refuse a server that has anything else.
  strict: true
}

cluster {
  name: sagenbaum
  listen: %q
  routes: [
`, s.Name, net.JoinHostPort(s.Address, fmt.Sprint(clientPort)), f.StoreDir,
		net.JoinHostPort(s.Address, fmt.Sprint(routePort)))
	for _, other := range f.Servers {
		if other.Name != s.Name {
			fmt.Fprintf(&w, "    %q\n",
				"nats-route://"+net.JoinHostPort(other.Address, fmt.Sprint(routePort)))
		}
	}
	w.WriteString(`  ]
  # A server that hangs is left after some nine seconds. Until then commands for workers that are
  # connected to it are lost; with the server's own limits that is more than a minute.
  ping_interval: "3s"
  ping_max: 2
  # Only who has a certificate of the authority is a server of this cluster.
  tls {
    cert_file: "server.pem", key_file: "server.key", ca_file: "ca.pem", verify: true, timeout: 5
  }
}

include accounts.conf
`)
	return w.String()
}

// writeHost writes the folder of a host. Its own credentials are there already.
func (f *folder) writeHost(name string) error {
	system, err := os.ReadFile(f.path("system.creds"))
	if err != nil {
		return err
	}
	if err := access.WriteSecret(f.path(name, "system.creds"), system); err != nil {
		return err
	}
	env := fmt.Sprintf("# The environment of sagenbaum-host.service, written by sagenbaum cluster "+
		"config.\nHOLDER=%s\nSAGENBAUM_NATS=%s\nREPLICAS=%d\nTENANTS=\"--tenant %s\"\n", name, f.urls(),
		min(len(f.Servers), 5), strings.Join(f.Tenants, " --tenant "))
	files := map[string][]byte{"host.env": []byte(env), "sagenbaum-host.service": unit}
	for file, text := range files {
		if err := access.WriteSecret(f.path(name, file), text); err != nil {
			return err
		}
	}
	for _, tenant := range f.Tenants {
		files, err := os.ReadDir(f.path(keysFolder, tenant))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(f.path(keysFolder, tenant, file.Name()))
			if err == nil {
				err = access.WriteSecret(f.path(name, keysFolder, tenant, file.Name()), text)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *folder) explain(cmd *cobra.Command) {
	var servers []string
	for _, s := range f.Servers {
		servers = append(servers, s.Name)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "servers   %s\nhosts     %s\ntenants   %s\n", strings.Join(servers, ", "),
		strings.Join(f.Hosts, ", "), strings.Join(f.Tenants, ", "))
	for _, tenant := range f.Tenants {
		keys, err := proof.Keys(f.path(keysFolder), tenant)
		if err == nil && len(keys) > 0 {
			fmt.Fprintf(out, "verifier  %s\n", keys[len(keys)-1].Verifier)
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "  next: copy %s to each server and start nats-server there; "+
		"copy %s to each host and do what its sagenbaum-host.service says\n", f.path(servers[0]),
		f.path(f.Hosts[0]))
}
