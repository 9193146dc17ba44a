package mcp

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// PackKind is the kind of a document that is a pack.
const PackKind = contract.PackKind

// Pack says of the tools of one server what they do and what undoes it.
type Pack struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Server is the name by which the server introduces itself; Tested are the versions of its
	// package that the pack was tested against.
	Server string   `json:"server"`
	Tested []string `json:"tested,omitempty"`

	// Files is true where the tools work on local files, in the folders that are among the
	// arguments of the server's command.
	Files bool `json:"files,omitempty"`

	// Folders is a tool whose answer names the folders in which the tools work, one a line: a
	// client's roots may be others than those of the command.
	Folders string `json:"folders,omitempty"`

	// Roots says what the roots of a client mean to the server: empty, it may work there, and so
	// does an undo; or "ignored".
	Roots string `json:"roots,omitempty"`

	// Environment are the variables that say which data the server works on. What undoes the effects
	// of servers has a name for each of their values.
	Environment []string `json:"environment,omitempty"`

	// Draft is true for a pack that was derived from a list of tools and that no person has
	// confirmed: it is refused.
	Draft bool `json:"draft,omitempty"`

	Tools map[string]Tool `json:"tools"`
}

// Tool is the contract of one tool.
type Tool struct {
	Class    contract.Class    `json:"class"`
	Fidelity contract.Fidelity `json:"fidelity,omitempty"`

	// EffectlessWhen and NotTaken are CEL: the first over input says that this call has no
	// effect; the second over input and result, the tool's answer that is an error, says that
	// nothing has happened.
	EffectlessWhen string `json:"effectless_when,omitempty"`
	NotTaken       string `json:"not_taken,omitempty"`

	// Refuse lists over input which calls with an effect are not passed on, and why.
	Refuse []Guard `json:"refuse,omitempty"`

	// Before is asked before the call and After after it; where both give the same, a call that
	// ends with an error has not happened.
	Before *Ask `json:"before,omitempty"`
	After  *Ask `json:"after,omitempty"`

	// What undoes it. Probe is asked first and read as probe. Done says that there is nothing
	// to undo (any more), and must be true at the end; each of Stop that holds leaves the undo
	// to the plan's owner.
	Probe *Ask    `json:"probe,omitempty"`
	Done  string  `json:"done,omitempty"`
	Stop  []Guard `json:"stop,omitempty"`
	Undo  []Step  `json:"undo,omitempty"`

	// Stage is commit for a tool of class irreversible whose calls are staged: each is made once its
	// plan is committed, by whatever undoes what the server has done. Probe and Done are of the call
	// itself then: Done says that it was made. NotTaken says that it was not.
	Stage contract.Stage `json:"stage,omitempty"`

	// Dedupe is how long the tool promises to know a value of its argument Key again. So long a call
	// that is staged is repeated where it had no answer.
	Dedupe time.Duration `json:"dedupe,omitempty"`

	// Says is for people, as in the table of docs/guide/mcp.md.
	Says Says `json:"says,omitzero"`

	// Digest names arguments of which a record keeps the SHA-256 where they are long: no
	// expression reads them.
	Digest []string `json:"digest,omitempty"`

	// Key is the argument in which the tool takes an idempotency key; empty: it takes none.
	Key string `json:"key,omitempty"`

	Timeout   time.Duration      `json:"timeout,omitempty"`
	ValidFor  time.Duration      `json:"valid_for,omitempty"`
	OnInDoubt contract.OnInDoubt `json:"on_in_doubt,omitempty"`
	Review    bool               `json:"review,omitempty"`
}

// Says is what undoes a tool, in the words of people.
type Says struct {
	Before string `json:"before"`         // what is known before the call
	Undo   string `json:"undo"`           // what the undo does
	Left   string `json:"left,omitempty"` // what is not as before after it
}

// Ask is a question: a tool of the server that changes nothing, or a built-in. Its answer is the
// structured content of the tool's result, else its text.
type Ask struct {
	Call string         `json:"call,omitempty"` // fs.take or fs.again
	Tool string         `json:"tool,omitempty"`
	With map[string]any `json:"with,omitempty"`

	// Keep leaves of the answer the lists that it names, with the items that are meant.
	Keep map[string]Keep `json:"keep,omitempty"`

	// Lists are made of it, of a probe: the expressions read each as probe.NAME, those of later
	// lists, too. What they compare takes time in proportion to what there is, and no steps of CEL,
	// which are bounded: an undo of many items needs them.
	Lists []List `json:"lists,omitempty"`
}

