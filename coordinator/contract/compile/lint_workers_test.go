package compile_test

import (
	"strings"
	"testing"

	"github.com/sagenbaum/sagenbaum/coordinator/contract"
	"github.com/sagenbaum/sagenbaum/coordinator/contract/compile"
)

func TestLintSaysWhatNobodyServes(t *testing.T) {
	sources, err := contract.Parse("file.yaml", []byte(`apiVersion: sagenbaum/v1
kind: Contract
capability: room.book
class: compensable
unserved_after: 2h
inverse:
  call: room.free
  worker_version: v2
  with: {id: =output.id}
  verify: {call: room.check, ok: verify.gone}
probe: {call: room.find}
---
apiVersion: sagenbaum/v1
kind: Contract
capability: note.write
class: compensable
inverse: {call: fact.retract, actuator: memory, with: {key: =input.key}}
`))
	if err != nil {
		t.Fatal(err)
	}
	calls := compile.WorkerCalls(sources)
	if len(calls) != 3 || calls[0] != (compile.WorkerCall{"room.free", true, "v2"}) ||
		calls[1].Capability != "room.check" ||
		calls[1].Undo || calls[2].Capability != "room.find" {
		t.Fatalf("%+v", calls)
	}
	findings := compile.LintWorkers(sources, func(c compile.WorkerCall) compile.Serving {
		return map[string]compile.Serving{
			"room.free": {Served: compile.ServedYes,
				OtherVersion: "this worker is v1"},
			"room.check": {Served: compile.ServedNo}, "room.find": {Served: compile.ServedUnknown},
		}[c.Capability]
	})
	findings = append(findings, compile.LintWorkers(sources,
		func(compile.WorkerCall) compile.Serving { return compile.Serving{Served: compile.ServedListener} })...)
	var text strings.Builder
	for _, f := range findings {
		text.WriteString(f.String() + "\n")
	}
	for _, want := range []string{
		`inverse.call: no worker serves room.free now, and whoever listens for it is none`,
		`probe.call: no worker serves the probe room.find now, and whoever listens for it is none`,
		`file.yaml:7:9: warning: inverse.call: only other versions of a worker serve room.free: this worker is v1; a worker of version v2`,
		`file.yaml:10:18: warning: inverse.verify.call: no worker serves the check room.check now: an action that needs it is its owner's after 2h; start the worker`,
		`file.yaml:11:15: warning: probe.call: whether a worker serves the probe room.find is not known`,
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if findings := compile.LintWorkers(sources,
		func(compile.WorkerCall) compile.Serving { return compile.Serving{Served: compile.ServedYes} }); len(findings) != 0 {
		t.Errorf("%v", findings)
	}
	if findings := compile.LintWorkers(sources, func(compile.WorkerCall) compile.Serving {
		return compile.Serving{Served: compile.ServedUnknown,
			Heard: "1m ago"}
	}); len(findings) != 0 {
		t.Errorf("one has answered: %v", findings)
	}
}
