package mcp_test

import (
	"errors"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
)

func schema(names ...string) any {
	properties := map[string]any{}
	for _, name := range names {
		properties[name] = map[string]any{"type": "string"}
	}
	return map[string]any{"type": "object", "properties": properties}
}

func TestADraftIsReadAndRefusedUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	tools := []*sdk.Tool{
		{Name: "create_note", InputSchema: schema("folder", "text"), OutputSchema: schema("id")},
		{Name: "delete_note", InputSchema: schema("folder", "id", "tag")},
		{Name: "addUsers", InputSchema: schema("users")},
		{Name: "removeUser", InputSchema: schema("users")},
		{Name: "bookRoom", InputSchema: schema("room", "idempotencyKey")},
		{Name: "cancelRoom", InputSchema: schema("room", "idempotency_key"),
			Annotations: &sdk.ToolAnnotations{IdempotentHint: true}},
		{Name: "list-notes", InputSchema: schema()},
		{Name: "peek", InputSchema: schema(), Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		{Name: "send \"mail\"", InputSchema: schema("to")},
	}
	draft := mcp.Draft("notes: server", tools)
	pack, err := mcp.ParsePack("draft.yaml", []byte(draft))
	if err != nil {
		t.Fatalf("%v\n%s", err, draft)
	}
	if !pack.Draft || pack.Server != "notes: server" {
		t.Errorf("%+v", pack)
	}
	for name, class := range map[string]contract.Class{"create_note": contract.Compensable,
		"delete_note": contract.Irreversible, "addUsers": contract.Compensable,
		"removeUser": contract.Irreversible, "bookRoom": contract.Compensable,
		"list-notes": contract.Effectless, "peek": contract.Effectless,
		"send \"mail\"": contract.Irreversible} {
		if got := pack.Tools[name].Class; got != class {
			t.Errorf("%s is %q, want %s", name, got, class)
		}
	}
	for name, stage := range map[string]contract.Stage{"send \"mail\"": contract.StageCommit, "removeUser": "",
		"create_note": ""} {
		if got := pack.Tools[name].Stage; got != stage {
			t.Errorf("calls of %s have stage %q, want %q", name, got, stage)
		}
	}
	undo := pack.Tools["create_note"].Undo[0]
	if undo.Tool != "delete_note" || undo.With["folder"] != "=input.folder" || undo.With["id"] != "=output.result.id" ||
		!strings.Contains(draft, `"tag": =output.result.tag # a guess`) {
		t.Errorf("%+v\n%s", undo, draft)
	}
	if undo.Idempotent || undo.Key != "" {
		t.Errorf("nothing says that %+v may be called again", undo)
	}
	undo = pack.Tools["bookRoom"].Undo[0]
	if undo.Tool != "cancelRoom" || undo.Key != "idempotency_key" || !undo.Idempotent || len(undo.With) != 1 ||
		pack.Tools["bookRoom"].Key != "idempotencyKey" {
		t.Errorf("bookRoom is undone by %+v\n%s", undo, draft)
	}
	_, asked, _ := strings.Cut(draft, `  "addUsers":`) // the last one that is undone
	asked, _, _ = strings.Cut(asked, "    undo:")
	for _, promise := range []string{"timeout", "not_taken", "probe", "key"} {
		if !strings.Contains(asked, "    # "+promise+": ") {
			t.Errorf("it is not asked for %s:\n%s", promise, draft)
		}
	}
	w := newWorld(t)
	config, _ := w.notes(t)
	config.Packs = append(config.Packs, mcp.Pack{Server: "notes-server", Draft: true})
	s := w.server(config)
	defer s.Close()
	var refused *ledger.Refused
	if err := s.Start(t.Context()); !errors.As(err, &refused) || !strings.Contains(refused.Field, "draft") {
		t.Errorf("a draft: %v", err)
	}
}

