package serve

import (
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/connect"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// clustering is how `serve` shares tenants with other hosts on a NATS cluster.
type clustering struct {
	replicas    int
	holder      string
	leaseTTL    time.Duration
	systemCreds string
	systemNATS  string // URL with a user of the system account
}

func (v *clustering) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&v.replicas, "replicas", 1,
		"`N` NATS servers, 1 to 5, that keep each new ledger; 3 outlives the loss of one")
	f.StringVar(&v.holder, "holder", "",
		"`NAME` of this host, different on each host; the default is made at the first start "+
			"and kept in --data")
	f.DurationVar(&v.leaseTTL, "lease-ttl", jetstream.LeaseTTL,
		"`TIME`, whole seconds, after which another host takes over the tenants of one that is gone")
	f.StringVar(&v.systemCreds, "system-creds", "",
		"`FILE` with credentials of the external server's system account, to see that it syncs "+
			"every write")
	const system = "`URL` with a user of the external server's system account, where that has no " +
		"credentials file (env SAGENBAUM_SYSTEM_NATS)"
	f.StringVar(&v.systemNATS, "system-nats", os.Getenv("SAGENBAUM_SYSTEM_NATS"), system)
}

func (v *clustering) check(external bool) error {
	switch {
	case !external && (v.replicas != 1 || v.systemCreds != "" || v.systemNATS != ""):
		return cli.Fail(cli.ExitUsage, "drop them, or add --nats URL",
			"--replicas, --system-creds and --system-nats are for --nats")
	case v.replicas < 1 || v.replicas > jetstream.ReplicasMax:
		return cli.Fail(cli.ExitUsage, "--replicas 3", "--replicas cannot be %d", v.replicas)
	case v.holder != "" && !ledger.ValidToken(v.holder):
		return cli.Fail(cli.ExitUsage, "--holder of "+ledger.TokenWanted,
			"%q is no name of a host", v.holder)
	case v.leaseTTL < jetstream.LeaseTTLMin || v.leaseTTL > jetstream.LeaseTTLMax ||
		v.leaseTTL%time.Second != 0:
		return cli.Fail(cli.ExitUsage, "--lease-ttl of whole seconds, 1s to 1h",
			"--lease-ttl cannot be %v", v.leaseTTL)
	}
	return nil
}

// A connection that hangs, as behind a cable that is cut, is given up after this
// many pings without an answer, and another server of the cluster is tried.
const (
	pingEvery = 2 * time.Second
	pingsMax  = 2
)

// steadyOptions keep a host's connection for as long as the host runs.
func steadyOptions(name string, timeout time.Duration) []nats.Option {
	return []nats.Option{
		nats.Name(name), nats.Timeout(min(timeout, dialMax)), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsMax),
	}
}

// dialMax bounds one try to reach a server, when others may be there.
const dialMax = 2 * time.Second

// reconnectWait is between two tries of the same server.
const reconnectWait = 250 * time.Millisecond

// checkHost refuses credentials that are not a host's.
func checkHost(s *cli.Settings) error {
	if s.Creds == "" {
		return nil
	}
	c, err := access.ReadCredentials(s.Creds)
	if err != nil {
		return err
	}
	return cli.CheckRole("--creds", s.Creds, c, access.Host)
}

// system connects to the system account of an external server; nil when none was named.
func (v *clustering) system(external string, s *cli.Settings) (*nats.Conn, error) {
	options, err := s.Transport()
	if err != nil {
		return nil, err
	}
	options = append(options, steadyOptions("sagenbaum system", s.Timeout)...)
	url := v.systemNATS
	switch {
	case v.systemCreds != "":
		own, c, err := connect.File(v.systemCreds, "")
		if err != nil {
			return nil, cli.Fail(cli.ExitFailed,
				"--system-creds: a file that is there and that only you can read",
				"cannot use %s: %v", v.systemCreds, err)
		}
		if err := cli.CheckRole("--system-creds", v.systemCreds, c, access.System); err != nil {
			return nil, err
		}
		options = append(options, own...)
		if url == "" {
			url = external
		}
	case url == "":
		return nil, nil
	}
	conn, err := nats.Connect(url, options...)
	switch {
	case err == nil:
		return conn, nil
	case cli.NotLetIn(err):
		return nil, cli.Fail(cli.ExitNotAllowed,
			"a user of the system account: --system-creds FILE or --system-nats URL",
			"%s does not let us into the system account: %v", cli.Shown(url), err)
	}
	return nil, cli.Fail(cli.ExitNoServer, serversNext, "no server at %s: %v", cli.Shown(url), err)
}

// serversNext is what to do where no server of --nats is there. A host does not wait for them: its
// unit starts it again, and whoever has written a wrong address is told.
const serversNext = "start the NATS servers, and then this host again, as its unit of systemd " +
	"does; or --nats URL of servers that run"
