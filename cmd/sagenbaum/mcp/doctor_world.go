package mcp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger/access"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/doctor"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What the doctor looks at around a server: its package, the ledger, who undoes, and the folder
// of images.

// pinned is a package with its version, as npx takes it.
var pinned = regexp.MustCompile(`^(?:@[^/@]+/)?[^/@]+@([0-9][0-9A-Za-z.+-]*)$`)

// packageVersion finds out which version of its package a command starts: the one that it names,
// or the one whose program it starts; empty, where neither says so.
func packageVersion(command string, args []string) string {
	for _, arg := range append([]string{command}, args...) {
		if found := pinned.FindStringSubmatch(arg); found != nil {
			return found[1]
		}
	}
	for _, arg := range append([]string{command}, args...) {
		program, err := filepath.EvalSymlinks(arg)
		if info, failed := os.Stat(arg); err != nil || failed != nil || info.IsDir() {
			continue
		}
		for dir := filepath.Dir(program); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			var about struct{ Version string }
			data, err := os.ReadFile(filepath.Join(dir, "package.json"))
			if err == nil && json.Unmarshal(data, &about) == nil && about.Version != "" {
				return about.Version
			}
		}
	}
	return ""
}

// examineConnection reaches the ledger as the gateway does, and asks who undoes.
func (p *patient) examineConnection(cmd *cobra.Command, undo string) {
	gateway, err := p.asGateway(cmd)
	if err != nil {
		p.wrong("ledger", err)
		return
	}
	c, err := gateway.Connect()
	if err != nil {
		p.wrong("ledger", err)
		return
	}
	defer c.Close()
	if self := gateway.Self; p.gateway != nil && self != nil && self.Role != access.Agent &&
		self.Role != access.Local {
		p.say("FAIL", "ledger", "sagenbaum user add NAME --role agent --out NAME.creds, and --creds "+
			"of it", "%s lets the gateway in as a user of role %s, which begins no plan", c.Server,
			self.Role)
		return
	}
	status, err := c.Status(cmd.Context())
	var f *cli.Failure
	switch {
	case errors.As(err, &f) && f.Code == cli.ExitNotAllowed:
		p.say("ok", "ledger", "", "%s lets the gateway in; who holds tenant %s it may not ask",
			c.Server, c.Tenant)
	case err != nil:
		p.wrong("ledger", c.WithoutHolder(cmd.Context(), err))
		return
	case status.Mode != api.ModeHolding || status.Problem != "":
		found := doctor.ExamineMode(status, time.Now())
		p.say(found.State, "ledger", found.Next, "%s", found.Text)
	default:
		p.say("ok", "ledger", "", "%s, tenant %s, is reached and held", c.Server, c.Tenant)
	}
	p.examineWorker(cmd, c, undo)
}

// asGateway are the settings of the gateway that the configuration starts: its flags, else the
// environment that its client gives it, else those of the doctor itself.
func (p *patient) asGateway(cmd *cobra.Command) (*cli.Settings, error) {
	if p.gateway == nil {
		return p.settings, nil
	}
	return p.entry.settings(cmd.Root().PersistentFlags())
}

// examineHost says whether a host that is given the configuration would undo.
func (p *patient) examineHost() {
	if p.o.file == "" {
		return
	}
	var f *cli.Failure
	h := hosted{entry: p.entry, file: p.o.file}
	err := h.fits(&options{file: p.o.file, flag: "--mcp"})
	if errors.As(cli.Failed("go on", err), &f) {
		p.say("warn", "host", f.Hint, "'sagenbaum serve --mcp %s' does not start it for an undo: %v",
			p.o.file, err)
		return
	}
	p.say("ok", "host", "", "'sagenbaum serve --mcp %s' starts it when an undo needs it", p.o.file)
}

// examineWorker asks whether something carries out the undos of a server now.
func (p *patient) examineWorker(cmd *cobra.Command, c *cli.Client, undo string) {
	if undo == "" {
		return
	}
	next := p.worker
	var answer api.ServedAnswer
	question := api.ServedQuery{Calls: []api.ServedCall{{Capability: undo, Undo: true}}}
	for _, capability := range p.staged {
		question.Calls = append(question.Calls, api.ServedCall{Capability: capability, Undo: true})
	}
	ask := func(c *cli.Client) (err error) {
		answer, err = cli.Ask(cmd.Context(), c, api.WorkerServed, question)
		return err
	}
	err := ask(c)
	if err != nil && p.gateway != nil { // an agent may not: the doctor's own user perhaps may
		own := *p.settings
		own.Tenant = c.Tenant
		err = own.With(ask)
	}
	for i := 1; err == nil && i < len(answer.Calls); i++ {
		if answer.Calls[i].Served == api.ServedNo && answer.Calls[0].Served != api.ServedNo {
			p.say("warn", "worker", next, "nothing makes calls under %s, which are staged: what "+
				"serves %s was started without their pack", answer.Calls[i].Capability, undo)
		}
	}
	switch {
	case err != nil || len(answer.Calls) == 0:
		p.say("skip", "worker", "ask as an operator: --creds FILE",
			"not checked whether something serves %s: %v", undo, err)
	case answer.Calls[0].Served == "yes":
		p.say("ok", "worker", "", "%s is served", undo)
	case answer.Calls[0].Served == "unknown" && answer.Calls[0].HeardNs > 0:
		p.say("ok", "worker", "", "%s was served %s; whether it is now the server does not tell",
			undo, cli.Relative(answer.Calls[0].HeardNs, time.Now()))
	case answer.Calls[0].Served == "unknown":
		p.say("skip", "worker", next, "whether something serves %s the server does not tell", undo)
	default:
		p.say("warn", "worker", next,
			"nothing serves %s now: while no gateway runs, nothing is undone, and nothing that is "+
				"staged is made", undo)
	}
}

// What the disk of the images should have free: below the first an image may not fit.
const (
	roomLeast = 64 << 20
	roomGood  = 1 << 30
)

// examineState looks whether images, trash and locks can be written.
func (p *patient) examineState() {
	state := p.config.State
	if state == "" {
		return // said with the packs
	}
	for _, dir := range []string{state, filepath.Join(state, "blobs"), filepath.Join(state, "trash")} {
		place := dir
		for {
			if _, err := os.Stat(place); err == nil || place == filepath.Dir(place) {
				break
			}
			place = filepath.Dir(place)
		}
		probe, err := os.CreateTemp(place, ".doctor-")
		if err != nil {
			p.say("FAIL", "state", "make it writable, or --state DIR at gateway and worker",
				"%s cannot be written: no call with an effect is made: %v", dir, err)
			return
		}
		_ = probe.Close() // nothing was written
		if err := os.Remove(probe.Name()); err != nil {
			p.wrong("state", err)
			return
		}
		if dir != state {
			continue
		}
		if room, known := roomOf(place); known && room < roomGood {
			level := "warn"
			if room < roomLeast {
				level = "FAIL"
			}
			p.say(level, "state", "make room, or --state DIR on another disk",
				"%s has %d MiB free: images of large files may not fit", state, room>>20)
			return
		}
	}
	p.say("ok", "state", "", "%s can be written", state)
}