// List is a list that is made of another one.
type List struct {
	Name string `json:"name"`
	Of   string `json:"of"` // CEL that gives a list

	// First are fields of each item: of those that are alike in all of them only the first is there,
	// as for a server that looks for it.
	First []string `json:"first,omitempty"`

	// Each is a field with a list: there is one item for each element of it then.
	Each string `json:"each,omitempty"`

	// Like and Unlike are CEL that gives a list: its items are kept, or left out. Items are alike
	// in all fields By, which are called As in the other list; lists in them in any order. Or one
	// of the fields Any has a value of the other list.
	Like   string   `json:"like,omitempty"`
	Unlike string   `json:"unlike,omitempty"`
	By     []string `json:"by,omitempty"`
	As     []string `json:"as,omitempty"`
	Any    []string `json:"any,omitempty"`

	// Shape gives the items other fields: each is a field of the item, or a list with it. Items that
	// are alike but for such lists become one.
	Shape map[string]any `json:"shape,omitempty"`
}

// Keep says which items of a list are kept: those that are Like an item of a list, in all fields
// By; or with one of the values in any field of Any.
type Keep struct {
	Like string   `json:"like"` // CEL that gives a list
	By   []string `json:"by,omitempty"`
	Any  []string `json:"any,omitempty"`
}

// Guard leaves an undo to the plan's owner.
type Guard struct {
	When    string `json:"when"`
	Message string `json:"message"`
}

// Step is one call of an undo: a tool of the server, or a built-in.
type Step struct {
	When string         `json:"when,omitempty"` // CEL; empty: always
	Call string         `json:"call,omitempty"` // fs.restore or fs.move_back
	Tool string         `json:"tool,omitempty"`
	With map[string]any `json:"with,omitempty"`

	// What makes it safe to call the tool again after an answer that was lost. Key is the argument in
	// which it takes an idempotency key, the same in each attempt; Idempotent says that a second call
	// with the same arguments changes nothing more.
	Key        string `json:"key,omitempty"`
	Idempotent bool   `json:"idempotent,omitempty"`
}

// Recipe is what a registration freezes of a tool.
type Recipe struct {
	Tool  string  `json:"tool"`
	Probe *Ask    `json:"probe,omitempty"`
	Done  string  `json:"done,omitempty"`
	Stop  []Guard `json:"stop,omitempty"`
	Undo  []Step  `json:"undo"`
}

// rootsIgnored is the value of Pack.Roots for a server that does not ask for them.
const rootsIgnored = "ignored"

//go:embed packs/*.yaml
var builtIn embed.FS

// BuiltIn returns the packs that come with the gateway, which are read once: change none.
func BuiltIn() ([]Pack, error) { return builtInPacks() }

var builtInPacks = sync.OnceValues(func() (packs []Pack, err error) {
	err = fs.WalkDir(builtIn, "packs", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := builtIn.ReadFile(name)
		if err != nil {
			return err
		}
		pack, err := ParsePack(path.Base(name), data)
		packs = append(packs, pack)
		return err
	})
	return slices.Clip(packs), err
})

