package replay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/sagenbaum/sagenbaum/coordinator"
	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/coordinator/internal/value"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// handlers are those of one run. A version of them is offered to the executor
// once this process has all handlers that the ledger holds of it, so that no command
// comes to a process that has lost one.
type handlers struct {
	claim  *coordinator.Claim
	agent  coordinator.Config // Conn, Tenant, Agent and Logger
	config Config

	mu   sync.Mutex
	held map[string]*heldHandler // by action
	// by version: recorded actions that the function has not come to yet
	needed map[string]map[string]bool
	served map[string]bool // by version
	worker *worker.Worker  // nil until a version is served

	compiled map[string]compiledHandler // by version and capability; guarded by the run's mu
}

// heldHandler is a handler with what it gets to know of its action.
type heldHandler struct {
	call                  Handler
	capability            string // of the forward
	input, output, before json.RawMessage
	externalRef           string
	incomplete            bool // output is not all that was returned
}

type compiledHandler struct {
	written  contract.Contract
	compiled *compile.Compiled
}

func newHandlers(claim *coordinator.Claim, config Config) *handlers {
	return &handlers{
		claim: claim, agent: claim.Config(), config: config,
		held: map[string]*heldHandler{}, needed: map[string]map[string]bool{},
		served:   map[string]bool{},
		compiled: map[string]compiledHandler{},
	}
}

// capability names the handlers of one version: all of them are one subscription,
// and a command says which action it is about. Function and plan are in it as a digest,
// with as much of the function's name as there is room for.
func (h *handlers) capability(version string) string {
	sum := sha256.Sum256([]byte(h.agent.Tenant + "\n" + h.agent.Agent + "\n" +
		h.config.Function + "\n" + h.config.Plan.ID))
	digest := hex.EncodeToString(sum[:5])
	taken := len(api.HandlerPrefix) + len(h.agent.Agent) + 1 + 1 + len(digest) + 1 + len(version)
	room := ledger.TokenLenMax - taken
	return api.HandlerPrefix + h.agent.Agent + "." +
		h.config.Function[:min(len(h.config.Function), room)] + "_" + digest + "." + version
}

// owe says which recorded actions need their handlers.
func (h *handlers) owe(past map[string]*coordinator.PastAction, owed map[string]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, p := range past {
		if p.HandlerVersion == "" || !owed[id] {
			continue
		}
		if h.needed[p.HandlerVersion] == nil {
			h.needed[p.HandlerVersion] = map[string]bool{}
		}
		h.needed[p.HandlerVersion][id] = true
	}
}

// put holds the handler of an action, before the pair of a new one can be stored,
// and offers its version when that is complete. past is what is recorded; nil: nothing.
func (h *handlers) put(
	a Action, version string, call Handler, input json.RawMessage, past *coordinator.PastAction,
) error {
	if call == nil {
		return nil // a worker undoes it, or another process has the recorded version
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[a.ID] == nil {
		held := &heldHandler{call: call, capability: a.Capability, input: input}
		if past != nil {
			held.output, held.before, held.externalRef = output(past), past.Before, past.ExternalRef
			held.incomplete = past.Incomplete
		}
		h.held[a.ID] = held
	}
	delete(h.needed[version], a.ID)
	if h.served[version] || len(h.needed[version]) > 0 {
		return nil
	}
	return h.serve(version)
}

// serve offers a version. Called with mu held.
func (h *handlers) serve(version string) error {
	if h.worker == nil {
		w, err := worker.New(worker.Config{Conn: h.agent.Conn, Tenant: h.agent.Tenant,
			Name: h.agent.Agent, Logger: h.agent.Logger})
		if err != nil {
			return err
		}
		h.worker = w
	}
	if err := h.worker.Handle(h.capability(version), h.undo); err != nil {
		return err
	}
	h.served[version] = true
	return nil
}

// undo carries out a command.
func (h *handlers) undo(ctx context.Context, c api.Command) (worker.Result, error) {
	action, _, _ := strings.Cut(c.Action, "~") // of a duty: that of the action
	h.mu.Lock()
	held := h.held[action]
	var u UndoCall
	incomplete := held != nil && held.incomplete
	if held != nil {
		u = UndoCall{
			Plan: c.Plan, Action: c.Action, Capability: held.capability, Key: c.Key, Attempt: int(c.Attempt),
			ForwardKey: ledger.Key(h.agent.Tenant, h.config.Plan.ID, action, ledger.PurposeDo),
			Input:      held.input, Output: held.output, Before: held.before, ExternalRef: cmp.Or(
				c.ExternalRef, held.externalRef), Blind: c.BlindCleanup,
		}
	}
	h.mu.Unlock()
	if held == nil { // registered by another process, after this one had read what is recorded
		return worker.Result{}, fmt.Errorf("this process has no handler of action %q", c.Action)
	}
	if incomplete { // the process that had all of it is gone
		return worker.Result{}, worker.Stop(fmt.Errorf(
			"the output of action %q was too large to be kept, and its handler may need it", c.Action))
	}
	return worker.Result{}, held.call(ctx, u)
}

// completed keeps what a forward of this process has returned.
func (h *handlers) completed(action string, before json.RawMessage, outcome coordinator.Outcome) {
	output, err := value.Encode("outcome.output", outcome.Output)
	if err != nil {
		output = nil // it is not recorded either
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[action]; held != nil {
		held.output, held.externalRef = output, outcome.ExternalRef
		if before != nil {
			held.before = before
		}
	}
}

// close takes no further command, and waits a moment for what is at work: the
// executor asks again for what it gives up.
func (h *handlers) close() {
	h.mu.Lock()
	w := h.worker
	h.mu.Unlock()
	if w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), coordinator.ForwardGrace)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		h.agent.Logger.Warn("handlers were interrupted", "tenant", h.agent.Tenant,
			"plan", h.config.Plan.ID, "error", err)
	}
}

