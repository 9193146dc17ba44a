// Package serve is `sagenbaum serve`: the NATS server and the executor in one process.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host"
	"github.com/sagenbaum/sagenbaum/executor/host/inprocess"
	"github.com/sagenbaum/sagenbaum/executor/host/proof"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream/embedded"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/process"
)

// serving is what `serve` was asked to do.
type serving struct {
	data      string
	listen    string
	tenants   []string
	named     bool // --tenant was given
	known     atomic.Pointer[[]string]
	external  string // URL of a NATS server that runs elsewhere; empty: embedded
	noSync    bool
	lossy     bool
	tiles     string // folder of the second copies of the ledgers; empty: in data
	keys      string // folder of the keys that sign checkpoints; empty: in data
	witness   proof.Witness
	maxStore  int64
	maxMemory int64 // bytes of facts of one tenant; 0: no limit
	maxBlobs  int64 // bytes of blobs of one tenant
	clock     *host.Clock
	tlsCert   string
	tlsKey    string
	clientCA  string
	webhooks  []string // [HOOK=][FORMAT+]URL
	secret    string   // file of the webhooks' keys; empty: in data
	stuck     time.Duration
	sign      time.Duration
	escalate  time.Duration
	verbose   bool
	logs      string // format of the log
	stopOnEOF bool
	mcp       []string // files of MCP clients
	undos     UndosRun // of those files
	cascade   executor.CascadeLimits
	watch     Watching
	clustering
	consoling
	keeping
	admitting
	opening
}

// Command is `sagenbaum serve` with all below it; undos serves those of --mcp.
func Command(s *cli.Settings, undos Undos) *cobra.Command {
	v := new(serving)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a NATS server with JetStream and the executor",
		Long: `Run a NATS server with JetStream and the executor in this process. All data is in one
folder, and nothing else needs to be installed. With --nats or --context the executor
uses a NATS server that runs elsewhere. Stop it with an interrupt; kill -9 is safe too.

It listens on this machine only, and accepts no connection without credentials. The
first start makes credentials for the user who runs it, and every command finds them;
make others with 'sagenbaum user add'. On another address it uses TLS, with a
certificate that it makes unless --tls-cert and --tls-key name one.

When JetStream stops answering after a write error, for example because the disk was
full, the embedded server is restarted on the same folder.`,
		Example: `  sagenbaum serve
  sagenbaum serve --data /var/lib/sagenbaum --tenant default --tenant second
  sagenbaum serve --listen 0.0.0.0:4222
  sagenbaum serve --mcp ~/project/.mcp.json
  sagenbaum serve --webhook https://pager.example.com/hook --webhook payments=https://pager.example.com/payments
  sagenbaum serve --nats nats://nats.example.com:4222 --creds host.creds --system-creds sys.creds
  sagenbaum serve --context cluster --replicas 3 --holder host-a --system-creds sys.creds`,
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := v.elsewhere(s, cmd); err != nil {
				return err
			}
			v.httpChosen = cmd.Flags().Changed("http")
			if err := v.check(); err != nil {
				return err
			}
			if err := v.takeUndos(undos); err != nil {
				return err
			}
			v.chosen, v.named = cmd.Flags().Changed("console"), cmd.Flags().Changed("tenant")
			ctx := cmd.Context()
			if v.stopOnEOF {
				var cancel context.CancelFunc
				ctx, cancel = process.UntilInputEnds(ctx, cmd.InOrStdin())
				defer cancel()
			}
			return cli.Failed("serve", serve(ctx, cmd, s, v))
		},
	}
	v.flags(cmd)
	return cmd
}

// elsewhere finds the server of --nats, or of a context that was named.
func (v *serving) elsewhere(s *cli.Settings, cmd *cobra.Command) error {
	switch named, err := s.Named(cmd); {
	case err != nil:
		return err
	case named && v.external != "":
		return cli.Fail(cli.ExitUsage, "one of the two", "--context names a server, and so does --nats")
	case named:
		v.external = s.Server
	case v.external != "":
		s.Server = v.external
	}
	return nil
}