// A pack with a mistake is refused by the name of its field.
func TestPacksAreReadStrictly(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: s\n"
	const pack = head + "tools: {t: {class: compensable"
	const undo = pack + ", undo: [{"
	for _, pair := range [][2]string{
		{"apiVersion: v2\nkind: MCPPack\nserver: s\n", "apiVersion"},
		{"apiVersion: sagenbaum/v1\nkind: Contract\nserver: s\n", "kind"},
		{"apiVersion: sagenbaum/v1\nkind: MCPPack\n", "server"},
		{head + "extra: 1\n", "extra"},
		{head + "tools: {t: {}}\n", "tools.t.class"},
		{head + "tools: {t: {class: undoable}}\n", "tools.t.class"},
		{pack + "}}\n", "tools.t.undo"},
		{head + "tools: {t: {class: effectless, undo: [{tool: x}]}}\n", "tools.t.undo"},
		{head + "tools: {t: {class: irreversible, before: {tool: x}}}\n", "tools.t.undo"},
		{undo + "}]}}\n", "tools.t.undo[0]"},
		{undo + "tool: x, call: fs.restore}]}}\n", "undo[0]"},
		{undo + "call: fs.restore}]}}\n", "undo[0].call"},
		{head + "files: true\ntools: {t: {class: compensable, undo: [{call: fs.take}]}}\n", "undo[0].call"},
		{undo + "tool: x, with: {a: =input.}}]}}\n", "undo[0].with.a"},
		{undo + "tool: x, when: 1 +}]}}\n", "undo[0].when"},
		{undo + "tool: x}], done: '('}}\n", "tools.t.done"},
		{undo + "tool: x}], stop: [{when: '('}]}}\n", "stop[0].when"},
		{undo + "tool: x}], refuse: [{when: '('}]}}\n", "refuse[0].when"},
		{head + "tools: {t: {class: effectless, refuse: [{when: 'true'}]}}\n", "tools.t.refuse"},
		{head + "tools: {t: {class: effectless, not_taken: '('}}\n", "tools.t.not_taken"},
		{undo + "tool: x}], probe: {tool: y, keep: {l: {like: =input.x}}}}}\n", "keep.l"},
		{undo + "tool: x, with: {a: =meta.key}}]}}\n", "undo[0].with.a"},
		{undo + "tool: x, with: {a: [=meta.forward_key]}}]}}\n", "key: ARGUMENT"},
		{undo + "tool: x, with: {a: =result.id}}]}}\n", "undo[0].with.a"},
		{undo + "tool: x, when: plan.input.x}]}}\n", "undo[0].when"},
		{undo + "tool: x, with: {a: 1}, key: a}]}}\n", "undo[0].with.a"},
		{head + "files: true\ntools: {t: {class: compensable, undo: [{call: fs.restore, key: a}]}}\n", "undo[0].key"},
		{head + "files: true\ntools: {t: {class: compensable, undo: [{call: fs.restore, idempotent: true}]}}\n",
			"undo[0].idempotent"},
		{undo + "tool: x, with: {a: '" + strings.Repeat("a", 4000) + "'}}]}}\n", "tools.t.undo"},
	} {
		text, field := pair[0], pair[1]
		_, err := mcp.ParsePack("p.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s\nis refused with %v, want %s", text, err, field)
		}
	}
	packs, err := mcp.BuiltIn()
	if err != nil || len(packs) != 5 {
		t.Errorf("built in: %d, %v", len(packs), err)
	}
}

// What becomes of a call in doubt is said as it is, to the model and to who checks the pack.
func TestAPackSaysWhatBecomesOfACallInDoubt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, contract string
		says           string
		warns          []string
	}{
		{"probe", "probe: {tool: peek}, done: '!(input.text in probe.notes)', undo: [{tool: remove, " +
			"with: {text: =input.text}}]", "its undo finds out", nil},
		{"blind", "undo: [{tool: remove, with: {text: =input.text}, idempotent: true}]", "is made all the same",
			[]string{"an action in doubt is undone blindly"}},
		{"nameless", "undo: [{tool: remove, with: {text: =output.result.id}}]", "has no name for what it may have done",
			[]string{`in doubt nothing names the effect for the undo (argument "text" of remove)`,
				"nothing says that remove may be called again"}},
		{"owner", "on_in_doubt: quarantine, undo: [{tool: remove, with: {text: =output.result.id}, key: key}]",
			"is left to the plan's owner", nil},
		{"said so", "on_in_doubt: compensate, undo: [{tool: remove, with: {text: =input.text}, key: key}]",
			"is made all the same", nil},
		{"a probe names it", "probe: {tool: peek}, undo: [{tool: remove, with: {text: '=probe.notes[0]'}, key: key}]",
			"is made all the same", []string{"an action in doubt is undone blindly"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			config, _ := w.packed(t, "  die: {class: compensable, timeout: 2s, "+test.contract+"}\n")
			warnings := config.Packs[0].Tools["die"].Warnings()
			if len(warnings) != len(test.warns) {
				t.Errorf("it warns %q, want %q", warnings, test.warns)
			}
			for i, warning := range test.warns {
				if !strings.Contains(warnings[i], warning) {
					t.Errorf("it warns %q, want %q", warnings[i], warning)
				}
			}
			c := w.gateway(mcp.Config{ServeUndos: true}, nil, config)
			c.call("die", map[string]any{"text": "a"})
			if r := c.reports("plan_status", nil); len(r.Can) != 1 || !strings.Contains(r.Can[0].How, test.says) {
				t.Errorf("it says %+v, want %s", r, test.says)
			}
		})
	}
	packs, err := mcp.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	for _, pack := range packs {
		for name, tool := range pack.Tools {
			if warnings := tool.Warnings(); len(warnings) > 0 {
				t.Errorf("%s, %s: %q", pack.Server, name, warnings)
			}
		}
	}
}