// ParsePack reads a file with one pack, strictly, and compiles its expressions. name is in the
// errors.
func ParsePack(name string, data []byte) (Pack, error) {
	var pack Pack
	if _, err := contract.ReadDocument(name, data, &pack); err != nil {
		return pack, err
	}
	x := newExpressions()
	switch {
	case pack.APIVersion != contract.APIVersion:
		return pack, ledger.Refuse(name+": apiVersion", fmt.Sprintf("%q", pack.APIVersion),
			contract.APIVersion)
	case pack.Kind != PackKind:
		return pack, ledger.Refuse(name+": kind", fmt.Sprintf("%q", pack.Kind), PackKind)
	case pack.Server == "":
		return pack, ledger.Refuse(name+": server", "missing", "the name that the server gives itself")
	case pack.Roots != "" && pack.Roots != rootsIgnored:
		return pack, ledger.Refuse(name+": roots", fmt.Sprintf("%q", pack.Roots),
			rootsIgnored+", or none")
	case pack.Roots == rootsIgnored && pack.Files:
		return pack, ledger.Refuse(name+": roots", "ignored, with files: true", "one of the two")
	case pack.Folders != "" && !pack.Files:
		return pack, ledger.Refuse(name+": folders", "given in a pack without files", "files: true")
	}
	for i, variable := range pack.Environment {
		if !variableName.MatchString(variable) || strings.HasPrefix(variable, ownVariables) {
			return pack, ledger.Refuse(fmt.Sprintf("%s: environment[%d]", name, i),
				fmt.Sprintf("%.80q", variable), "the name of a variable, not one of "+ownVariables)
		}
	}
	programs := triggers.NewCache(programsMax)
	for _, tool := range sortedKeys(pack.Tools) {
		t, field := pack.Tools[tool], name+": tools."+tool
		if err := x.tool(field, t, pack.Files); err != nil {
			return pack, err
		}
		if err := x.works(field, t); err != nil {
			return pack, err
		}
		if err := t.compiles(field, tool, programs); err != nil {
			return pack, err
		}
	}
	return pack, nil
}

// variableName is how POSIX has the names of variables (XBD 8.1), and lower case.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// GoesByPaths reports whether what undoes the calls of the tools works on files by their paths, and
// asks no server: whichever program that is, and in which environment, it finds the same.
func (p Pack) GoesByPaths() bool {
	for _, tool := range sortedKeys(p.Tools) {
		t := p.Tools[tool]
		if t.Class == contract.Compensable && (Recipe{Probe: t.Probe, Undo: t.Undo}).callsTools() {
			return false
		}
	}
	return p.Files
}

// environmentOf are the variables that any of the packs names and that are set, with their values;
// of two spellings of a path one.
func environmentOf(packs []Pack, set []string) map[string]string {
	named, found := map[string]bool{}, map[string]string{}
	for _, pack := range packs {
		for _, variable := range pack.Environment {
			named[variable] = true
		}
	}
	for _, entry := range set {
		name, value, _ := strings.Cut(entry, "=")
		if filepath.IsAbs(value) {
			value = filepath.Clean(value)
		}
		if delete(found, name); named[name] && value != "" {
			found[name] = value
		}
	}
	return found
}

// tool checks the contract of one tool.
func (x *expressions) tool(field string, t Tool, files bool) error {
	switch t.Class {
	case contract.Effectless, contract.Irreversible:
		if t.Before != nil || t.After != nil || len(t.Undo) > 0 || len(t.Stop) > 0 ||
			(t.Probe != nil || t.Done != "") && !t.staged() {
			return ledger.Refuse(field+".undo", "given for class "+string(t.Class), "class compensable")
		}
	case contract.Compensable:
		if len(t.Undo) == 0 {
			return ledger.Refuse(field+".undo", "missing", "the calls that undo it")
		}
	default:
		return ledger.Refuse(field+".class", fmt.Sprintf("%q", t.Class),
			"compensable, irreversible or effectless")
	}
	if len(t.Refuse) > 0 && t.Class == contract.Effectless {
		return ledger.Refuse(field+".refuse", "given for class effectless", "a class with an effect")
	}
	if err := t.checkStage(field); err != nil {
		return err
	}
	for part, ask := range map[string]*Ask{"before": t.Before, "after": t.After, "probe": t.Probe} {
		if ask == nil {
			continue
		}
		var more []string
		if part == "after" {
			more = []string{resultVariable}
		}
		if err := x.ask(field+"."+part, *ask, files, more...); err != nil {
			return err
		}
		if len(ask.Lists) > 0 && part != "probe" {
			return ledger.Refuse(field+"."+part+".lists", "given", "lists of the probe")
		}
	}
	for i, step := range t.Undo {
		if err := x.step(fmt.Sprintf("%s.undo[%d]", field, i), step, files); err != nil {
			return err
		}
	}
	for part, guards := range map[string][]Guard{"stop": t.Stop, "refuse": t.Refuse} {
		for i, guard := range guards {
			place := fmt.Sprintf("%s.%s[%d].when", field, part, i)
			if err := x.checkCondition(place, guard.When); err != nil {
				return err
			}
		}
	}
	for part, text := range map[string]string{"effectless_when": t.EffectlessWhen, "done": t.Done} {
		if err := x.checkCondition(field+"."+part, text); err != nil {
			return err
		}
	}
	if err := x.checkCondition(field+".not_taken", t.NotTaken, resultVariable); err != nil {
		return err
	}
	if recipe, err := encode(t.recipe(field)); err != nil || len(recipe) > recipeMax {
		return ledger.Refuse(field+".undo", fmt.Sprintf("%d bytes of JSON", len(recipe)),
			fmt.Sprintf("at most %d bytes: a registration freezes it", recipeMax))
	}
	return nil
}

