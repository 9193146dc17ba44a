package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// opposites are words for what a tool does, and for what undoes that.
var opposites = map[string][]string{
	"create": {"delete", "remove", "destroy"}, "add": {"remove", "delete"},
	"insert": {"delete", "remove"}, "make": {"delete", "remove"}, "new": {"delete", "remove"},
	"upload": {"delete", "remove"}, "put": {"delete", "remove"}, "attach": {"detach", "remove"},
	"assign": {"unassign"}, "enable": {"disable"}, "disable": {"enable"}, "lock": {"unlock"},
	"unlock": {"lock"}, "open": {"close"}, "close": {"reopen", "open"}, "start": {"stop"},
	"stop": {"start"}, "archive": {"unarchive", "restore"}, "subscribe": {"unsubscribe"},
	"install": {"uninstall"}, "grant": {"revoke"}, "book": {"cancel"},
	"reserve":  {"cancel", "release"},
	"schedule": {"cancel", "unschedule"}, "star": {"unstar"}, "link": {"unlink"}, "mount": {"unmount"},
}

// reading are words for what only reads.
var reading = []string{"get", "list", "read", "search", "find", "show", "describe", "count",
	"fetch", "query", "view", "status", "info", "check"}

// outward are words for what cannot be taken back once others have seen it.
var outward = []string{"send", "mail", "email", "message", "notify", "post", "publish", "tweet",
	"reply", "invite", "announce", "submit", "pay", "charge", "transfer", "order", "print", "fax"}

// telling is the word of a name that says that others are told; empty: there is none.
func telling(name string) string {
	for _, word := range parts(name) {
		if slices.Contains(outward, word) {
			return word
		}
	}
	return ""
}

// draftStage proposes that calls are staged.
const draftStage = `    stage: commit
    # What makes a call without an answer safe to make again, if the tool has it:
    # key: an argument for an idempotency key, with dedupe: 24h, for how long it knows one again;
    # or probe: {tool: what lists such effects}, with done: CEL that is true where it was made
`

// draftPromises asks what the tool can promise of a call that has no answer.
const draftPromises = `    # What makes the undo of a call without an answer soon and sure, as far as the tool has it:
    # timeout: how long a call may take, as 30s; the undo of one without an answer waits for it (2m)
    # not_taken: CEL over input and result, true of an error that comes before any effect
    # probe: {tool: what reads such effects}, with done: CEL that is true where this one is not
    #   there; without them it is undone without a look
    # key: an argument for an idempotency key
    # and of its undo, in the step: idempotent: true, where the same call again changes nothing more,
    #   or key, likewise; without them, or probe with done, an undo whose answer is lost goes to its
    #   owner
`

// Draft proposes a pack for the tools of a server, as a file that a person reads, corrects, and
// confirms by removing its draft: true. It goes by names, schemas and hints, each of which may be
// wrong; the comment of each tool says which.
func Draft(server string, tools []*sdk.Tool) string {
	var out strings.Builder
	fmt.Fprintf(&out, "# Drafted from a list of tools: read each, correct it, and remove the line "+
		"draft: true.\napiVersion: %s\nkind: %s\nserver: %s\ndraft: true\ntools:\n",
		contract.APIVersion, PackKind, quoted(server))
	sorted := slices.Clone(tools)
	slices.SortFunc(sorted, func(a, b *sdk.Tool) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range sorted {
		undo, word := opposite(t.Name, sorted)
		switch {
		case hinted(t):
			draftTool(&out, t.Name, contract.Effectless, "it says readOnlyHint")
		case undo != nil:
			draftTool(&out, t.Name, contract.Compensable,
				fmt.Sprintf("%s is the opposite of its name (%s)", undo.Name, word))
			out.WriteString(draftPromises)
			if key := keyArgument(t); key != "" {
				fmt.Fprintf(&out, "    key: %s\n", quoted(key))
			}
			draftUndo(&out, t, undo)
		case slices.ContainsFunc(parts(t.Name), reads):
			draftTool(&out, t.Name, contract.Effectless, "only its name says that it reads")
		default:
			word := telling(t.Name)
			if word == "" {
				draftTool(&out, t.Name, contract.Irreversible, "nothing was found that undoes it")
				break
			}
			draftTool(&out, t.Name, contract.Irreversible, fmt.Sprintf("nothing was found that undoes it, "+
				"and its name says that others are told (%s):\n  # staged, it is called once its plan is "+
				"committed, and its caller gets no other answer", word))
			out.WriteString(draftStage)
		}
	}
	return out.String()
}

func reads(word string) bool { return slices.Contains(reading, word) }

func draftTool(out *strings.Builder, name string, class contract.Class, why string) {
	fmt.Fprintf(out, "  # %s\n  %s:\n    class: %s\n", why, quoted(name), class)
}

// draftUndo proposes the arguments of the tool that undoes another one.
func draftUndo(out *strings.Builder, t, undo *sdk.Tool) {
	inputs := properties(t.InputSchema)
	outputs := properties(t.OutputSchema)
	fmt.Fprintf(out, "    undo:\n      - tool: %s\n", quoted(undo.Name))
	key := keyArgument(undo)
	if key != "" {
		fmt.Fprintf(out, "        key: %s\n", quoted(key))
	}
	if undo.Annotations != nil && undo.Annotations.IdempotentHint {
		out.WriteString("        idempotent: true # it says idempotentHint\n")
	}
	first := true
	for _, name := range properties(undo.InputSchema) {
		if name == key {
			continue
		}
		if first {
			fmt.Fprint(out, "        with:\n")
			first = false
		}
		switch {
		case slices.Contains(inputs, name):
			fmt.Fprintf(out, "          %s: =input.%s\n", quoted(name), name)
		case slices.Contains(outputs, name):
			fmt.Fprintf(out, "          %s: =output.result.%s\n", quoted(name), name)
		default:
			fmt.Fprintf(out, "          %s: =output.result.%s # a guess: no schema has it\n", quoted(name),
				name)
		}
	}
}

// keyArgument is the argument of a tool that takes an idempotency key, by its name; empty: there is
// none.
func keyArgument(t *sdk.Tool) string {
	for _, name := range properties(t.InputSchema) {
		if slices.Equal(parts(name), []string{"idempotency", "key"}) {
			return name
		}
	}
	return ""
}

// opposite finds the tool that undoes another one by its name.
func opposite(name string, tools []*sdk.Tool) (*sdk.Tool, string) {
	words := parts(name)
	for i, word := range words {
		for _, other := range opposites[word] {
			wanted := slices.Clone(words)
			wanted[i] = other
			for _, t := range tools {
				if same(parts(t.Name), wanted) {
					return t, word + ", " + other
				}
			}
		}
	}
	return nil, ""
}

// same compares names by their words; a plural counts as its singular.
func same(a, b []string) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool {
		return strings.TrimSuffix(x, "s") == strings.TrimSuffix(y, "s")
	})
}

