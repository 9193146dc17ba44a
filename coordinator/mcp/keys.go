package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// A client whose connection broke makes its call again on another one, which has another plan. So
// the folder of a server keeps under which plan a call with a key was made that names none.

// once is a call with a key, as it is kept.
type once struct {
	Plan  string    `json:"plan"`
	Print string    `json:"print"`
	At    time.Time `json:"at"`

	path string
}

const (
	onceFolder = "keys"
	onceSuffix = ".json"
	onceLock   = ".lock"
)

// onceOf waits until no other call with the key of this one is under way, and reads what is kept of
// an equal one. Its plan is empty where there is none.
func (g *Gateway) onceOf(ctx context.Context, r request, print string) (o *once, release func(),
	err error) {
	sum := sha256.Sum256([]byte(strings.Join([]string{g.config.Tenant, g.config.Agent,
		r.server.instance, r.key}, "\x00")))
	path := filepath.Join(r.server.config.State, onceFolder, hex.EncodeToString(sum[:16]))
	lock, err := newLock(path + onceLock)
	if err != nil {
		return nil, nil, err
	}
	unlock, err := lock.take(ctx)
	if err != nil {
		lock.close()
		return nil, nil, err
	}
	o = &once{path: path + onceSuffix}
	raw, err := os.ReadFile(o.path)
	if err == nil {
		err = json.Unmarshal(raw, o)
	}
	if err != nil && !os.IsNotExist(err) {
		g.logger.Warn("whether a call with a key was made before is not kept", "error", err)
	}
	if err != nil || o.Print != print || time.Since(o.At) > KeyKept {
		o.Plan = ""
	}
	o.Print = print
	return o, func() { unlock(); lock.close() }, nil
}

// under keeps the plan of a call that is made now.
func (o *once) under(plan string) error {
	if o == nil || o.Plan == plan {
		return nil
	}
	o.Plan, o.At = plan, time.Now()
	raw, err := json.Marshal(o)
	if err == nil {
		err = replaceFile(o.path, raw)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the key of a call: %w", err)
	}
	return nil
}

// again is what became of a call that was made under another plan: the plan, where the call is to
// be made, or recalled, under it; or what is said instead of a call. Neither: it has no effect any
// more.
func (g *Gateway) again(ctx context.Context, o *once, action string) (t *tracked,
	instead *sdk.CallToolResult) {
	const before = "the call with this key was made before, under plan "
	late, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	past, err := g.agent.Past(late, o.Plan, 0)
	var refused *ledger.Refused
	switch {
	case errors.As(err, &refused): // its gateway was killed before it was opened
		return nil, nil
	case err != nil:
		return nil, problem(before+"%s, and what became of it is not known: %v. Nothing was done now.",
			o.Plan, err)
	case past.State == ledger.StateOpen:
		if t, err = g.plans.of(ctx, nil, o.Plan, true); err != nil {
			return nil, problem(before+"%s: %v. Nothing was done now.", o.Plan, err)
		}
		return t, nil
	}
	for _, a := range past.Actions {
		if a.Action == action && a.DutyOf == "" && !hasNoEffect(a) {
			return nil, problem(before+"%s: %s. Nothing was done now.", o.Plan, ended(past))
		}
	}
	return nil, nil
}

// hasNoEffect reports whether an action of a plan that is not open has none, now and later.
func hasNoEffect(a coordinator.PastUndo) bool {
	switch a.Undo {
	case "compensated", "skipped", "dropped":
		return true
	case "":
		return a.Undone || a.Outcome == api.OutcomeFailed
	}
	return a.Outcome == api.OutcomeFailed
}

// pruneKeys removes what is kept of keys for longer than it counts.
func (s *Server) pruneKeys() error {
	folder := filepath.Join(s.config.State, onceFolder)
	paths, err := filepath.Glob(filepath.Join(folder, "*"+onceLock))
	old := func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || time.Since(info.ModTime()) > 2*KeyKept
	}
	for _, lock := range paths {
		path := strings.TrimSuffix(lock, onceLock) + onceSuffix
		if old(lock) && old(path) {
			err = errors.Join(err, os.Remove(lock))
			if failed := os.Remove(path); !os.IsNotExist(failed) {
				err = errors.Join(err, failed)
			}
		}
	}
	drafts, failed := filepath.Glob(filepath.Join(folder, draftPrefix+"*"))
	err = errors.Join(err, failed)
	for _, draft := range drafts { // of a gateway that was killed
		if !old(draft) {
			continue
		}
		if failed := os.Remove(draft); !os.IsNotExist(failed) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
