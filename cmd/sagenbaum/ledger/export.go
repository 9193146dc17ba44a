package ledger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/bundle"
	"github.com/sagenbaum/sagenbaum/ledger/verify"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Export is 'ledger export'. Where words are given, the first argument is the tenant.
func Export(s *cli.Settings, words ...string) *cobra.Command {
	var e exporter
	cmd := &cobra.Command{
		Use:   "export -f FILE | --tiles DIR",
		Short: "Write the ledger, or one plan's part of it, into a bundle that is checked offline",
		Long: `Write the ledger into a bundle: one file that sagenbaum-verify checks with nothing but
a public key (docs/audit.md). The holder signs a checkpoint first, and the file ends
there; later records come with the next export. A file that exists is continued where
it ends, even when it was cut off, so that an export can be stopped and repeated.

With --since only the records from a sequence on, for those who have the earlier ones.
With --plan only the records of a plan, of its child plans and of what undoes them, with
the facts that their conditions have read; of all others only the hashes, so that their
place in the ledger can be checked and nothing else be seen. Such a file is written from
the start each time.

With --tiles a folder of C2SP tlog-tiles, which other tools read: tiles, entries with a
length of four bytes, and the checkpoint. With --from it is written from a copy of the
folder of a host's tiles, without a host.`,
		Example: `  sagenbaum ledger export -f acme.bundle
  sagenbaum ledger export --plan 01JD3BX7 -f plan.bundle
  sagenbaum ledger export --tiles acme.tiles
  sagenbaum-verify acme.bundle --key acme.pub`,
		Args: cli.Exactly(words...),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if s.Tenant = args[0]; !ledger.ValidToken(s.Tenant) {
					return cli.Fail(cli.ExitUsage, "sagenbaum tenant ls", "%.80q is no tenant", s.Tenant)
				}
			}
			switch {
			case e.tiles != "" && (e.file != "" || e.plan != "" || e.since > 0):
				return cli.Fail(cli.ExitUsage, "--tiles DIR alone, or with --from",
					"--tiles writes the whole ledger, and no file")
			case e.from != "" && e.tiles == "":
				return cli.Fail(cli.ExitUsage, "--tiles DIR", "--from needs --tiles")
			case e.file == "" && e.tiles == "":
				return cli.Fail(cli.ExitUsage, "-f FILE, or --tiles DIR", "an export needs a file")
			case e.plan != "" && e.since > 0:
				return cli.Fail(cli.ExitUsage, "--plan PLAN, or --since SEQUENCE",
					"--plan and --since exclude each other")
			}
			export := func(c *cli.Client) error {
				e.client = c
				v, err := e.run(cmd.Context())
				if err != nil {
					return cli.Failed("export the ledger", err)
				}
				return s.Print(cmd, v, func() { writeExport(cmd.OutOrStdout(), v) })
			}
			if e.from != "" {
				return export(nil)
			}
			return s.With(export)
		},
	}
	cmd.Flags().StringVarP(&e.file, "file", "f", "", "the bundle, a `FILE`")
	cli.PlanFlag(cmd, &e.plan,
		"only this `PLAN`, its child plans and what undoes them")
	cmd.Flags().StringVar(&e.tiles, "tiles", "", "a folder of tlog-tiles, a `DIR`, and no bundle")
	cmd.Flags().StringVar(&e.from, "from", "",
		"with --tiles: the copy of a host's folder of tiles, a `DIR`")
	cmd.Flags().Uint64Var(&e.since, "since", 0, "only from this `SEQUENCE` on")
	cmd.Flags().StringArrayVar(&e.before, "before", nil,
		"with --plan: a checkpoint in a `FILE` that its reader has kept, to be checked against")
	return cmd
}

// exported says what an export has written.
type exported struct {
	File     string `json:"file"`
	Holds    string `json:"holds"`
	Size     uint64 `json:"size"`     // records of the tree
	Added    uint64 `json:"added"`    // by this run
	Bytes    int64  `json:"bytes"`    // of the file; 0: it is a folder
	Unsigned bool   `json:"unsigned"` // no checkpoint covers it
	*verify.Selected
}

