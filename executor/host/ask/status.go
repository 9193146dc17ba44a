package ask

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/host/store"
	"github.com/sagenbaum/sagenbaum/executor/view"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func (d *Desk) status() (api.StatusAnswer, error) {
	var shown api.Status
	if erased := d.Board.erasure(); erased != nil {
		return api.StatusAnswer{Status: api.Status{Tenant: d.Tenant, Mode: api.ModeErased,
			Erased: erased, Holder: erased.Holder}}, nil
	}
	d.look(func(r *view.Reader) {
		shown = r.Status()
		checkpoint := d.Proof.View(r.Checkpoint())
		shown.Checkpoint = &checkpoint
	})
	d.Board.head(LookMax)
	shown.Cascade = d.Cascade
	shown.Waiting = d.Board.unserved()
	d.showCopy(&shown)
	shown.Disks = d.Disks()
	shown.Lossy = d.Lossy
	shown.RefusedReplies, shown.UnreadFields = d.Workers.notCounted()
	full := d.showRoom(&shown)
	d.showBlobs(&shown)
	shown.Entry, shown.Effective = d.Entry()
	b := d.Board
	b.mu.Lock()
	defer b.mu.Unlock()
	shown.SinceNs, shown.Folding = b.sinceNs, d.Folding()
	shown.Mode, shown.Problem = b.shown()
	shown.Last, shown.Halted = max(b.last, shown.Applied), b.halt
	if b.refusal != "" && shown.Mode != api.ModeDegraded {
		shown.Problem = b.refusal
	}
	if full && shown.Problem == "" {
		shown.Problem = "the ledger is full: agents and sources store nothing until its limit is " +
			"raised: sagenbaum tenant limits " + d.Tenant + " --bytes N"
	}
	for _, d := range shown.Disks {
		if d.FreeBytes < store.RoomMin && shown.Problem == "" { // what is to be written there waits
			shown.Problem = fmt.Sprintf("the disk of the %s is full", d.Store)
		}
	}
	return api.StatusAnswer{Status: shown}, nil
}

// showRoom adds what the ledger takes of what it may, and reports whether it is full.
func (d *Desk) showRoom(shown *api.Status) (full bool) {
	used, most, full := d.Room()
	if most == 0 {
		return false
	}
	if shown.May == nil { // its holder has not said it yet
		shown.May = &api.TenantMay{}
	}
	shown.May.Limits = append(shown.May.Limits,
		api.LimitUse{Limit: api.LimitBytes, Used: used, Most: most})
	return full
}

// showBlobs adds what the blobs take of what they may, where there are some.
func (d *Desk) showBlobs(shown *api.Status) {
	room := d.Blobs.Room()
	if room.Entries == 0 {
		return
	}
	if shown.May == nil {
		shown.May = &api.TenantMay{}
	}
	shown.May.Limits = append(shown.May.Limits,
		api.LimitUse{Limit: api.LimitBlobs, Used: room.Used, Most: room.Most})
}

// scrub runs a pass now, at full speed.
func (d *Desk) scrub() (answer api.ScrubAnswer, err error) {
	ctx, cancel := d.untilGone()
	defer cancel()
	answer, err = d.Scrubber.Scrub(ctx, d.Board.Records(), d.Board.Copies(), false)
	if err != nil {
		return answer, alone{fmt.Errorf("cannot scrub: %w", err)}
	}
	if answer.Differs != 0 {
		d.Board.awaitHalt(ctx)
	}
	return answer, nil
}

// showCopy is what status says of the tiles.
func (d *Desk) showCopy(shown *api.Status) {
	tiles := d.Board.Copies()
	if tiles == nil {
		return
	}
	copies := api.Copy{Records: tiles.Size(), Last: tiles.Last()}
	d.look(func(r *view.Reader) { copies.Repairs = r.Repairs() })
	d.Scrubber.View(&copies)
	shown.Copy = &copies
}

// hostLook is how long a host looks at the stream and at the keys for its answer to the question
// that all hosts answer: servers without a quorum say nothing, and whoever asks does not wait.
const hostLook = 100 * time.Millisecond

// host is the one question that every host answers, also one in standby.
func (d *Desk) host() (api.HostAnswer, error) {
	var looks sync.WaitGroup
	looks.Go(func() { d.Board.head(hostLook) })
	noKey, noTenantKey := "", ""
	if d.Board.erasure() == nil {
		d.look(func(r *view.Reader) { noKey = d.Proof.KeyProblem(r.Key()) })
		ctx, cancel := context.WithTimeout(context.Background(), hostLook)
		defer cancel()
		noTenantKey = d.Keys.Problem(ctx)
	}
	looks.Wait()
	b := d.Board
	b.mu.Lock()
	defer b.mu.Unlock()
	mode, problem := b.shown()
	forked := ""
	if mode == api.ModeStandby { // else it does not fold, and the tenant may have another holder
		forked = d.Proof.Forked()
	}
	return api.HostAnswer{Host: api.Host{
		Host: d.Holder, Mode: mode, Problem: problem, Applied: b.applied,
		Last: max(b.last, b.applied), NoKey: noKey,
		NoTenantKey: noTenantKey, Forked: forked, Process: d.Process, At: processAt(),
	}}, nil
}

// processAt says where this process runs, for people.
func processAt() string {
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	return fmt.Sprintf("machine %s, process %d", machine, os.Getpid())
}