// staged reports whether calls of the tool are.
func (t Tool) staged() bool { return t.Stage == contract.StageCommit }

// checkStage checks what says that calls are staged, and how they are made.
func (t Tool) checkStage(field string) error {
	switch {
	case t.Stage != "" && !t.staged():
		return ledger.Refuse(field+".stage", fmt.Sprintf("%q", t.Stage), "commit, or none")
	case t.staged() && t.Class != contract.Irreversible:
		return ledger.Refuse(field+".stage", "given for class "+string(t.Class),
			"class irreversible: what has an undo need not wait for the commit")
	case t.Dedupe != 0 && !t.staged():
		return ledger.Refuse(field+".dedupe", "given for a tool that is not staged", "stage: commit")
	case t.Dedupe != 0 && t.Key == "":
		return ledger.Refuse(field+".dedupe", "given without key",
			"key, the argument in which the tool takes an idempotency key")
	case !t.staged():
		return nil
	case t.Review:
		return ledger.Refuse(field+".review", "given for a tool that is staged",
			"none: a verdict on a call drops it until its plan is committed")
	case len(t.Digest) > 0:
		return ledger.Refuse(field+".digest", "given for a tool that is staged",
			"none: the call is made with what is recorded of it")
	case (t.Probe == nil) != (t.Done == ""):
		return ledger.Refuse(field+".done", "probe and done, of which one is missing",
			"both, or neither: done is CEL over input and probe, and true where the call was made")
	}
	return ledger.CheckSpan(field+".dedupe", t.Dedupe, ledger.DurationMax)
}

func (x *expressions) ask(field string, a Ask, files bool, more ...string) error {
	if err := oneCall(field, a.Call, a.Tool, files, callTake, callAgain, callTakeGit,
		callAgainGit); err != nil {
		return err
	}
	for _, list := range sortedKeys(a.Keep) {
		keep, place := a.Keep[list], field+".keep."+list
		if (len(keep.By) == 0) == (len(keep.Any) == 0) {
			return ledger.Refuse(place, "by and any", "one of the two")
		}
		if err := x.checkCondition(place+".like", keep.Like, more...); err != nil {
			return err
		}
	}
	for i, list := range a.Lists {
		if err := x.checkList(fmt.Sprintf("%s.lists[%d]", field, i), list); err != nil {
			return err
		}
	}
	return x.check(field+".with", a.With, more...)
}

func (x *expressions) checkList(field string, l List) error {
	compares := l.Like != "" || l.Unlike != ""
	switch {
	case !ledger.ValidToken(l.Name):
		return ledger.Refuse(field+".name", fmt.Sprintf("%q", l.Name), "a name")
	case l.Of == "":
		return ledger.Refuse(field+".of", "missing", "CEL that gives a list")
	case l.Like != "" && l.Unlike != "":
		return ledger.Refuse(field, "like and unlike", "one of the two; a further list has the other")
	case compares && (len(l.By) == 0) == (len(l.Any) == 0), !compares && len(l.By)+len(l.Any) > 0:
		return ledger.Refuse(field, "by and any", "one of the two, with like or unlike")
	case len(l.As) > 0 && len(l.As) != len(l.By):
		return ledger.Refuse(field+".as", fmt.Sprintf("%d fields", len(l.As)), "as many as by")
	}
	for name, shape := range l.Shape {
		if fieldOf(shape) == "" {
			return ledger.Refuse(field+".shape."+name, fmt.Sprint(shape), "a field, or a list with one")
		}
	}
	for part, text := range map[string]string{"of": l.Of, "like": l.Like, "unlike": l.Unlike} {
		if err := x.checkCondition(field+"."+part, text); err != nil {
			return err
		}
	}
	return nil
}