// compile finds the contract of a call, its handler, and the version of that: no handler where a
// worker undoes it, or where only another process can. Called with mu held.
func (r *run) compile(ctx context.Context, a Action, past *coordinator.PastAction) (
	call Handler, under *compile.Compiled, version string, err error,
) {
	u := a.Undo
	if u == nil {
		under, err = r.claim.Contract(ctx, a.Capability)
		return nil, under, "", err
	}
	version, call = u.Version, u.Handler
	if version == "" {
		if version, err = BuildVersion(); err != nil {
			return nil, nil, "", ledger.Refuse("action.undo.version", "empty",
				fmt.Sprintf("a version, as that of this program is not known: %v", err))
		}
	}
	switch {
	case call == nil:
		return nil, nil, "", ledger.Refuse("action.undo.handler", "missing", "a function")
	case !ledger.ValidToken(version) || len(version) > versionMax:
		return nil, nil, "", ledger.Refuse("action.undo.version", fmt.Sprintf("%q", version),
			fmt.Sprintf("1 to %d letters, digits, '-' or '_'", versionMax))
	}
	if past != nil && past.HandlerVersion != version {
		if earlier := u.Earlier[past.HandlerVersion]; earlier != nil {
			version, call = past.HandlerVersion, earlier
		} else {
			call = nil // compare refuses it, or it is left to another process
		}
	}
	under, err = r.handlers.waiting(a.Capability, version, u.Contract, past)
	return call, under, version, err
}

// waiting is the contract of a handler, which is waited for as long as a contract can say if it
// says nothing: its process may be down for days. What was registered while that was as for workers
// keeps the contract that it has.
func (h *handlers) waiting(capability, version string, written contract.Contract,
	past *coordinator.PastAction) (*compile.Compiled, error) {
	longer := written
	longer.UnservedAfter = cmp.Or(written.UnservedAfter, ledger.UnservedMax)
	under, err := h.contract(capability, version, longer)
	if err != nil || past == nil || bytes.Equal(past.Registered.ContractDigest, under.Digest[:]) {
		return under, err
	}
	earlier, err := h.contract(capability, version, written)
	if err == nil && bytes.Equal(past.Registered.ContractDigest, earlier.Digest[:]) {
		return earlier, nil
	}
	return under, err // compare says what that means
}

// contract is that of a handler: as written beside it, with its capability as the
// inverse.
func (h *handlers) contract(capability, version string,
	written contract.Contract) (*compile.Compiled, error) {
	key := version + "\n" + capability
	if known, ok := h.compiled[key]; ok && reflect.DeepEqual(known.written, written) {
		return known.compiled, nil
	}
	const field = "action.undo.contract."
	t := written
	switch {
	case t.Capability != "" && t.Capability != capability:
		return nil, ledger.Refuse(field+"capability", fmt.Sprintf("%q", t.Capability),
			"nothing, or that of the action")
	case t.Class != "" && t.Class != contract.Compensable:
		return nil, ledger.Refuse(field+"class", string(t.Class),
			"nothing, or compensable: its handler undoes it")
	}
	t.Capability, t.Class = capability, contract.Compensable
	inverse := contract.Inverse{}
	if t.Inverse != nil {
		inverse = *t.Inverse
	}
	if inverse.Call != "" || len(inverse.With) > 0 || inverse.Agent != nil || inverse.Actuator != "" &&
		inverse.Actuator != contract.ActuatorNATS || inverse.WorkerVersion != "" {
		return nil, ledger.Refuse(field+"inverse", "names a worker or its arguments",
			"attempts, backoff, timeout, ...: the handler is what undoes it, and its version is "+
				"beside it")
	}
	inverse.Call = h.capability(version)
	t.Inverse = &inverse
	compiled, err := h.claim.Compile(t)
	if err == nil {
		h.compiled[key] = compiledHandler{written, compiled}
	}
	return compiled, err
}
