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
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// What a client may say in the metadata of a call, and a result says of it.
const (
	planMeta   = "sagenbaum/plan"   // the plan that the call belongs to
	keyMeta    = "sagenbaum/key"    // an idempotency key
	actionMeta = "sagenbaum/action" // of a result: what the call is in the plan

	planHeader = "Sagenbaum-Plan" // the same over HTTP
	keyHeader  = "Idempotency-Key"
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

// keyed is a call with a key of its client.
type keyed struct {
	print  string
	ended  chan struct{}
	result *sdk.CallToolResult // nil: it ended without one, or is too large
	err    error
}

// keyedAction is the id of the action of a call with a key.
func keyedAction(key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key-" + hex.EncodeToString(sum[:16])
}

// claim finds the call with a key, or makes this one it. Errors: *ledger.Refused for a key of
// another call.
func (t *tracked) claim(action, print string) (k *keyed, first bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.results[action]; k != nil {
		if k.print != print {
			return nil, false, ledger.Refuse("_meta["+keyMeta+"]", "the key of another call",
				"a key of its own for each call")
		}
		return k, false, nil
	}
	if len(t.results) >= resultsMax {
		for old, k := range t.results {
			select {
			case <-k.ended:
				delete(t.results, old) // the ledger knows of it still
			default:
			}
			if len(t.results) < resultsMax {
				break
			}
		}
	}
	k = &keyed{print: print, ended: make(chan struct{})}
	t.results[action] = k
	return k, true, nil
}

// finish keeps the result of a call with a key; one that was not taken may be made again.
func (t *tracked) finish(
	action string,
	k *keyed,
	result *sdk.CallToolResult,
	err error,
	again bool,
) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k.result, k.err = result, err
	if again {
		delete(t.results, action)
	}
	close(k.ended)
}

// keyed makes a call with a key under a plan, or says what became of the one before.
func (g *Gateway) keyed(ctx context.Context, t *tracked, r request, print string,
	o *once) (*sdk.CallToolResult, error) {
	action := keyedAction(r.key)
	k, first, err := t.claim(action, print)
	switch {
	case err != nil:
		return problem("%v. Nothing was done.", err), nil
	case first:
		var result *sdk.CallToolResult
		if failed := o.under(t.plan.ID()); failed != nil {
			result = problem("%v. Nothing was done.", failed)
		} else {
			result, err = g.act(ctx, t, r, print, action)
			_ = t.plan.Flush(ctx) // another gateway reads what became of it; what is lost it resumes
		}
		t.finish(action, k, keepable(result), err, t.found(action) == nil)
		return result, err
	}
	select {
	case <-k.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := g.look(ctx, t); err != nil {
		return problem("the call with this key was made before, and whether it was undone since is "+
			"not known: %v. Nothing was done now.", err), nil
	}
	if e := t.found(action); e != nil && e.State == stateUndone {
		return problem("the call with this key was made before, and was undone since. Nothing was " +
			"done now."), nil
	}
	if k.result == nil && k.err == nil {
		return problem("the call with this key has happened; its result was too large to be kept"), nil
	}
	return k.result, k.err
}

// keepable is a result that is kept for a call that is made again with its key; nil: it is too
// large.
func keepable(result *sdk.CallToolResult) *sdk.CallToolResult {
	if raw, err := json.Marshal(result); err != nil || len(raw) > 2*resultSize {
		return nil // it has its text beside what was read of it
	}
	return result
}

// again is what became of a call that was made under another plan: the plan, where the call is to
// be made, or recalled, under it; or what is said instead of a call. Neither: it has no effect any
// more.
func (g *Gateway) again(ctx context.Context, r request, o *once, action string) (t *tracked,
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
	}
	a := made(past, action)
	switch t := g.plans.known(nil, o.Plan); {
	case past.State != ledger.StateOpen && (a == nil || hasNoEffect(a)):
		return nil, nil
	case past.State != ledger.StateOpen:
		return nil, problem(before+"%s: %s. Nothing was done now.", o.Plan, ended(past))
	case t != nil:
		return t, nil
	case a != nil && hasNoEffect(a):
		return nil, nil
	}
	if instead = recall(ctx, g, r, o.Plan, action); instead != nil {
		return nil, instead
	}
	if t, err = g.plans.of(ctx, nil, o.Plan, true); err != nil {
		return nil, problem(before+"%s: %v. Nothing was done now.", o.Plan, err)
	}
	return t, nil
}