func (x *expressions) step(field string, s Step, files bool) error {
	if err := oneCall(field, s.Call, s.Tool, files, callRestore, callMoveBack,
		callRestoreGit); err != nil {
		return err
	}
	_, given := s.With[s.Key]
	switch {
	case s.Call != "" && s.Key != "":
		return ledger.Refuse(field+".key", "given for a built-in", "none: it compares what is there")
	case s.Call != "" && s.Idempotent:
		return ledger.Refuse(field+".idempotent", "given for a built-in",
			"none: it compares what is there")
	case given:
		return ledger.Refuse(field+".with."+s.Key, "given, and key names it", "one of the two")
	}
	if err := x.checkCondition(field+".when", s.When); err != nil {
		return err
	}
	return x.check(field+".with", s.With)
}

// oneCall wants a tool or one of these built-ins.
func oneCall(field, call, tool string, files bool, allowed ...string) error {
	switch {
	case (call == "") == (tool == ""):
		return ledger.Refuse(field, "call and tool", "one of the two")
	case call != "" && !slices.Contains(allowed, call):
		return ledger.Refuse(field+".call", fmt.Sprintf("%q", call), strings.Join(allowed, " or "))
	case call != "" && !files:
		return ledger.Refuse(field+".call", "given in a pack without files", "files: true")
	}
	return nil
}

// recipe is what undoes a tool.
func (t Tool) recipe(name string) Recipe {
	return Recipe{Tool: name, Probe: t.Probe, Done: t.Done, Stop: t.Stop, Undo: t.Undo}
}

// contract makes the contract of a tool at one server.
func (t Tool) contract(server *Server, name string) (contract.Contract, error) {
	c := contract.Contract{
		Capability: server.Capability(name), Class: t.Class, Fidelity: t.Fidelity,
		Timeout: cmp.Or(t.Timeout, CallTimeoutDefault), Review: t.Review,
	}
	if t.Before != nil {
		c.Before = &contract.Before{Call: server.question(name),
			With: map[string]any{"input": "=input"}, Attempts: 1}
	}
	switch {
	case t.staged():
		return t.stagedContract(server, name, c)
	case t.Class != contract.Compensable:
		return c, nil
	}
	recipe, err := encode(t.recipe(name))
	if err != nil {
		return c, err
	}
	c.Settle, c.ValidFor, c.UnservedAfter = server.config.Settle, t.ValidFor, undoUnserved
	c.OnInDoubt = cmp.Or(t.OnInDoubt, contract.InDoubtCompensate)
	c.Inverse = &contract.Inverse{Call: server.Undo(), Attempts: undoAttempts,
		With: map[string]any{"recipe": string(recipe), "input": "=input", "before": "=before"}}
	if t.reads("output") {
		c.Inverse.With["output"] = "=output"
	}
	return c, nil
}

// reads reports whether what undoes the tool may read something: what it does not read takes room
// in a record, and no command carries it.
func (t Tool) reads(what string) bool {
	recipe, err := encode(t.recipe(""))
	return err != nil || strings.Contains(string(recipe), what)
}

// fits refuses a call of which a command, of its undo or of itself, would carry too much.
func (t Tool) fits(name string, input, before json.RawMessage) error {
	if t.staged() {
		if over := argumentsBeside + len(name) + len(input) - ledger.ArgumentsMax; over > 0 {
			return ledger.Refuse("arguments", fmt.Sprintf("%d bytes", len(input)),
				fmt.Sprintf("at most %d bytes of a call that is made later", len(input)-over))
		}
		return nil
	}
	if t.Class != contract.Compensable {
		return nil
	}
	room, err := t.room(name, input, before)
	if err != nil {
		return err
	}
	if t.reads("output") {
		room -= inputMax + len(before) + afterBeside
	}
	if room >= 0 {
		return nil
	}
	return ledger.Refuse("arguments", fmt.Sprintf("its undo would have to carry %d bytes: the "+
		"arguments, what was there before and what it has to know of the result",
		ledger.ArgumentsMax-room),
		fmt.Sprintf("at most %d bytes: several smaller calls", ledger.ArgumentsMax))
}

// room is how many bytes a command of the undo has left for what the call answers and leaves.
func (t Tool) room(name string, input, before json.RawMessage) (int, error) {
	recipe, err := encode(t.recipe(name))
	if err == nil {
		recipe, err = encode(string(recipe)) // as it is an argument
	}
	return ledger.ArgumentsMax - argumentsBeside - len(recipe) - len(input) - len(before), err
}