// DataDefault is the data folder where no one says another.
const DataDefault = "sagenbaum-data"

// flags adds the flags of serve.
func (v *serving) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.data, "data", DataDefault, "`DIR` of all data; made if missing")
	f.StringVar(&v.listen, "listen", "127.0.0.1:4222",
		"`HOST:PORT` of the embedded server; port 0 takes a free one")
	f.StringArrayVar(&v.tenants, "tenant", []string{"default"},
		"`TENANT` to make if there is none of that name; 'tenant add' makes one without a "+
			"restart; may be given more than once")
	f.StringVar(&v.external, "nats", os.Getenv("SAGENBAUM_NATS"),
		"`URL` of a NATS server that runs elsewhere, instead of the embedded one (env "+
			"SAGENBAUM_NATS, which keeps a password out of the list of processes)")
	f.BoolVar(&v.noSync, "no-sync", false,
		"acknowledge before the disk has synced: faster, and a power cut LOSES acknowledged records")
	f.BoolVar(&v.lossy, "accept-lossy-broker", false,
		"use an external server that may lose acknowledged records when the power fails")
	f.Int64Var(&v.maxStore, "max-store", 0,
		"most `BYTES` that all ledgers may use; 0 is three quarters of the disk")
	f.Int64Var(&v.maxMemory, "memory-bytes", memoryDefault,
		"`BYTES` of facts that each tenant keeps in working memory; 0 is no limit")
	f.Int64Var(&v.maxBlobs, "blob-bytes", host.BlobBytesDefault,
		"most `BYTES` that the blobs of each tenant may use")
	f.StringVar(&v.tiles, "tiles", "",
		"`DIR` of the second copy of each ledger, best on another disk (default "+
			"DATA/executor/tiles)")
	f.StringVar(&v.keys, "keys", "",
		"`DIR` of the keys that sign checkpoints (default DATA/executor/keys)")
	f.StringVar(&v.witness.URL, "witness", "",
		"`URL` of a C2SP tlog-witness that cosigns checkpoints; nothing waits for it")
	f.StringVar(&v.witness.Key, "witness-key", "", "`VERIFIER-KEY` of its cosignatures")
	v.admitting.flags(cmd)
	f.StringVar(&v.tlsCert, "tls-cert", "",
		"PEM `FILE` of the embedded server's certificate; one is made where none is given and "+
			"others can reach the server")
	f.StringVar(&v.tlsKey, "tls-key", "", "PEM `FILE` of that certificate's key")
	f.StringVar(&v.clientCA, "tls-client-ca", "",
		"PEM `FILE`: clients must show a certificate signed by it")
	v.workFlags(cmd)
	v.clustering.flags(cmd)
	v.watch.flags(cmd)
	f.StringVar(&v.logs, "log", logText, "`FORMAT` of the log on stderr: text or json")
	v.consoling.flags(cmd)
	v.opening.flags(cmd)
	for _, name := range []string{"nats", "system-nats"} { // the environment may hold a password
		f.Lookup(name).DefValue = ""
	}
	f.BoolVarP(&v.verbose, "verbose", "v", false, "log more")
	f.BoolVar(&v.stopOnEOF, "stop-on-eof", false,
		"stop when standard input ends, for a program that starts a server of its own")
}

