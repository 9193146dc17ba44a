package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/coordinator/worker"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// Serve has a worker carry out the undos of a server, and make the calls that are staged, from now
// on. Errors as of worker.Handle.
func (s *Server) Serve(w *worker.Worker) error {
	err := w.Handle(s.Undo(), s.undo)
	for _, capability := range s.Deliveries() {
		if err == nil {
			err = w.Handle(capability, s.deliver)
		}
		if err == nil {
			err = w.Answer(capability, s.delivered)
		}
	}
	return err
}

// deliveryArguments are those of a call that was staged, and of the question whether it was made.
type deliveryArguments struct {
	Tool   string          `json:"tool"`
	Recipe string          `json:"recipe"`
	Input  json.RawMessage `json:"input"`
}

// deliver makes a call that was staged, under its key. An error says that it was not made, unless
// it is one of doubt.
func (s *Server) deliver(ctx context.Context, c api.Command) (worker.Result, error) {
	var in deliveryArguments
	if err := json.Unmarshal(c.Arguments, &in); err != nil {
		return worker.Result{}, worker.Stop(&stopped{"arguments", err.Error()})
	}
	at, input, leave, err := s.place(ctx, in.Input, Recipe{Undo: []Step{{Tool: in.Tool}}})
	if err != nil {
		return worker.Result{}, notMade(err)
	}
	defer leave()
	tool := s.pack.Tools[in.Tool]
	if !tool.staged() || s.Delivery(in.Tool) != c.Capability {
		return worker.Result{}, worker.Stop(&stopped{"tool", fmt.Sprintf("the contracts of %s do not "+
			"say that calls of %q are staged", s.config.Name, in.Tool)})
	}
	call, err := calling(in.Tool, input)
	if err == nil && tool.Key != "" {
		call.params, err = withKey(call.params, tool.Key, c.Key)
	}
	if err != nil {
		return worker.Result{}, worker.Stop(&stopped{"arguments", err.Error()})
	}
	result, settled, err := at.act(ctx, call)
	<-settled // the next call, or attempt, must not meet it
	if err == nil && !failed(result) {
		return worker.Result{Output: map[string]json.RawMessage{"result": structured(result)}}, nil
	}
	doubt, err := s.unmade(call.tool, tool, input, result, err)
	if doubt {
		err = worker.InDoubt(err)
	}
	return worker.Result{}, err
}

// unmade is what it means that a call that was staged, or is of an undo, has ended with an error.
// doubt: it may have been made.
func (s *Server) unmade(name string, tool Tool, input json.RawMessage, result *sdk.CallToolResult,
	failed error) (doubt bool, err error) {
	var wire *jsonrpc.Error
	switch {
	case errors.Is(failed, errNotReached):
		return false, notMade(failed)
	case errors.As(failed, &wire) && (wire.Code == jsonrpc.CodeMethodNotFound ||
		wire.Code == jsonrpc.CodeInvalidParams):
		return false, worker.Stop(&stopped{"refused", failed.Error()})
	case failed != nil:
		return true, failed
	}
	err = errors.New(value(text(result)))
	vars := triggers.BindingVars{Input: input, Result: structured(result)}
	return !s.notTaken(name, tool, vars), err
}

// notTaken reports whether the contract of a tool says of its error that nothing has happened. A
// condition without an answer does not, and is said: it would never be true.
func (s *Server) notTaken(name string, tool Tool, vars triggers.BindingVars) bool {
	if tool.NotTaken == "" {
		return false
	}
	not, err := s.x.holds(tool.NotTaken, vars)
	if err != nil {
		s.logger.Warn("the not_taken of a tool does not say whether a call that has failed was made: "+
			"it may have been", "server", s.config.Name, "tool", name, "error", err)
	}
	return err == nil && not
}

// notMade is an error before a call: its time may be over, and yet it is known not to be made.
func notMade(err error) error {
	var unstarted *notStarted
	if err = final(err); errors.Is(err, worker.ErrStop) || errors.As(err, &unstarted) {
		return err
	}
	return errors.New(err.Error())
}