func writeExport(w io.Writer, v exported) {
	fmt.Fprintf(w, "%s: %d records", cli.Printable(v.File), v.Size)
	if v.Bytes > 0 {
		fmt.Fprintf(w, ", %d bytes", v.Bytes)
	}
	switch {
	case v.Selected != nil:
		fmt.Fprintf(w, ": %d shown, of %s, the others withheld by their hashes", v.Shown,
			plansText(len(v.Plans)))
	case v.Added == 0:
		fmt.Fprint(w, ": nothing new is signed")
	case v.Added < v.Size:
		fmt.Fprintf(w, ": %d added", v.Added)
	}
	fmt.Fprintln(w)
	if v.Selected != nil && v.Shared > 0 {
		fmt.Fprintf(w, "%d commits in JSON speak of other plans, too; they are withheld\n",
			v.Shared)
	}
	if v.Unsigned {
		fmt.Fprintln(w, "no checkpoint is signed yet: sagenbaum-verify cannot tell who wrote it")
	}
}

func plansText(n int) string {
	if n == 1 {
		return "1 plan"
	}
	return fmt.Sprintf("%d plans", n)
}

// exporter writes one bundle, or one folder of tiles.
type exporter struct {
	client *cli.Client // nil: from is read
	file   string
	tiles  string // folder
	from   string // copy of a host's tiles
	plan   string
	since  uint64
	before []string
}

func (e *exporter) run(ctx context.Context) (exported, error) {
	if e.tiles != "" {
		return e.exportTiles(ctx)
	}
	if e.plan == "" {
		h := bundle.Header{Tenant: e.client.Tenant, Holds: bundle.Whole}
		if e.since > 1 {
			h.Holds, h.Since = bundle.Since, e.since
		}
		file, err := os.OpenFile(e.file, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return exported{}, err
		}
		v, err := e.download(ctx, file, h)
		v.File = e.file
		if empty := isEmpty(file); err != nil && empty {
			return v, errors.Join(err, file.Close(), os.Remove(e.file))
		}
		return v, errors.Join(err, file.Close())
	}
	return e.exportPlan(ctx)
}

// exportPlan writes the whole ledger beside the file, and selects from it.
func (e *exporter) exportPlan(ctx context.Context) (v exported, err error) {
	var keep []uint64
	for _, name := range e.before {
		text, err := os.ReadFile(name)
		if err != nil {
			return v, err
		}
		head, ok := verify.Claimed(string(text))
		if !ok {
			return v, cli.Fail(cli.ExitFailed,
				"the file checkpoint of a host's tiles, or of an earlier bundle",
				"%s is no checkpoint", name)
		}
		keep = append(keep, head.Size)
	}
	whole, err := os.CreateTemp(filepath.Dir(e.file), ".export-*")
	if err != nil {
		return v, err
	}
	defer func() { _ = errors.Join(whole.Close(), os.Remove(whole.Name())) }()
	if v, err = e.download(ctx, whole,
		bundle.Header{Tenant: e.client.Tenant, Holds: bundle.Whole}); err != nil {
		return v, err
	}
	out, err := os.CreateTemp(filepath.Dir(e.file), ".export-*")
	if err != nil {
		return v, err
	}
	selected, err := verify.Select(whole, e.plan, keep, out)
	info, err2 := out.Stat()
	if err = errors.Join(err, err2, out.Sync(), out.Close()); err == nil {
		v.Bytes = info.Size()
		err = os.Rename(out.Name(), e.file)
	}
	if err != nil {
		return v, errors.Join(err, os.Remove(out.Name()))
	}
	v.File, v.Holds, v.Selected = e.file, bundle.Plan, &selected
	return v, nil
}

