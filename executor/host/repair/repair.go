// Package repair holds a tenant's ledger against its tiles while it is in use, and makes a
// damaged one again from them: [Scrubber] reads both, [Repairer] replaces the stream.
package repair

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/host/pause"
	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/host/tiles"
	"github.com/sagenbaum/sagenbaum/executor/turn"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/jetstream"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Names beside the tiles.
const (
	PlanName      = "repair.json" // a repair under way
	repairsFolder = "repairs"     // what is left of repairs: plans, files, copies
)

// renewFactor is how often the leadership is renewed within its TTL.
const renewFactor = 3

// Plan is a repair as it was decided; on disk it is the file that the repair goes on by. From
// the moment that it is there, the repair is carried out whatever dies: each step
// finds out whether it is done.
//
//  1. the tiles are extended by what the old stream has next, in order, and synced
//  2. what else can be read of the old stream is in File, its own files in Kept, both synced
//  3. this file is written
//  4. the old stream is deleted
//  5. the new one is made; it takes nothing from others yet
//  6. the LedgerRepaired record is put, as sequence Through+1, then what is carried
//  7. the new stream is opened to its subjects
//  8. the file is put away
type Plan struct {
	OldCreatedNs int64               `json:"old_created_ns"` // 0: there was no stream any more
	OldLast      uint64              `json:"old_last"`
	Tiles        uint64              `json:"tiles"`
	Through      uint64              `json:"through"`
	Size         uint64              `json:"size"`
	Root         []byte              `json:"root"`
	Term         uint64              `json:"term"` // the last that began
	Lost         []*pb.SequenceRange `json:"lost"`
	Carried      []*pb.SequenceRange `json:"carried"`
	Dropped      []*pb.SequenceRange `json:"dropped"`
	File         string              `json:"file,omitempty"`
	Kept         string              `json:"kept,omitempty"`
	Problem      string              `json:"problem"`
	Reason       string              `json:"reason"`
	Actor        string              `json:"actor"`
}

// salvagedMessage is one line of a repair's file.
type salvagedMessage struct {
	ledger.Message
	Carried bool
}

// Config says what is repaired, and by which host.
type Config struct {
	Ledger   jetstream.Config // of the tenant
	Holders  *jetstream.Holders
	Holder   string // name of this host
	TilesDir string // of all tenants
	StoreDir string // data folder of an embedded server; empty: its files are not at hand
	KV       *store.KV
	Dropped  func() // called when the state was dropped: no snapshot of it may be used
	// Destroy destroys the key of a plan, also again.
	Destroy func(ctx context.Context, plan string) error
	Log     *slog.Logger
}

// Repairer repairs one tenant's ledger from its tiles. It belongs to one goroutine, which owns
// the tiles and the state meanwhile.
type Repairer struct {
	Config
	tenant string
	tiles  *tiles.Writer
	erased []string // plans whose keys the tiles say are destroyed
}

// New makes a repairer with the tenant's tiles.
func New(cfg Config, t *tiles.Writer) *Repairer {
	return &Repairer{Config: cfg, tenant: cfg.Ledger.Tenant, tiles: t}
}

// Halted repairs the ledger of a halted tenant on request. It returns when the repair is
// carried out, also where it could not be; a repair that ctx cuts off goes on at the next start.
func Halted(ctx context.Context, cfg Config, q api.RepairQuery,
	halted *ledger.Halted) (answer api.RepairAnswer, err error) {
	if ledger.IsBlank(q.Reason) || q.Actor == "" || len(q.Actor) > ledger.TextMax {
		return answer, errors.New("a repair needs a reason and the name of the person who asks for it")
	}
	plan, err := New(cfg, nil).repair(ctx, q, halted)
	if err != nil {
		cfg.Log.Error("repair not done", "error", err)
		return answer, fmt.Errorf("cannot repair: %w", err)
	}
	return api.RepairAnswer{
		DryRun: q.DryRun, Problem: plan.Problem, Tiles: plan.Tiles, Through: plan.Through,
		Size: plan.Size, Root: hex.EncodeToString(plan.Root),
		OldLast: plan.OldLast, Lost: ledger.FormatRanges(plan.Lost),
		Carried: ledger.FormatRanges(plan.Carried), Dropped: ledger.FormatRanges(plan.Dropped),
		File: plan.File, Kept: plan.Kept,
	}, nil
}

