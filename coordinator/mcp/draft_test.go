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
		"removeUser": contract.Irreversible, "list-notes": contract.Effectless, "peek": contract.Effectless,
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
