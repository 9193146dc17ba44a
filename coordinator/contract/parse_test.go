package contract_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
	"github.com/sagenbaum/sagenbaum/triggers"
)

const (
	head = "apiVersion: sagenbaum/v1\nkind: Contract\n"
	rest = "capability: a.b\nclass: effectless\n"
)

func TestParseIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		head + "capability: a.b\ncapabillity: a.c\n":                              `f.yaml:4:1: error: capabillity: unknown field; did you mean capability?`,
		head + rest + "colour: red\n":                                             `f.yaml:5:1: error: colour: unknown field; there is apiVersion, kind, capability, class`,
		head + rest + "class: compensable\n":                                      `f.yaml:5:1: error: class: given twice; the first is in line 4`,
		head + rest + "inverse: {call: x, atempts: 3}\n":                          `f.yaml:5:20: error: inverse.atempts: unknown field; did you mean attempts?`,
		head + rest + "inverse:\n  with:\n    a: {b: 1, b: 2}\n":                  `f.yaml:7:15: error: inverse.with.a.b: given twice`,
		head + rest + "page:\n":                                                   `f.yaml:5:6: error: page: no value; leave the field out`,
		head + rest + "valid_for: soon\n":                                         `f.yaml:5:12: error: valid_for: "soon" is no duration; write 30s, 10m, 24h or 180d`,
		head + rest + "valid_for: 5\n":                                            `f.yaml:5:12: error: valid_for: "5" is no duration`,
		head + rest + "inverse: {attempts: many}\n":                               `f.yaml:5:21: error: inverse.attempts: "many" is no whole number`,
		head + rest + "inverse: {attempts: \"3\"}\n":                              `f.yaml:5:21: error: inverse.attempts: "3" is no whole number`,
		head + rest + "review: yes\n":                                             `f.yaml:5:9: error: review: "yes" is no truth; write true or false`,
		head + rest + "lift: a\n":                                                 `f.yaml:5:7: error: lift: no list`,
		head + rest + "inverse: a.c\n":                                            `f.yaml:5:10: error: inverse: no mapping`,
		head + rest + "inverse: {call: [a]}\n":                                    `f.yaml:5:17: error: inverse.call: no single value`,
		head + rest + "page: &p x\n":                                              `f.yaml:5:7: error: page: a YAML anchor`,
		head + rest + "inverse: {with: {a: &x [1], b: *x}}\n":                     `f.yaml:5:21: error: inverse.with.a: a YAML anchor`,
		head + rest + "inverse: {with: {<<: {a: 1}}}\n":                           `f.yaml:5:18: error: inverse.with: a key that is no text`,
		head + rest + "inverse: {with: {a: .nan}}\n":                              `f.yaml:5:21: error: inverse.with.a: ".nan" is no number of JSON`,
		head + rest + "inverse: {with: {a: !!binary aGk=}}\n":                     `f.yaml:5:21: error: inverse.with.a: a value of kind !!binary`,
		head + rest + "inverse: {with: {a: 1e400}}\n":                             `f.yaml:5:21: error: inverse.with.a: 1e400 is larger than any number that can be read; write a text in quotes`,
		head + rest + "inverse: {with: {a: -" + strings.Repeat("1", 400) + "}}\n": `f.yaml:5:21: error: inverse.with.a: -1111`,
		head + rest + "inverse: {with: {a: !!bool yes}}\n":                        `f.yaml:5:21: error: inverse.with.a: "yes" is no truth`,
		head + rest + "review: !!bool yes\n":                                      `f.yaml:5:9: error: review: "yes" is no truth`,
		head + rest + "page: !!binary YQ==\n":                                     `f.yaml:5:7: error: page: a value of kind !!binary; write a text`,
		head + rest + "inverse: {dedupe: 0s}\n":                                   `f.yaml:5:19: error: inverse.dedupe: "0s" is nothing; leave the field out for its default`,
		head + rest + "valid_for: 0d\n":                                           `f.yaml:5:12: error: valid_for: "0d" is nothing`,
		head + rest + "inverse: {attempts: 0}\n":                                  `f.yaml:5:21: error: inverse.attempts: "0" is nothing`,
		head + rest + "inverse: {jitter: [0]}\n":                                  `f.yaml:5:19: error: inverse.jitter: "" is no whole number`,
		head + rest + "  x: [\n":                                                  `f.yaml:5:1: error: no YAML: `,
		"\tx: 1\n":                                                                `f.yaml:1:1: error: no YAML: `,
		"apiVersion: sagenbaum/v2\nkind: Contract\n" + rest:                       `f.yaml:1:13: error: apiVersion: "sagenbaum/v2"; write sagenbaum/v1`,
		"kind: Contract\n" + rest:                                                 `f.yaml:1:1: error: apiVersion: ""; write sagenbaum/v1`,
		"apiVersion: sagenbaum/v1\nkind: MCPPack\nserver: x\ntools: {}\n":         `f.yaml:2:7: error: kind: "MCPPack", the contracts of an MCP server; check it with sagenbaum mcp check --pack f.yaml -- COMMAND`,
		"apiVersion: sagenbaum/v1\nkind: Agreement\n" + rest:                      `f.yaml:2:7: error: kind: "Agreement"; write Contract`,
		"- a\n": `f.yaml:1:1: error: no mapping`,
		"":      `f.yaml: error: no contract; a document with apiVersion`,
		"---\n": `f.yaml: error: no contract`,
		strings.Repeat("#", contract.FileSizeMax+1):                                                       `f.yaml: error: 1048577 bytes; at most 1048576`,
		head + rest + "inverse: {with: {a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "}}\n": `error: inverse.with.a[0]`,
	} {
		_, err := contract.Parse("f.yaml", []byte(text))
		var findings contract.Findings
		if !errors.As(err, &findings) || !strings.Contains(findings[0].String(), want) {
			t.Errorf("%.200q\n  %v\nwant\n  %s", text, err, want)
		}
	}
}