func (r *Repairer) repair(ctx context.Context, q api.RepairQuery,
	halted *ledger.Halted) (plan Plan, err error) {
	release, err := r.lead(ctx)
	if err != nil {
		return plan, err
	}
	defer release()
	if r.tiles, err = tiles.Open(r.TilesDir, r.tenant, r.Log, ctx.Done()); err != nil {
		return plan, err
	}
	defer func() { err = errors.Join(err, r.tiles.Close()) }()
	plan = Plan{Problem: ledger.Text(halted.Error()), Reason: ledger.Text(q.Reason), Actor: q.Actor}
	if err := r.Plan(ctx, &plan, q.DryRun); err != nil || q.DryRun {
		return plan, err
	}
	if err := r.destroy(ctx); err != nil {
		return plan, err
	}
	if err := r.Write(plan); err != nil {
		return plan, err
	}
	for delay := turn.RetryMin; ; delay = min(2*delay, turn.RetryMax) {
		err := r.Resume(ctx)
		var refused *ledger.Refused
		switch {
		case err == nil:
			return plan, nil
		case errors.As(err, &refused): // another stream is there: a new plan is needed
			return plan, errors.Join(err, os.Remove(r.tiles.Path(PlanName)))
		}
		r.Log.Warn("a step of the repair failed; it is tried again", "error", err, "in", delay)
		if !pause.For(ctx, delay) {
			return plan, fmt.Errorf(
				"this server stops; the repair goes on by itself when it is up again: %w", err)
		}
	}
}

// destroy destroys the keys of erased plans again: an older copy of the store, put back in the
// place of a lost one, has them.
func (r *Repairer) destroy(ctx context.Context) error {
	for _, plan := range r.erased {
		if err := r.Destroy(ctx, plan); err != nil {
			return fmt.Errorf("cannot destroy the key of plan %s, which was erased, again: %w", plan, err)
		}
	}
	return nil
}

// Write puts a plan beside the tiles. From then on it is carried out, by Resume.
func (r *Repairer) Write(plan Plan) error {
	data, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	return store.WriteSynced(r.tiles.Path(PlanName), data)
}

// lead keeps the leadership of the tenant until release, so that no one else
// repairs or holds the tenant meanwhile.
func (r *Repairer) lead(ctx context.Context) (release func(), err error) {
	holders, me := r.Holders, r.Holder
	lease, ok, current, err := holders.Acquire(ctx, r.tenant, me)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("host %s has the tenant's lease: it holds the tenant, or it was asked "+
			"for the repair as well and is at it; see ledger ls, and ask again with all hosts stopped "+
			"but one that is halted", current)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with release
		defer close(done)
		for pause.For(ctx, holders.TTL()/renewFactor) {
			if next, ok, _, err := holders.Acquire(ctx, r.tenant, me); err == nil && ok {
				lease = next
			}
		}
	}()
	return func() {
		cancel()
		<-done
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = holders.Release(ctx, lease) // it runs out by itself otherwise
	}, nil
}