// workFlags adds what goes for pages, keys and cascades.
func (v *serving) workFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&v.webhooks, "webhook", nil,
		"`[HOOK=][slack+|teams+]URL` that pages are posted to: those of one hook, or of every "+
			"hook without one of its own; may be given more than once")
	f.StringVar(&v.secret, "webhook-secret", "",
		"`FILE` of the secrets that sign what is posted: whsec_ and base64, one per line, after the "+
			"name of a hook if it is for that one alone (default DATA/webhook.secret, made if missing)")
	f.DurationVar(&v.escalate, "page-escalate", 15*time.Minute,
		"after this `TIME` a page that no one has taken is also sent to the hook operators")
	f.DurationVar(&v.stuck, "stuck-after", 10*time.Minute,
		"page the hook operators when an undo has had no worker for this `TIME`, or one that "+
			"only reports that it is still working")
	f.DurationVar(&v.sign, "sign-after", 10*time.Second,
		"sign a checkpoint at most this `TIME` after a record that none covers, if not sooner")
	f.StringArrayVar(&v.mcp, "mcp", nil,
		"`FILE` of an MCP client: undo what gateways of its servers have done, as 'sagenbaum mcp "+
			"worker' does; or the folder --state of gateways, for the servers of files that it "+
			"remembers, while no gateway of them runs; may be given more than once")
	v.keeping.flags(f)
	f.Uint32Var(&v.cascade.Depth, "cascade-depth", executor.CascadeDepthDefault,
		"at most `N` leases, 1 to 64, may fire in a chain because of what undos changed; the "+
			"next waits for its plan's owner")
	f.Uint32Var(&v.cascade.Plan, "cascade-plan", executor.CascadePlanDefault,
		"at most `N` leases of one plan may fire because of what undos changed, until its owner "+
			"answers")
	f.Uint64Var(&v.cascade.Tenant, "cascade-tenant", executor.CascadeTenantDefault,
		"at most `N` leases of a tenant may fire in an hour because of what undos changed")
}

// memoryDefault is the capacity of a tenant's working memory, in bytes.
const memoryDefault = 256 << 20

func (v *serving) check() error {
	if v.data == "" {
		return cli.Fail(cli.ExitUsage, "--data "+DataDefault, "--data names no folder")
	}
	for i, tenant := range v.tenants {
		if !ledger.ValidToken(tenant) {
			return cli.Fail(cli.ExitUsage, "--tenant of "+ledger.TokenWanted,
				"%.80q is no tenant", tenant)
		}
		for _, other := range v.tenants[:i] {
			if other == tenant {
				return cli.Fail(cli.ExitUsage, "name each tenant once", "tenant %s is given twice",
					tenant)
			}
		}
	}
	if v.external != "" &&
		(v.noSync || v.tlsCert != "" || v.tlsKey != "" || v.clientCA != "" ||
			v.maxStore != 0) {
		return cli.Fail(cli.ExitUsage, "configure the external server itself",
			"--no-sync, --max-store and --tls-* are for the embedded server, not for "+
				"--nats")
	}
	if v.external == "" && v.lossy {
		return cli.Fail(cli.ExitUsage, "drop it, or add --nats URL",
			"--accept-lossy-broker is for --nats")
	}
	if err := errors.Join(v.admitting.check(v.external != ""), v.opening.check(v.external != ""),
		v.clustering.check(v.external != "")); err != nil {
		return err
	}
	if err := cli.OneOf("log", v.logs, logText, cli.OutputJSON); err != nil {
		return err
	}
	switch {
	case v.stuck <= 0:
		return cli.Fail(cli.ExitUsage, "--stuck-after 10m", "--stuck-after cannot be %s", v.stuck)
	case v.sign <= 0:
		return cli.Fail(cli.ExitUsage, "--sign-after 10s", "--sign-after cannot be %s", v.sign)
	case v.escalate <= 0:
		return cli.Fail(cli.ExitUsage, "--page-escalate 15m", "--page-escalate cannot be %s",
			v.escalate)
	case v.maxMemory < 0:
		return cli.Fail(cli.ExitUsage, "--memory-bytes BYTES, or 0 for no limit",
			"--memory-bytes cannot be %d", v.maxMemory)
	case v.maxBlobs <= 0:
		return cli.Fail(cli.ExitUsage, "--blob-bytes BYTES", "--blob-bytes cannot be %d", v.maxBlobs)
	case v.maxStore < 0:
		return cli.Fail(cli.ExitUsage, "--max-store BYTES, or 0 for three quarters of the disk",
			"--max-store cannot be %d", v.maxStore)
	case (v.tlsCert == "") != (v.tlsKey == ""):
		return cli.Fail(cli.ExitUsage, "--tls-cert FILE --tls-key FILE",
			"--tls-cert and --tls-key go together")
	}
	if err := errors.Join(v.checkCascade(), v.consoling.check()); err != nil {
		return err
	}
	if err := v.watch.check(); err != nil {
		return err
	}
	var refused *ledger.Refused
	if err := proof.CheckWitness(v.witness); errors.As(err, &refused) {
		return cli.Fail(cli.ExitUsage,
			"--witness URL and --witness-key KEY go together; "+refused.Want,
			"the witness cannot be used: %s: %s", refused.Field, refused.Problem)
	}
	_, err := v.hooks()
	return err
}

