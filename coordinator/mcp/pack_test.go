package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// What a gateway would refuse when it starts, and what can never work, is refused when the pack is read,
// with the field that its author has written.
func TestAPackThatCannotWorkIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	const undo = ", undo: [{tool: remove}]"
	for tool, want := range map[string]string{
		"class: compensable, timeout: -5s" + undo:                                  "timeout: -5s",
		"class: compensable, timeout: 9000d" + undo:                                "timeout: 216000h0m0s",
		"class: compensable, timeout: 1ns" + undo:                                  "timeout: 1ns",
		"class: compensable, valid_for: -1d" + undo:                                "valid_for: -24h0m0s",
		"class: compensable, valid_for: 1ms" + undo:                                "valid_for: 1ms; want at least 10ms",
		"class: compensable, on_in_doubt: maybe" + undo:                            `on_in_doubt: "maybe"`,
		"class: compensable, on_in_doubt: probe" + undo:                            "on_in_doubt: ",
		"class: compensable, fidelity: perfect" + undo:                             `fidelity: "perfect"`,
		"class: irreversible, stage: commit, timeout: 1ns":                         "timeout: 1ns",
		"class: compensable, done: probe.x == 1" + undo:                            "done: it reads probe",
		"class: compensable, stop: [{when: probe.x == 1}]" + undo:                  "stop[0].when: it reads probe",
		"class: compensable, undo: [{tool: remove, when: probe.x == 1}]":           "undo[0].when: it reads probe",
		"class: compensable, done: 1 + 1, probe: {tool: peek}" + undo:              `done: "1 + 1" is never true`,
		"class: compensable, effectless_when: input" + undo:                        `effectless_when: "input" is never`,
		"class: compensable, refuse: [{when: '\"yes\"'}]" + undo:                   "refuse[0].when: ",
		"class: compensable, not_taken: 'input.a ? 1 : 2'" + undo:                  "not_taken: ",
		"class: compensable, done: probe, probe: {tool: peek}" + undo:              "",
		"class: compensable, done: input.x, effectless_when: input.a.b" + undo:     "",
		"class: compensable, valid_for: 10ms, timeout: 2s, fidelity: lossy" + undo: "",
	} {
		_, err := mcp.ParsePack("p.yaml", fmt.Appendf(nil,
			"apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: s\ntools:\n  t: {%s}\n", tool))
		var refused *ledger.Refused
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", tool, err)
		case want == "":
		case !errors.As(err, &refused) || !strings.Contains(err.Error(), "refused: p.yaml: tools.t."+want):
			t.Errorf("%s: %v, want %s", tool, err, want)
		}
	}
}

// The contracts of the guide can be read, and what they keep of an answer is what the guide says.
func TestTheContractsOfTheGuideAreGood(t *testing.T) {
	t.Parallel()
	text := read(t, guide)
	var keeps mcp.Ask
	for _, block := range strings.Split(text, "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "kind: MCPPack") {
			continue
		}
		pack, err := mcp.ParsePack("guide.yaml", []byte(block))
		if err != nil {
			t.Fatal(err)
		}
		if before := pack.Tools["retitle_note"].Before; before != nil {
			keeps = *before
		}
	}
	from, to, cut := strings.Cut(text[strings.Index(text, "`list_notes` may answer `"):], "`before` is `")
	quoted := func(after string) string {
		after, _, _ = strings.Cut(after, "`")
		return strings.Join(strings.Fields(after), " ")
	}
	answer, want := quoted(strings.TrimPrefix(from, "`list_notes` may answer `")), quoted(to)
	kept, err := mcp.Kept(keeps, `{"id": "7"}`, answer)
	if !cut || err != nil || !sameJSON(t, kept, want) {
		t.Errorf("of %s it keeps %s, %v; the guide says %s", answer, kept, err, want)
	}
	if kept, err := mcp.Kept(keeps, `{"id": "7"}`, `{"at": "09:30"}`); err == nil {
		t.Errorf("of an answer without the list it keeps %s", kept)
	}
}

// A contract that calls a tool which its server does not have promises what can never be done. One of a
// tool that is not there itself harms no one.
func TestAContractThatCallsAToolWhichIsNotThereIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, _ := w.notes(t)
	tools := config.Packs[0].Tools
	add := tools["add"]
	tools["gone"] = add
	for _, tool := range []string{"gone", "add"} {
		bad := tools[tool]
		bad.Undo = []mcp.Step{{Tool: "cancel"}}
		tools[tool] = bad
	}
	start := func() error {
		g, err := mcp.New(t.Context(), mcp.Config{Conn: w.conn, Tenant: "default", Agent: "mcp",
			Servers: []*mcp.Server{w.server(config)}})
		if err == nil {
			err = g.Close()
		}
		return err
	}
	var refused *ledger.Refused
	if err := start(); !errors.As(err, &refused) || refused.Field != "tools.add.undo[0].tool" ||
		!strings.Contains(err.Error(), `notes-server has no tool "cancel"`) {
		t.Errorf("a gateway starts with it: %v", err)
	}
	tools["add"] = add
	if err := start(); err != nil {
		t.Errorf("of a tool that is not there: %v", err)
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// A pack that was given for another server than those that are there is said, with the names of both,
// and one that is used, or of another server that is there, is not.
func TestAPackThatIsNotUsedIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other, err := mcp.ParsePack("other.yaml", []byte(strings.Replace(notesPack, "notes-server", "other-server", 1)))
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := w.raw(t)
	config, _ := w.notes(t)
	config.Packs = append(config.Packs, raw.Packs...)
	for _, given := range []bool{false, true} {
		if given {
			config.Packs = append(config.Packs, other)
		}
		var log bytes.Buffer
		c := w.gateway(mcp.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, nil, config, raw)
		c.leave()
		if err := c.gateway.Close(); err != nil {
			t.Log(err)
		}
		const says = `a pack for server \"other-server\", which is not used: what is here calls itself ` +
			`\"notes-server\", \"raw-server\"`
		if got := log.String(); strings.Contains(got, "is not used") != given || given && !strings.Contains(got, says) {
			t.Errorf("with one %t, the log says %s", given, got)
		}
	}
}