// Plan finds out what can be kept, and saves it; a dry run writes nothing.
func (r *Repairer) Plan(ctx context.Context, plan *Plan, dry bool) error {
	holder := ledger.Source{Tenant: r.tenant, Class: ledger.ClassExecutor}.Subject()
	terms := ledger.Source{Tenant: r.tenant, Class: ledger.ClassExecutor, Term: true}.Subject()
	if whose := r.tiles.Whose(); whose != "" && whose != r.tenant { // put back in the wrong place
		return fmt.Errorf("these tiles are of tenant %s; put those of %s back in %s",
			ledger.Text(whose), r.tenant, r.tiles.Dir)
	}
	for leaf, err := range r.tiles.Records(0) {
		if err != nil {
			return fmt.Errorf("%w; without its tiles a ledger cannot be repaired", err)
		}
		record := new(pb.Record)
		switch {
		case leaf.Subject != terms && leaf.Subject != holder || record.UnmarshalVT(leaf.Body) != nil:
		case leaf.Subject == terms:
			plan.Term = max(plan.Term, record.Term)
		case record.GetPlanErased().GetDestroyed():
			r.erased = append(r.erased, record.Plan)
		}
	}
	old, err := jetstream.Inspect(ctx, r.Ledger.Conn, r.tenant)
	if err != nil {
		return err
	}
	if old.There && !old.Ready {
		return errors.New("another host has begun a repair: start that one again")
	}
	plan.Tiles, plan.Through = r.tiles.Last(), r.tiles.Last()
	ours := false
	if old.There {
		if err := r.refuseRepaired(ctx, old.Head); err != nil {
			return err
		}
		plan.OldCreatedNs, plan.OldLast = old.Head.CreatedNs, old.Head.Last
		if ours, err = r.isOurs(ctx, old.Head); err != nil {
			return err
		}
	}
	salvage, err := r.salvage(ctx, plan, old, ours, dry)
	if err != nil {
		return err
	}
	r.listFolded(plan)
	if dry {
		plan.Root = make([]byte, ledger.LeafSize)
		if plan.Size = r.tiles.Size(); plan.Through == plan.Tiles {
			root := r.tiles.Edge.Root()
			plan.Root = root[:]
		}
		return nil
	}
	if err := r.tiles.CutToLast(); err != nil {
		return err
	}
	root := r.tiles.Edge.Root()
	plan.Size, plan.Root = r.tiles.Size(), root[:]
	if err := r.tiles.Sync(); err != nil {
		return err
	}
	return r.saveOld(plan, salvage)
}

// refuseRepaired is an error when the stream was repaired by a host that had other
// tiles: they, and not these, are the history before it. A repair from these would drop
// everything that was appended since.
func (r *Repairer) refuseRepaired(ctx context.Context, old ledger.Head) error {
	if old.First <= 1 || r.tiles.Last() == old.First-1 {
		return nil
	}
	return jetstream.Salvage(ctx, r.Ledger.Conn, r.tenant, old.First, old.First,
		func(m ledger.Message) error {
			entries, err := ledger.Decode(r.tenant, m)
			if err != nil {
				return nil // a record of the future is no repair that this host knows
			}
			e := entries[0]
			if e.Err != nil || e.Source.Class != ledger.ClassExecutor ||
				e.Record.GetLedgerRepaired().GetThrough() != old.First-1 {
				return nil
			}
			if m.Sequence <= r.tiles.Last() {
				if same, err := tiles.InTiles(r.tiles.Files, m); err != nil || same {
					return err
				}
			}
			return fmt.Errorf("the stream was repaired, and goes on from %d; the tiles here end at %d and "+
				"have no such repair: copy the tiles of the host that repaired it", old.First, r.tiles.Last())
		})
}

// isOurs reports whether the old stream is the history that the tiles have: its
// record where they end, or the last before it that can be read, is theirs. Only
// then what follows it follows them: in a stream that lost its tail and grew again,
// every sequence after the loss has another record.
func (r *Repairer) isOurs(ctx context.Context, old ledger.Head) (bool, error) {
	last := r.tiles.Last()
	if last == 0 {
		return old.First <= 1, nil
	}
	if last < old.First {
		return last+1 == old.First, nil
	}
	found, same := false, false
	for at := min(last, old.Last); at >= old.First && !found && at > 0; at-- {
		if err := jetstream.Salvage(ctx, r.Ledger.Conn, r.tenant, at, at,
			func(m ledger.Message) (err error) {
				found = true
				same, err = tiles.InTiles(r.tiles.Files, m)
				return err
			}); err != nil {
			return false, err
		}
	}
	return same, nil
}