// checkCascade refuses a limit that is none, or too high to show what was cut.
func (v *serving) checkCascade() error {
	limits := v.cascade
	for _, l := range [...]struct {
		name, hint string
		zero       bool
	}{{"depth", "; with 1 nothing fires by what an undo makes", limits.Depth == 0},
		{"plan", "", limits.Plan == 0}, {"tenant", "", limits.Tenant == 0}} {
		if l.zero {
			return cli.Fail(cli.ExitUsage, "--cascade-"+l.name+" of at least 1"+l.hint,
				"--cascade-%s cannot be 0", l.name)
		}
	}
	var refused *ledger.Refused
	if errors.As(limits.Check(), &refused) {
		flag := strings.ReplaceAll(refused.Field, ".", "-")
		return cli.Fail(cli.ExitUsage, "--"+flag+" of "+refused.Want, "--%s cannot be %s", flag,
			refused.Problem)
	}
	return nil
}

// flagsOfServer are the flags of the fields of the embedded server's
// configuration, for a refusal that a command line can correct.
var flagsOfServer = map[string]string{
	"dir":       "--data DIR",
	"host":      "--listen 127.0.0.1:4222, or without --open",
	"port":      listenHint,
	"max_store": "--max-store BYTES",
	"tls":       "--tls-cert, --tls-key and --tls-client-ca: PEM files that fit each other",
	"users":     "the file auth/users of the data folder, as a backup has it",
}

const listenHint = "--listen 127.0.0.1:4222; a port is 1 to 65535, 0 takes a free one"

// explainStart turns what the embedded server said of its configuration into
// words about the command line.
func (v *serving) explainStart(err error) error {
	var refused *ledger.Refused
	if errors.As(err, &refused) {
		// users line 3, users[2]
		field, _, _ := strings.Cut(strings.ReplaceAll(refused.Field, "[", " "), " ")
		if hint := flagsOfServer[field]; hint != "" {
			return cli.Fail(cli.ExitUsage, hint, "cannot serve: %s", refused.Problem)
		}
	}
	if errors.Is(err, embedded.ErrInUse) {
		return cli.Fail(cli.ExitFailed,
			"stop the other server of this folder, or choose another one with --data DIR",
			"cannot serve: %v", err)
	}
	if strings.Contains(err.Error(), "cannot listen on") {
		return cli.Fail(cli.ExitFailed, "--listen 127.0.0.1:0 takes a free port",
			"cannot serve: %v", err)
	}
	return err
}

// Ready is what serve prints on stdout when it is.
type Ready struct {
	URL     string   `json:"url"`
	Data    string   `json:"data"`
	Tenants []string `json:"tenants"`
	ReadyMs int64    `json:"ready_ms"`
	Metrics string   `json:"metrics,omitempty"` // address of --metrics
	Console string   `json:"console,omitempty"` // URL
	// ConsoleToken is the file with the token of the admin that the console's first start makes.
	ConsoleToken string `json:"console_token,omitempty"`
	HTTP         string `json:"http,omitempty"`  // URL of the door
	Creds        string `json:"creds,omitempty"` // file of the credentials of the user who runs it
}