// delivered answers whether a call that was staged was made.
func (s *Server) delivered(ctx context.Context, c api.Command) (worker.Answer, error) {
	var in deliveryArguments
	var recipe Recipe
	err := json.Unmarshal(c.Arguments, &in)
	if err == nil {
		err = json.Unmarshal([]byte(in.Recipe), &recipe)
	}
	if err != nil {
		return worker.Answer{}, worker.Stop(&stopped{"arguments", err.Error()})
	}
	at, input, leave, err := s.place(ctx, in.Input, recipe)
	if err != nil {
		return worker.Answer{}, final(err)
	}
	defer leave()
	if err := s.allowed(recipe); err != nil {
		return worker.Answer{}, worker.Stop(&stopped{"arguments", err.Error()})
	}
	made, err := at.look(ctx, recipe, &triggers.BindingVars{Input: input})
	switch {
	case err != nil:
		return worker.Answer{}, final(err)
	case made:
		return worker.Present(""), nil
	}
	return worker.Absent(), nil
}

// place is the server in the roots that a call was recorded with, with no other call under way, and
// the arguments of the call. leave ends that.
func (s *Server) place(ctx context.Context, recorded json.RawMessage, recipe Recipe) (at *Server,
	input json.RawMessage, leave func(), err error) {
	input, uris, err := withoutRoots(recorded)
	if err != nil {
		return nil, nil, nil, err
	}
	rest, err := s.needed(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var folders []string
	for _, uri := range uris {
		if at, ok := rootFolder(uri); ok {
			folders = append(folders, at)
		}
	}
	release, err := s.take(ctx, folders...)
	if err != nil {
		rest()
		return nil, nil, nil, err
	}
	end := func() { release(); rest() }
	at, out, err := s.in(uris, recipe)
	if err != nil {
		end()
		return nil, nil, nil, err
	}
	return at, input, func() { out(); end() }, nil
}

// undoArguments are those of the inverse of every tool, as a registration froze them.
type undoArguments struct {
	Recipe string          `json:"recipe"`
	Input  json.RawMessage `json:"input"`
	Output json.RawMessage `json:"output"`
	Before json.RawMessage `json:"before"`
}

// stopped is an error that no further attempt will mend.
type stopped struct{ code, message string }

func (e *stopped) Error() string { return e.message }

// Code is what is recorded beside the message.
func (e *stopped) Code() string { return e.code }

// undo undoes one call of a tool.
func (s *Server) undo(ctx context.Context, c api.Command) (worker.Result, error) {
	var in undoArguments
	var recipe Recipe
	rest, err := s.needed(ctx) // which finds the pack
	if err != nil {
		return worker.Result{}, err
	}
	defer rest()
	err = json.Unmarshal(c.Arguments, &in)
	if err == nil {
		err = json.Unmarshal([]byte(in.Recipe), &recipe)
	}
	if err == nil {
		err = s.allowed(recipe)
	}
	if err != nil {
		return worker.Result{}, worker.Stop(&stopped{"arguments", err.Error()})
	}
	at, input, leave, err := s.place(ctx, in.Input, recipe)
	if err != nil {
		return worker.Result{}, final(err)
	}
	defer leave()
	vars := triggers.BindingVars{Input: input, Output: in.Output, Before: in.Before}
	did, err := at.follow(ctx, recipe, vars, c.Key)
	if err != nil {
		return worker.Result{}, final(err)
	}
	return worker.Result{Output: map[string]any{"tool": recipe.Tool, "calls": did}}, nil
}

// final says which errors no further attempt mends: what someone else has changed, and what the
// server or a built-in refuses as it is written.
func final(err error) error {
	var changed *files.Changed
	var refused *ledger.Refused
	var stop *stopped
	var wire *jsonrpc.Error
	switch {
	case errors.As(err, &changed), errors.As(err, &refused), errors.As(err, &stop):
		return worker.Stop(err)
	case errors.As(err, &wire) && (wire.Code == jsonrpc.CodeInvalidParams ||
		wire.Code == jsonrpc.CodeMethodNotFound):
		return worker.Stop(err)
	}
	return err
}

// allowed refuses a recipe with calls that the pack of this server does not make.
func (s *Server) allowed(r Recipe) error {
	known := s.pack.tools()
	calls := []string{}
	if r.Probe != nil {
		calls = append(calls, r.Probe.Tool)
	}
	for _, step := range r.Undo {
		calls = append(calls, step.Tool)
	}
	for _, tool := range calls {
		if tool != "" && !known[tool] {
			return ledger.Refuse("recipe", "calls "+tool+" of server "+s.config.Name,
				"a tool that its pack calls for an undo")
		}
	}
	return nil
}

// follow carries out a recipe and returns what it has called.
func (s *Server) follow(ctx context.Context, r Recipe, vars triggers.BindingVars,
	key string) (did []string, err error) {
	if r.noted() {
		if err := s.interrupted(key); err != nil {
			return nil, err
		}
	}
	if err := s.misled(ctx, r, vars); err != nil {
		return nil, err
	}
	done, err := s.look(ctx, r, &vars)
	if err != nil || done {
		return nil, err
	}
	for _, guard := range r.Stop {
		holds, err := s.x.holds(guard.When, vars)
		if err != nil {
			return nil, &stopped{"recipe", err.Error()}
		}
		if holds {
			return nil, &stopped{"changed", guard.Message}
		}
	}
	calls, err := s.due(ctx, r, vars, key)
	if err != nil {
		return nil, err
	}
	return s.carry(ctx, r, vars, calls, key)
}

// look asks the probe of a recipe, and says whether there is nothing to undo.
func (s *Server) look(ctx context.Context, r Recipe, vars *triggers.BindingVars) (bool, error) {
	if r.Probe != nil {
		err := s.identified(ctx, r.Probe.Tool, r.Probe.Tool+r.Probe.Call, r.Probe.With, *vars)
		if err != nil {
			return false, err
		}
		answer, err := s.ask(ctx, *r.Probe, *vars)
		if err != nil {
			return false, err
		}
		vars.Probe = answer
		if err := s.x.lists(r.Probe.Lists, vars); err != nil {
			return false, &stopped{"recipe", err.Error()}
		}
	}
	if r.Done == "" {
		return false, nil
	}
	done, err := s.x.holds(r.Done, *vars)
	if err != nil {
		return false, &stopped{"recipe", err.Error()}
	}
	return done, nil
}

// An undo may know its effect only by what the call has answered. Where that is not there, or can
// be the name of nothing, as null, an empty text, or a list where a tool takes a text, the undo
// would find nothing, or something else; and a condition such as !(output.result.id in probe.ids)
// would say that it is done. So it is not asked, and not sent.

// probeRead is the variable in which an undo reads what its probe has answered.
const probeRead = "probe"

// identified refuses a call, of an undo or its question, of which nothing says what it means: it
// would do nothing, or something to another effect, or find nothing. Errors: *stopped, or why it is
// not known what the tool takes.
func (s *Server) identified(ctx context.Context, tool, call string, with map[string]any,
	vars triggers.BindingVars) error {
	schema, err := s.takes(ctx, tool)
	if err != nil {
		return err
	}
	switch u, err := s.x.anonymous(with, schema, vars, probeRead); {
	case err != nil:
		return &stopped{"recipe", err.Error()}
	case u != nil:
		return u.stop(call)
	}
	return nil
}

// misled refuses an undo whose own conditions, or what its question keeps, read a name that names
// nothing: what they say then is about no effect. Errors: as identified.
func (s *Server) misled(ctx context.Context, r Recipe, vars triggers.BindingVars) error {
	for _, step := range r.Undo {
		if made, err := s.x.holds(step.When, vars); err == nil && !made {
			continue
		}
		schema, err := s.takes(ctx, step.Tool)
		if err != nil {
			return err
		}
		u, err := s.x.anonymous(step.With, schema, vars)
		if err != nil {
			return &stopped{"recipe", err.Error()}
		}
		if u == nil {
			continue
		}
		texts := r.Probe.keeps()
		if u.is != "" { // else done has no answer, and the probe is not asked
			texts = append(texts, condition(r.Done))
			if r.Probe != nil {
				texts = append(texts, r.Probe.With)
			}
		}
		all, err := s.x.within(texts, nil)
		if err != nil {
			return &stopped{"recipe", err.Error()}
		}
		if slices.ContainsFunc(all, u.readBy) {
			return u.stop(step.name())
		}
	}
	return nil
}

// readBy reports whether an expression reads what would name the effect.
func (u *anonymous) readBy(b *triggers.Binding) bool {
	return slices.ContainsFunc(b.Paths(), func(read triggers.Read) bool {
		return slices.ContainsFunc(u.paths, func(path []string) bool {
			n := min(len(path), len(read.Path))
			return slices.Equal(path[:n], read.Path[:n])
		})
	})
}

// takes is the schema of the arguments of a tool; empty: it has none.
func (s *Server) takes(ctx context.Context, tool string) (json.RawMessage, error) {
	if tool == "" {
		return nil, nil
	}
	if _, err := s.has(ctx, tool); err != nil {
		return nil, fmt.Errorf("what %s takes is not known: %w", tool, err)
	}
	return s.schema(tool), nil
}

func (s *Server) schema(tool string) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.schemas[tool]
}