// recall is the result of a call with a key that another process has made under a plan: it is read,
// and the plan stays with that process. nil: nothing is recorded that answers the call, or the plan
// is not open.
func recall(ctx context.Context, g *Gateway, r request, plan,
	action string) *sdk.CallToolResult {
	late, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	past, err := g.agent.Past(late, plan, 0)
	if err != nil || past.State != ledger.StateOpen {
		return nil // who goes on with it hears why
	}
	a := made(past, action)
	if a == nil {
		return nil
	}
	switch _, _, print, err := registers(g, r); {
	case err != nil || print != pastPrint(a.Capability, a.Input):
		return nil
	case a.Undo == stateStaged:
		return g.stagedResult(plan, r, action)
	case a.Outcome == api.OutcomeUnknown:
		return nil
	case a.Outcome != api.OutcomeCompleted || a.Undone:
		return problem("the call with this key was made before: %v. Nothing was done now.", &a.Recorded)
	}
	there, err := g.agent.Outlived(late, plan)
	if err != nil {
		return problem("the call with this key was made before, and its result is not known now: %v. "+
			"Nothing was done now.", err)
	}
	for _, recorded := range there.Recorded() {
		if recorded.Action == action {
			return marked(recalled(recorded.Output), plan, action)
		}
	}
	return nil
}

// made finds the call with a key among the actions of a plan.
func made(past coordinator.Past, action string) *coordinator.PastUndo {
	i := slices.IndexFunc(past.Actions, func(a coordinator.PastUndo) bool {
		return a.Action == action && a.DutyOf == ""
	})
	if i < 0 {
		return nil
	}
	return &past.Actions[i]
}

// hasNoEffect reports whether an action that a connection does not go on with has none, now and
// later.
func hasNoEffect(a *coordinator.PastUndo) bool {
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
	begun, failed := filepath.Glob(filepath.Join(folder, "*"+begunSuffix))
	err = errors.Join(err, failed)
	for _, file := range begun {
		if info, gone := os.Stat(file); gone == nil && time.Since(info.ModTime()) > KeptFor {
			err = errors.Join(err, os.Remove(file))
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

// A call of an undo that is not to be made again is noted in the folder of the server before it is
// made. Where its process is killed then, or answers after the time of its attempt, the next
// attempt must not make it again.

const begunSuffix = ".undo"

func (s *Server) begunFile(key string) string {
	return filepath.Join(s.config.State, onceFolder, key+begunSuffix)
}

// begins notes a call of the undo with a key. Without the note the call is not made.
func (s *Server) begins(key, call string) error {
	file := s.begunFile(key)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = replaceFile(file, []byte(call))
	}
	if err != nil {
		return fmt.Errorf("cannot note that %s is called, so it was not: %w", call, err)
	}
	return nil
}

// interrupted refuses an undo that may have been made by an attempt whose end is not known. Its
// owner may have it made again, so it is refused once. Errors: *stopped, or why that is not known.
func (s *Server) interrupted(key string) error {
	file := s.begunFile(key)
	call, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = os.Remove(file)
	}
	if err != nil {
		return fmt.Errorf("whether an earlier attempt of this undo was interrupted is not known: %w", err)
	}
	return unrepeated(errInterrupted, true, []string{string(call) + mayHaveBeen})
}

// ends forgets what begins has noted.
func (s *Server) ends(key string) {
	if err := os.Remove(s.begunFile(key)); err != nil && !os.IsNotExist(err) {
		s.logger.Warn("an undo that has ended is noted as one that has begun", "error", err)
	}
}

// agreed is what a client says of a call, in one place or in several.
type agreed struct{ text, at string }

// say takes what is said at a place. Where another place says something else, which of the two is
// meant is not known.
func (t *agreed) say(at, text string) error {
	if t.at != "" && t.text != text {
		return ledger.Refuse(at, fmt.Sprintf("%q, and %s has %q", value(text), t.at, value(t.text)),
			"the same in both, or one of them alone")
	}
	t.text, t.at = text, at
	return nil
}

// metadata reads what a client says in metadata: one that means to say something, and does not,
// must not have its call made in another plan, or twice.
func (t *agreed) metadata(meta sdk.Meta, name string) error {
	said, given := meta[name]
	if !given {
		return nil
	}
	at := "_meta[" + name + "]"
	text, ok := said.(string)
	if !ok || text == "" {
		raw, err := encode(said)
		if err != nil {
			return err
		}
		return ledger.Refuse(at, value(string(raw)), "a text that is not empty, or none")
	}
	return t.say(at, text)
}

// header reads what a client says in a header, as metadata does.
func (t *agreed) header(extra *sdk.RequestExtra, name string) error {
	if extra == nil {
		return nil
	}
	said := extra.Header.Values(name)
	switch {
	case len(said) == 0:
		return nil
	case len(said) > 1 || said[0] == "":
		return ledger.Refuse("header "+name, value(fmt.Sprintf("%q", said)),
			"one text that is not empty, or no such header")
	}
	return t.say("header "+name, said[0])
}