// parts are the words of a name in any of the usual spellings.
func parts(name string) []string {
	var words []string
	start := true
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			start = true
			continue
		case unicode.IsUpper(r):
			start = true
		}
		if start {
			words = append(words, "")
			start = false
		}
		words[len(words)-1] += string(unicode.ToLower(r))
	}
	return words
}

// properties are the names in the schema of an object, sorted.
func properties(schema any) []string {
	raw, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	var object struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return nil
	}
	return sortedKeys(object.Properties)
}

// quoted is a text as YAML has it.
func quoted(text string) string {
	raw, err := encode(text)
	if err != nil {
		return `""`
	}
	return string(raw)
}

// What a contract of a pack leaves open where an answer is lost, of a call or of its undo, is known
// before: people are told when they check the pack, and the model when it happens.

// What an undo does of a call in doubt.
type doubtful int

const (
	doubtLooks   doubtful = iota // it finds out whether there is anything to undo
	doubtOwner                   // nothing: the contract leaves it to the owner
	doubtUnnamed                 // nothing: it has no name for the effect
	doubtBlind                   // the same as of one that has happened
)

// inDoubt says what becomes of a call in doubt when its plan is undone.
func (t Tool) inDoubt() string {
	switch t.doubtful() {
	case doubtOwner:
		return "its undo is left to the plan's owner"
	case doubtUnnamed:
		return "its undo has no name for what it may have done, and is left to the plan's owner"
	case doubtBlind:
		return "its undo is made all the same, whether there is anything to undo or not"
	}
	return "its undo finds out"
}

func (t Tool) doubtful() doubtful {
	recipe := t.recipe("")
	switch {
	case t.OnInDoubt == contract.InDoubtQuarantine:
		return doubtOwner
	case t.namelessInDoubt() != "":
		return doubtUnnamed
	case recipe.looks(), !slices.ContainsFunc(t.Undo, func(s Step) bool { return s.Tool != "" }):
		return doubtLooks // a built-in compares what is there
	}
	return doubtBlind
}

// namelessInDoubt is the first argument, with its call, for want of which nothing names the effect
// of a call without an answer; empty: it is named, as far as is known before a probe is asked.
func (t Tool) namelessInDoubt() string {
	x := newExpressions()
	nothing := func(...*triggers.Binding) (vars triggers.BindingVars) { return vars }
	nameless := func(call string, with map[string]any) string {
		all, err := x.within(with, nil)
		asks := slices.ContainsFunc(all, func(b *triggers.Binding) bool { return b.Reads("probe") })
		missing, failed := x.nameless(with, nothing, probeRead)
		if asks || errors.Join(err, failed) != nil || len(missing) == 0 {
			return "" // an error was refused when the pack was read
		}
		return fmt.Sprintf("argument %s of %s", strings.Join(missing, " and "), call)
	}
	if t.Probe != nil {
		if missing := nameless(t.Probe.Tool+t.Probe.Call, t.Probe.With); missing != "" {
			return missing
		}
	}
	for _, step := range t.Undo {
		if missing := nameless(step.name(), step.With); step.When == "" && missing != "" {
			return missing
		}
	}
	return ""
}

// Warnings says of a tool what its contract leaves open, as 'contract lint' does of others.
func (t Tool) Warnings() (warnings []string) {
	if t.Class != contract.Compensable {
		return nil
	}
	switch doubt := t.doubtful(); {
	case doubt == doubtUnnamed:
		warnings = append(warnings, fmt.Sprintf("in doubt nothing names the effect for the undo (%s), "+
			"and its action goes to its owner: add a probe that finds it, or an argument that reads input",
			t.namelessInDoubt()))
	case doubt == doubtBlind && t.OnInDoubt == "":
		warnings = append(warnings, "an action in doubt is undone blindly: add probe and done, or write "+
			"on_in_doubt: compensate or quarantine")
	}
	recipe := t.recipe("")
	for _, step := range t.Undo {
		if !recipe.repeats(step) {
			warnings = append(warnings, fmt.Sprintf("an undo whose answer is lost goes to its owner, as "+
				"nothing says that %s may be called again: add probe and done, or key or idempotent to the "+
				"step", step.name()))
		}
	}
	return warnings
}
