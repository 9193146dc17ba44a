package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
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
	first := true
	for _, name := range properties(undo.InputSchema) {
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