// stagedContract is c for a tool whose calls are staged.
func (t Tool) stagedContract(server *Server, name string, c contract.Contract) (contract.Contract,
	error) {
	c.Capability, c.Stage = server.Delivery(name), t.Stage
	c.Deliver = &contract.Deliver{With: map[string]any{"tool": name, "input": "=input"},
		Attempts: undoAttempts, Timeout: c.Timeout, Dedupe: t.Dedupe}
	c.Timeout, c.Settle, c.UnservedAfter = 0, server.config.Settle, undoUnserved
	if t.Probe == nil {
		return c, nil
	}
	recipe, err := encode(t.recipe(name))
	c.Probe = &contract.Probe{Call: c.Capability,
		With: map[string]any{"recipe": string(recipe), "input": "=input"}}
	return c, err
}

// capability is that of a call of a tool.
func (t Tool) capability(server *Server, name string) string {
	if t.staged() {
		return server.Delivery(name)
	}
	return server.Capability(name)
}

// deliveries are the names of tools whose calls are staged by any of the packs that may be a
// server's.
func deliveries(packs []Pack) []string {
	names := map[string]bool{}
	for _, pack := range packs {
		for name, t := range pack.Tools {
			if t.staged() && !pack.Draft {
				names[name] = true
			}
		}
	}
	return sortedKeys(names)
}

// Calls lists the tools of a server that the pack calls for undos and for what they have to know.
func (p Pack) Calls() []string { return sortedKeys(p.tools()) }

// tools are the tools of a server that the undos of a pack call: nothing else is called for a
// registration, whatever it says.
func (p Pack) tools() map[string]bool {
	called := map[string]bool{}
	for _, t := range p.Tools {
		for _, tool := range t.calls() {
			called[tool] = true
		}
	}
	return called
}

// matching returns the pack for a server by the name that it gives itself; the last one given
// wins.
func matching(packs []Pack, server string) (Pack, error) {
	for _, pack := range slices.Backward(packs) {
		switch {
		case pack.Server != server:
		case pack.Draft:
			return Pack{}, ledger.Refuse("pack["+server+"].draft", "true",
				"a pack that a person has read, without the field draft")
		default:
			return pack, nil
		}
	}
	return Pack{Server: server}, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// compiles refuses a tool whose contract no coordinator takes, with the field as the pack has it.
func (t Tool) compiles(field, name string, programs *triggers.Cache) error {
	if t.Class == contract.Effectless {
		return nil // such calls are not registered
	}
	anywhere := &Server{config: ServerConfig{Name: "server"}, instance: "server"}
	c, err := t.contract(anywhere, name)
	if err != nil {
		return err
	}
	_, err = compile.Contract(c, programs)
	var refused *ledger.Refused
	if !errors.As(err, &refused) {
		return err
	}
	_, below, _ := strings.Cut(refused.Field, "].")
	below = strings.TrimPrefix(below, "deliver.")
	return ledger.Refuse(field+"."+below, refused.Problem, refused.Want)
}

// Has refuses contracts of tools of a server that call one which it does not have: what they
// promise could never be done. Errors: *ledger.Refused.
func (p Pack) Has(tools []*sdk.Tool) error {
	there := map[string]bool{}
	for _, t := range tools {
		there[t.Name] = true
	}
	for _, name := range sortedKeys(p.Tools) {
		if !there[name] {
			continue // no call of it is undone
		}
		calls := p.Tools[name].calls()
		for _, part := range sortedKeys(calls) {
			if called := calls[part]; !there[called] {
				return ledger.Refuse("tools."+name+"."+part,
					fmt.Sprintf("%s has no tool %q", p.Server, called), "a tool that it lists")
			}
		}
	}
	return nil
}

// calls are the tools that a contract calls, by the fields that name them.
func (t Tool) calls() map[string]string {
	named := map[string]string{}
	for part, ask := range map[string]*Ask{"before": t.Before, "after": t.After, "probe": t.Probe} {
		if ask != nil && ask.Tool != "" {
			named[part+".tool"] = ask.Tool
		}
	}
	for i, step := range t.Undo {
		if step.Tool != "" {
			named[fmt.Sprintf("undo[%d].tool", i)] = step.Tool
		}
	}
	return named
}