// download is one run that continues a file to the end that the ledger has now.
type download struct {
	*exporter
	files  *tiles.Files // nil: the host is asked
	w      *bundle.Writer
	tree   bundle.Tree
	end    uint64   // records
	size   int      // bytes that one answer may carry
	partly [][]byte // records of a message that is not whole yet
	signed bool
}

func (e *exporter) download(ctx context.Context, file *os.File, h bundle.Header) (v exported,
	err error) {
	v.Holds = h.Holds
	part, err := bundle.Scan(file)
	switch {
	case errors.Is(err, bundle.ErrCut), isEmpty(file):
		part = bundle.Part{Header: h}
	case err != nil:
		return v, cli.Fail(cli.ExitFailed, "another file, or none", "cannot continue %s: %v",
			e.file, err)
	case part.Header != h:
		return v, cli.Fail(cli.ExitFailed, "another file", "%s holds something else: %+v", e.file,
			part.Header)
	}
	d := &download{exporter: e, tree: part.Tree,
		size: int(min(e.client.Conn.MaxPayload()/2, exportBytes))}
	first, err := d.begin(ctx, part.Size)
	if err != nil {
		return v, err
	}
	if !sameNodes(part.Tree.Nodes(), first.Nodes) {
		return v, cli.Fail(cli.ExitFailed,
			"another file; keep this one: sagenbaum-verify says where they part",
			"%s is of another history than the ledger that is served", e.file)
	}
	if head, ok := verify.Claimed(first.Checkpoint); ok {
		d.end, d.signed = head.Size, true
	} else {
		d.end = first.Size
	}
	if part.Ended && d.end <= part.Size {
		info, err := file.Stat()
		if err == nil {
			v.Size, v.Bytes, v.Unsigned = part.Size, info.Size(), !d.signed
		}
		return v, err
	}
	if err := d.start(ctx, file, part, h); err != nil {
		return v, err
	}
	err = d.records(ctx)
	if err == nil && d.signed {
		err = d.sign(first.Checkpoint)
	}
	if err == nil {
		err = d.w.End(d.tree.Root())
	} else {
		err = errors.Join(err, d.w.Flush()) // what came is kept, and goes on from there
	}
	info, err2 := file.Stat()
	if err = errors.Join(err, err2, file.Sync()); err != nil {
		return v, err
	}
	v.Size, v.Added, v.Bytes, v.Unsigned = d.tree.Size(), d.tree.Size()-part.Size, info.Size(),
		!d.signed
	return v, nil
}

// exportBytes is what one answer carries at most, in bytes of entries.
const exportBytes = 512 << 10

// How long an export waits for a checkpoint of all that is there, and for a host to hold the tenant
// where there is no checkpoint at all; and how often it looks.
const (
	signMax  = 3 * time.Second
	holdMax  = 15 * time.Second
	signPoll = 50 * time.Millisecond
)

// begin asks for what there is after so many records. The holder is asked to sign it
// first; where that does not come, the export ends at the checkpoint before.
func (d *download) begin(ctx context.Context, size uint64) (first api.ExportAnswer,
	err error) {
	if d.files != nil {
		return d.ask(ctx, api.ExportQuery{Index: size, Tree: true})
	}
	due, began := d.due(ctx), time.Now()
	for {
		if first, err = d.ask(ctx, api.ExportQuery{Index: size, Tree: true}); err != nil {
			return first, err
		}
		head, some := verify.Claimed(first.Checkpoint)
		most := signMax
		if due.Later && !some {
			most = holdMax
		}
		if !due.Later && head.Size >= due.Size || time.Since(began) > most {
			return first, nil
		}
		select {
		case <-ctx.Done():
			return first, ctx.Err()
		case <-time.After(signPoll):
		}
		if due.Later {
			if due = d.due(ctx); !due.Later {
				began = time.Now()
			}
		}
	}
}

// due asks the holder to sign what there is.
func (d *download) due(ctx context.Context) api.SignAnswer {
	due, err := cli.Ask(ctx, d.client, api.LedgerSign, api.Nothing{})
	if err != nil {
		return api.SignAnswer{} // a host that cannot sign can still be read
	}
	return due
}