// serve runs until the context ends. When the embedded server stops answering it is
// started again on the same folder and port.
func serve(ctx context.Context, cmd *cobra.Command, s *cli.Settings, v *serving) error {
	level := slog.LevelInfo
	if v.verbose {
		level = slog.LevelDebug
	}
	log := newLog(cmd.ErrOrStderr(), v.logs, level)
	// before anything is made there: keys, and the credentials of its user
	release, err := embedded.LockFolder(v.data)
	if errors.Is(err, embedded.ErrInUse) {
		return v.explainStart(err)
	}
	if err == nil { // else what follows says what is wrong with the folder
		defer release()
	}
	if _, _, err := v.masterKey(ctx); err != nil { // before anything is started
		return err
	}
	stop, err := v.watch.start(v, log)
	if err != nil {
		return err
	}
	defer stop()
	defer tuneHeap(ctx)()
	defer v.closeConsole()
	defer v.closeWeb()
	announced := false
	announce := func(r Ready) {
		if !announced {
			announced, r.Metrics, r.HTTP = true, v.watch.bound, v.webURL
			if v.shown != nil {
				r.Console, r.ConsoleToken = v.shown.URL(), v.tokenFile()
			}
			writeReady(cmd.OutOrStdout(), s.JSON(), r)
		}
	}
	if v.external != "" {
		return serveExternal(ctx, s, v, log, announce)
	}
	if v.noSync {
		log.Warn("--no-sync: acknowledged records are LOST when the power fails; use it for " +
			"tests only")
	}
	return serveEmbedded(ctx, v, log, announce)
}

func writeReady(out io.Writer, asJSON bool, r Ready) {
	if asJSON {
		// One line, so that a program that started us can read it and go on. A
		// reader that is gone is no reason to stop serving.
		_ = cli.PrintLine(out, r)
		return
	}
	metrics := ""
	if r.Metrics != "" {
		metrics = " · metrics http://" + r.Metrics + "/metrics"
	}
	fmt.Fprintf(out, "nats %s%s%s · data %s · tenants %s%s · ready in %s\n", r.URL,
		doorText(r.HTTP), consoleText(r), r.Data, strings.Join(r.Tenants, ", "), metrics,
		time.Duration(r.ReadyMs)*time.Millisecond)
}

// restartPause keeps a server whose disk stays broken from spinning.
const restartPause = time.Second