// salvage reads the old stream. What follows the tiles without a gap goes into them;
// what else is not in them is returned, and listed.
func (r *Repairer) salvage(ctx context.Context, plan *Plan, old jetstream.Inspected, ours,
	dry bool) (rest []salvagedMessage, err error) {
	if !old.There {
		return nil, nil
	}
	if err := r.tiles.FromMessage(plan.Through + 1); err != nil {
		return nil, err
	}
	next := plan.Through + 1
	err = jetstream.Salvage(ctx, r.Ledger.Conn, r.tenant, old.Head.First, old.Head.Last,
		func(m ledger.Message) error {
			if m.Sequence <= plan.Tiles {
				same, err := tiles.InTiles(r.tiles.Files, m)
				if err == nil && !same {
					plan.Dropped = ledger.AddToRanges(plan.Dropped, m.Sequence)
					rest = append(rest, salvagedMessage{m, false})
				}
				return err
			}
			for ; next < m.Sequence; next++ {
				plan.Lost = ledger.AddToRanges(plan.Lost, next)
			}
			next = m.Sequence + 1
			entries, newer := ledger.Decode(r.tenant, m)
			if ours && m.Sequence == plan.Through+1 && newer == nil {
				plan.Through = m.Sequence
				return r.extend(plan, m, entries, dry)
			}
			source, _ := ledger.ParseSubject(m.Subject)
			carried := ours && newer == nil && source.Class != ledger.ClassExecutor
			if carried {
				plan.Carried = ledger.AddToRanges(plan.Carried, m.Sequence)
			} else {
				plan.Dropped = ledger.AddToRanges(plan.Dropped, m.Sequence)
			}
			rest = append(rest, salvagedMessage{m, carried})
			return nil
		})
	for ; err == nil && next <= old.Head.Last; next++ {
		plan.Lost = ledger.AddToRanges(plan.Lost, next)
	}
	return rest, err
}

// listFolded lists as lost what the state was folded from and nothing has any more:
// the stream has lost its tail, and the tiles, too, end before it.
func (r *Repairer) listFolded(plan *Plan) {
	folded := executor.Open(r.KV, r.tenant, nil).Meta().GetApplied().GetSequence()
	for at := max(plan.Through, plan.OldLast) + 1; at <= folded; at++ {
		plan.Lost = ledger.AddToRanges(plan.Lost, at)
	}
}

// extend puts a message of the old stream into the tiles.
func (r *Repairer) extend(plan *Plan, m ledger.Message, entries []ledger.Entry, dry bool) error {
	if dry {
		return nil
	}
	for _, e := range entries {
		if e.Source.Term && e.Record != nil {
			plan.Term = max(plan.Term, e.Record.Term)
		}
		if err := r.tiles.Keep(m, e); err != nil {
			return err
		}
	}
	return r.tiles.Flush()
}

// saveOld keeps what is left of the old stream: what the tiles do not have in a file,
// a message a line, and where this host knows them, the stream's own files.
func (r *Repairer) saveOld(plan *Plan, rest []salvagedMessage) error {
	dir := r.tiles.Path(repairsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := fmt.Sprintf("%d-%d", plan.Through+1, plan.OldCreatedNs)
	if len(rest) > 0 {
		var lines bytes.Buffer
		out := json.NewEncoder(&lines)
		for _, m := range rest {
			if err := out.Encode(m); err != nil {
				return err
			}
		}
		plan.File = filepath.Join(dir, name+".jsonl")
		if err := store.WriteSynced(plan.File, lines.Bytes()); err != nil {
			return err
		}
	}
	if r.StoreDir == "" || plan.OldCreatedNs == 0 {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(r.StoreDir, "jetstream", "*", "streams",
		jetstream.StreamName(r.tenant)))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("cannot find the files of the stream below %s: %d folders, %v",
			r.StoreDir, len(found), err)
	}
	plan.Kept = filepath.Join(dir, name+"-stream")
	// of a repair that was cut off before its plan was written
	if err := os.RemoveAll(plan.Kept); err != nil {
		return err
	}
	return copyFolder(plan.Kept, found[0])
}

// copyFolder copies a folder and has the copy on disk.
func copyFolder(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return store.SyncFile(path)
	})
}