func isEmpty(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Size() == 0
}

// start cuts off what is not whole, and what comes before --since is one subtree each.
func (d *download) start(ctx context.Context, file *os.File, part bundle.Part,
	h bundle.Header) error {
	var before api.ExportAnswer
	var err error
	if h.Holds == bundle.Since && part.Size == 0 {
		if before, err = d.ask(ctx,
			api.ExportQuery{Sequence: h.Since, Tree: true}); err != nil {
			return err
		}
		if before.Index > d.end {
			return cli.Fail(cli.ExitFailed,
				fmt.Sprintf("an earlier --since, or wait for the next checkpoint: the last one "+
					"covers %d records", d.end), "sequence %d is not signed yet", h.Since)
		}
	}
	if err := file.Truncate(part.Offset); err != nil {
		return err
	}
	if _, err := file.Seek(part.Offset, io.SeekStart); err != nil {
		return err
	}
	if part.Offset > 0 {
		d.w, err = bundle.Continue(file, part.Size)
	} else {
		d.w, err = bundle.NewWriter(file, h)
	}
	if err != nil {
		return err
	}
	for _, n := range before.Nodes {
		if len(n.Hash) != ledger.LeafSize {
			return errors.New("the host answers with a hash that is none")
		}
		node := bundle.Node{Level: n.Level, Hash: ledger.Hash(n.Hash)}
		if err := errors.Join(d.w.Withhold(node), d.tree.AppendNode(node)); err != nil {
			return err
		}
	}
	return nil
}

// records writes what the tiles have, to the checkpoint; without one, to the last
// message that is whole.
func (d *download) records(ctx context.Context) error {
	for at := d.tree.Size(); at < d.end; {
		answer, err := d.ask(ctx, api.ExportQuery{Index: at, BytesMax: d.size})
		if err != nil {
			return err
		}
		before := at
		for rest := answer.Entries; len(rest) > 0 && at < d.end; at++ {
			entry, behind, ok := ledger.NextEntry(rest)
			if !ok {
				return errors.New("the host answers with entries that are none")
			}
			rest = behind
			if err := d.record(entry); err != nil {
				return err
			}
		}
		if at == before {
			return fmt.Errorf("the tiles end after %d records, and should have %d", at, d.end)
		}
	}
	return nil
}

func (d *download) record(entry []byte) error {
	if !d.signed { // only whole messages: nothing else says where a file may end
		leaf, err := ledger.ParseLeaf(entry)
		if err != nil {
			return err
		}
		if d.partly = append(d.partly, entry); !leaf.Last() {
			return nil
		}
		for _, entry := range d.partly {
			d.tree.Append(ledger.LeafHash(entry))
			if err := d.w.Record(entry); err != nil {
				return err
			}
		}
		d.partly = nil
		return nil
	}
	d.tree.Append(ledger.LeafHash(entry))
	return d.w.Record(entry)
}

// sign adds the checkpoint, which must be of these records.
func (d *download) sign(note string) error {
	head, _ := verify.Claimed(note)
	if head.Root != d.tree.Root() {
		return cli.Fail(cli.ExitFailed, "sagenbaum ledger scrub",
			"the signed checkpoint of %d records is not of those in the tiles", head.Size)
	}
	return d.w.Checkpoint(note)
}

func sameNodes(have []bundle.Node, want []api.ExportNode) bool {
	if len(have) != len(want) {
		return false
	}
	for i, n := range have {
		if n.Level != want[i].Level || string(n.Hash[:]) != string(want[i].Hash) {
			return false
		}
	}
	return true
}

func (d *download) ask(ctx context.Context, q api.ExportQuery) (answer api.ExportAnswer,
	err error) {
	if d.files != nil {
		return d.files.Export(q)
	}
	return cli.Ask(ctx, d.client, api.LedgerExport, q)
}