// serveEmbedded runs the server and the executor on it. A server that can no
// longer store is started again, for as long as it takes: what broke it, a full
// disk for example, may be gone by then. Until then another one is on its port
// and says what is wrong.
func serveEmbedded(ctx context.Context, v *serving, log *slog.Logger, announce func(Ready)) error {
	config, err := v.embeddedConfig(log)
	if err != nil {
		return err
	}
	for again := false; ; again = true {
		started := time.Now()
		server, err := embedded.Start(config)
		switch {
		case err != nil && store.Unwritable(err) && (again || !errors.Is(err, fs.ErrPermission)):
			config.Port = v.standInAlone(ctx, config, log, err)
		case err != nil && !again:
			return v.explainStart(err)
		case err != nil:
			log.Error("cannot start the embedded server again; trying on", "dir", config.Dir,
				"cause", err)
		default:
			config.Port = portOf(server.URL(), config.Port) // keep it over a restart
			err = runOn(ctx, server, v, log, func() {
				announce(Ready{URL: server.URL(), Data: v.data, Tenants: v.names(),
					ReadyMs: time.Since(started).Milliseconds(), Creds: v.credsFile()})
			})
			server.Close()
			switch {
			case errors.Is(err, host.ErrMute):
				log.Error("JetStream is mute after a write error; starting the embedded server "+
					"again", "dir", config.Dir, "cause", err)
			default:
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(restartPause):
		}
	}
}

// runOn runs a host on the embedded server until the context ends or the server
// cannot store any more, which is host.ErrMute.
func runOn(ctx context.Context, server *embedded.Server, v *serving, log *slog.Logger,
	ready func()) error {
	giveUp := ctx.Done()
	ctx, cancel := inprocess.Watch(ctx, server)
	defer cancel()
	forget, err := v.introduce(server, log)
	if err != nil {
		return err
	}
	defer forget()
	return runHost(ctx, v, log, hostSetup{
		complete: func(cfg host.Config) (host.Config, error) { return inprocess.On(server, v.data, cfg) },
		door: func(tenant string) (*nats.Conn, error) {
			return server.ConnectDoor(tenant, nats.Name("sagenbaum door"))
		},
		worker: func(tenant string) (*nats.Conn, error) { return v.asWorker(server, tenant) },
		store:  inprocess.ServerDir(v.data),
		giveUp: giveUp,
		ready:  ready,
	})
}

// embeddedConfig reads the flags into a configuration, and finds the users.
func (v *serving) embeddedConfig(log *slog.Logger) (embedded.Config, error) {
	address, port, err := net.SplitHostPort(v.listen)
	number, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || number < 0 || number > 65535 {
		return embedded.Config{}, cli.Fail(cli.ExitUsage, listenHint,
			"%q is no address to listen on", v.listen)
	}
	if number == 0 {
		number = -1 // a free one
	}
	if address == "" { // everywhere the same: neither a name for a certificate nor for clients
		address = "127.0.0.1"
		v.listen = net.JoinHostPort(address, port)
	}
	config := embedded.Config{
		Dir: inprocess.ServerDir(v.data), Host: address, Port: number, NoSync: v.noSync,
		MaxStore:    v.maxStore,
		Connections: v.connections, Erased: v.erased,
		TLSCert: v.tlsCert, TLSKey: v.tlsKey, TLSCA: v.clientCA, Logger: log,
	}
	return config, v.admit(&config, log)
}

// credsFile is where the credentials of the user who runs the server are; empty: none are needed.
func (v *serving) credsFile() string {
	if v.directory == nil {
		return ""
	}
	file, err := filepath.Abs(v.localFile())
	if err != nil {
		return v.localFile()
	}
	return file
}

func portOf(serverURL string, otherwise int) int {
	_, port, err := net.SplitHostPort(serverURL[strings.LastIndex(serverURL, "/")+1:])
	if number, err2 := strconv.Atoi(port); err == nil && err2 == nil {
		return number
	}
	return otherwise
}

func serveExternal(ctx context.Context, s *cli.Settings, v *serving, log *slog.Logger,
	announce func(Ready)) error {
	started := time.Now()
	options, err := s.Credentials("")
	if err != nil {
		return err
	}
	if err := checkHost(s); err != nil {
		return err
	}
	setup := hostSetup{
		giveUp: ctx.Done(), external: true,
		complete: func(cfg host.Config) (host.Config, error) {
			conn, err := s.Dial(append(steadyOptions("sagenbaum executor", s.Timeout), options...)...)
			if err != nil {
				err = s.NotConnected(cli.Shown(v.external), err, serversNext)
			}
			cfg.Conn, cfg.Dir = conn, inprocess.StateDir(v.data)
			return cfg, err
		},
		ready: func() {
			announce(Ready{URL: cli.Shown(v.external), Data: v.data, Tenants: v.names(),
				ReadyMs: time.Since(started).Milliseconds()})
		},
	}
	if setup.system, err = v.system(v.external, s); err != nil {
		return err
	}
	if setup.system != nil {
		defer setup.system.Close()
	}
	return runHost(ctx, v, log, setup)
}

// hostSetup is how a host reaches its server.
type hostSetup struct {
	// complete adds the server, a connection to it and the folder of the host
	complete func(host.Config) (host.Config, error)
	// door connects to a tenant as a door; nil: there is none
	door func(tenant string) (*nats.Conn, error)
	// worker connects to a tenant as a worker of this machine; nil: not here
	worker func(tenant string) (*nats.Conn, error)
	store  string // folder of the embedded server; empty: it runs elsewhere
	// external: the server runs elsewhere, and other hosts may hold the tenants.
	external bool
	system   *nats.Conn
	giveUp   <-chan struct{} // the process is told to stop
	ready    func()
}

// cannotConnect says why a host has no connection, where that was not said yet.
func cannotConnect(err error) error {
	if failed := new(cli.Failure); errors.As(err, &failed) {
		return err
	}
	return cli.Fail(cli.ExitNoServer, "sagenbaum doctor", "cannot connect the executor: %v", err)
}

// runHost runs one host on one connection until the context ends or the server
// stops answering.
func runHost(ctx context.Context, v *serving, log *slog.Logger, setup hostSetup) error {
	hooks, err := v.hooks()
	if err != nil {
		return err
	}
	keys, err := v.webhookKeys(hooks)
	if err != nil {
		return err
	}
	master, tenantKeys, err := v.masterKey(ctx)
	if err != nil {
		return err
	}
	if v.clock == nil { // the first host: from now on the process knows how time passes
		v.clock = host.NewClock()
	}
	flagged, first := v.flagged()
	cfg, err := setup.complete(host.Config{
		Tenants: flagged, Follow: true, First: first, Logger: log,
		System: setup.system, AcceptLossyBroker: v.lossy || v.noSync,
		Replicas: v.replicas, Holder: v.holder, LeaseTTL: v.leaseTTL,
		TilesDir: v.tiles, KeysDir: v.keys, Witness: v.witness,
		SignAfter: v.sign,
		GiveUp:    setup.giveUp, Webhooks: hooks, WebhookKeys: keys, StuckAfter: v.stuck,
		EscalateAfter: v.escalate, Cascade: v.cascade, MemoryBytes: v.maxMemory,
		BlobBytes: v.maxBlobs, MasterKey: master, MasterKeyFile: v.masterFile,
		TenantKeysDir: tenantKeys, Clock: v.clock,
		Metrics: v.watch.metrics, Tracer: v.watch.traces.tracer(),
	})
	if err != nil {
		return cannotConnect(err)
	}
	conn := cfg.Conn
	defer conn.Close()
	h, err := v.openHost(ctx, setup, log, cfg)
	if err != nil || h == nil {
		return err
	}
	v.watch.running.Store(h)
	var ended error // of Run
	defer func() {
		v.watch.running.Store(nil)
		if errors.Is(ended, host.ErrMute) { // a full disk may hold up the state's end
			defer v.standIn(conn, setup.disks(v), setup.external, log, ended)()
		}
		if err := h.Close(); err != nil {
			log.Error("cannot close the state", "cause", err)
		}
	}()
	if setup.door != nil {
		err = v.startWeb(log)
	}
	if err := errors.Join(err, v.answerServer(ctx, h, conn, log), v.startConsole(log)); err != nil {
		return err
	}
	if v.shown != nil {
		defer v.shown.Attach(h, conn)()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go v.welcome(ctx, h, conn, setup, log) // ends with ctx, or when every tenant is served
	undone := v.serveUndos(ctx, h, setup.worker, log)
	ended = h.Run(ctx)
	cancel()
	v.shutDoor()
	<-undone
	return ended
}

// welcome opens the door, and says that the host is ready, when every tenant takes records and
// answers: by then what the ledger had at the start is folded.
func (v *serving) welcome(ctx context.Context, h *host.Host, conn *nats.Conn, setup hostSetup,
	log *slog.Logger) {
	if !h.Await(ctx) {
		return
	}
	if err := v.openDoor(ctx, conn, setup.door, log); err != nil {
		log.Error("no agent gets in by the door", "cause", err)
	}
	setup.ready()
}