// Resume carries out the repair whose plan is beside the tiles, from wherever it is; without
// one it does nothing.
func (r *Repairer) Resume(ctx context.Context) error {
	data, err := os.ReadFile(r.tiles.Path(PlanName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var plan Plan
	if err == nil {
		err = json.Unmarshal(data, &plan)
	}
	if err != nil {
		return fmt.Errorf("cannot read the plan of a repair: %w", err)
	}
	if root := r.tiles.Edge.Root(); plan.Size != r.tiles.Size() || !bytes.Equal(plan.Root, root[:]) {
		return &ledger.Halted{Guard: "G3", Sequence: plan.Through, Problem: PlanName + " beside the " +
			"tiles is of a repair from other tiles: put these back, or move the file away"}
	}
	r.Log.Warn("the ledger is being repaired", "through", plan.Through, "actor", plan.Actor, "reason",
		plan.Reason)
	if err := r.replaceStream(ctx, plan); err != nil {
		return err
	}
	if err := r.dropAhead(plan); err != nil {
		return err
	}
	if err := os.Remove(r.tiles.Path(tiles.HaltedName)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	away := filepath.Join(r.tiles.Path(repairsFolder),
		fmt.Sprintf("%d-%d.json", plan.Through+1, plan.OldCreatedNs))
	if err := os.Rename(r.tiles.Path(PlanName), away); err != nil {
		return err
	}
	r.Log.Warn("the ledger is repaired", "through", plan.Through, "lost",
		ledger.FormatRanges(plan.Lost), "carried", ledger.FormatRanges(plan.Carried), "dropped",
		ledger.FormatRanges(plan.Dropped))
	return store.SyncFile(r.tiles.Dir)
}

// replaceStream is steps 4 to 7.
func (r *Repairer) replaceStream(ctx context.Context, plan Plan) error {
	replacement, err := jetstream.Replace(r.Ledger)
	if err != nil {
		return err
	}
	now, err := jetstream.Inspect(ctx, r.Ledger.Conn, r.tenant)
	if err != nil {
		return err
	}
	if now.There && now.Head.CreatedNs == plan.OldCreatedNs {
		if err := replacement.Delete(ctx, plan.OldCreatedNs); err != nil {
			return err
		}
	}
	made, err := replacement.Create(ctx, plan.Through+1)
	if err != nil {
		return err
	}
	if made.Ready {
		return nil
	}
	messages, err := r.Messages(plan, made.Head.CreatedNs)
	if err != nil {
		return err
	}
	for last := made.Head.Last; last < plan.Through+uint64(len(messages)); last++ {
		if err := replacement.Put(ctx, messages[last-plan.Through], last); err != nil {
			return err
		}
	}
	return replacement.Finish(ctx, plan.Through+1)
}

// Messages are what the new stream begins with.
func (r *Repairer) Messages(plan Plan, createdNs int64) ([]ledger.Message, error) {
	data, err := ledger.EncodeCommit([]*pb.Record{{Term: max(plan.Term, 1),
		Kind: &pb.Record_LedgerRepaired{LedgerRepaired: &pb.LedgerRepaired{
			Through: plan.Through, Size: plan.Size, Root: plan.Root, OldCreatedNs: plan.OldCreatedNs,
			NewCreatedNs: createdNs, OldLast: plan.OldLast,
			Lost: plan.Lost, Carried: plan.Carried, Dropped: plan.Dropped, Problem: plan.Problem,
			Reason: plan.Reason, Actor: plan.Actor,
		}}}})
	if err != nil {
		return nil, err
	}
	messages := []ledger.Message{{Subject: ledger.Source{Tenant: r.tenant,
		Class: ledger.ClassExecutor}.Subject(), Data: data}}
	if plan.File == "" {
		return messages, nil
	}
	lines, err := os.ReadFile(plan.File)
	if err != nil {
		return nil, err
	}
	for in := json.NewDecoder(bytes.NewReader(lines)); in.More(); {
		var m salvagedMessage
		if err := in.Decode(&m); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", plan.File, err)
		}
		if m.Carried {
			messages = append(messages, m.Message)
		}
	}
	return messages, nil
}

// dropAhead drops a state that was folded from what the new stream does not have.
func (r *Repairer) dropAhead(plan Plan) error {
	meta := executor.Open(r.KV, r.tenant, nil).Meta()
	if meta.Records <= plan.Size {
		return nil
	}
	r.Log.Warn("the state was folded from records that have another place now; folding again",
		"applied", meta.Applied.GetSequence())
	r.Dropped()
	return r.KV.Wipe()
}