func TestAFileHasSeveralDocuments(t *testing.T) {
	sources, err := contract.Parse("f.yaml", []byte("# first\n---\n"+head+rest+"---\n\n---\n"+head+"capability: c.d\nclass: irreversible\n---\n"+head+"oops: 1\n"))
	if err == nil || !strings.Contains(err.Error(), "f.yaml:17:1: error: oops: unknown field") {
		t.Errorf("error %v", err)
	}
	if len(sources) != 2 || sources[0].Capability != "a.b" || sources[0].Line != 3 || sources[1].Capability != "c.d" || sources[1].Line != 10 {
		t.Errorf("sources %+v", sources)
	}
}

func TestAllOfADirectoryIsRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	sources, err := contract.LoadDir(fstest.MapFS{
		"b.yml": file(head + rest), "sub/a.yaml": file(head + "capability: c.d\nclass: effectless\n"), "README.md": file("x"),
		"z.yaml": file(head + rest), "bad.yaml": file("x: 1\n"),
	})
	want := "cannot read contracts: bad.yaml:1:1: error: x: unknown field; there is "
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "z.yaml:3:13: error: capability: a.b is declared twice; the first is b.yml:1") {
		t.Errorf("error %v", err)
	}
	if len(sources) != 3 || sources[1].File != "sub/a.yaml" {
		t.Errorf("sources %+v", sources)
	}
}

// What is read can be compiled or refused, and has one canonical form.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		head + rest,
		head + "capability: a.b\nclass: compensable\ninverse:\n  call: a.c\n  with:\n    x: >-\n      =input.x +\n      1\n    y: {from: $.output.a[0]}\n    z: [10.10, 0x1f, \"é\\n\", 'it''s']\nvalid_for: 1d\n",
		head + "capability: a.b\nclass: compensable\nprobe: {call: x, answer: |\n  probe.x ?\n   'a' : 'b'}\n",
		"%YAML 1.1\n--- !!map\na: &a [*a]\n", "a: [\n", "? {a: b}\n: c\n",
	} {
		f.Add(seed)
	}
	programs := triggers.NewCache(64)
	f.Fuzz(func(t *testing.T, text string) {
		sources, _ := contract.Parse("f.yaml", []byte(text))
		for _, found := range compile.Lint(sources) {
			if found.Line < 1 || found.Column < 1 || found.Line > strings.Count(text, "\n")+1 {
				t.Errorf("%q has a finding outside: %s", text, found)
			}
		}
		for _, s := range sources {
			c, err := compile.Contract(s.Contract, programs)
			if err != nil {
				continue
			}
			back, err := contract.Decode(c.Canonical)
			if err != nil {
				t.Fatalf("%q has the canonical form %s: %v", text, c.Canonical, err)
			}
			if again, err := compile.Contract(back, programs); err != nil || again.Digest != c.Digest {
				t.Fatalf("%q has the canonical form %s, which comes back otherwise (%v)", text, c.Canonical, err)
			}
		}
	})
}
