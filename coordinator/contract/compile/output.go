package compile

import (
	"encoding/json"
	"slices"

	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// An output may be larger than a record. What the undo, the probe and the check read of it
// is kept all the same.

// outcomeReads lists the paths of the output that a registration reads, each as far as it
// is constant, and says whether it reads what the provider calls the effect.
func (x *compiler) outcomeReads(t *pb.CompensationRegistered) (paths [][]string, reference bool) {
	add := func(b *triggers.Binding, err error) {
		if err != nil {
			return // refused before
		}
		reference = reference || b.ReadsField("meta", "external_ref")
		for _, read := range b.Paths() {
			if read.Path[0] == "output" {
				paths = append(paths, read.Path[1:])
			}
		}
	}
	bindings := slices.Concat(t.Bindings, t.Probe.GetCall().GetBindings(),
		t.Verify.GetCall().GetBindings())
	for _, b := range bindings {
		add(x.programs.Reader(b.Expression))
	}
	readers := []string{t.Done, t.Stop, t.Unchanged, t.Probe.GetAnswer(), t.Probe.GetExternalRef(),
		t.Verify.GetOk()}
	for _, text := range readers {
		if text != "" {
			add(x.programs.Reader(text))
		}
	}
	return paths, reference
}

// ReadsOutput reports whether a call of the undo reads anything of the output.
func (c *Compiled) ReadsOutput() bool { return len(c.reads) > 0 }

// ReadsReference reports whether a call of the undo reads what the provider calls the effect.
func (c *Compiled) ReadsReference() bool { return c.readsReference }

// Project returns what is read of an output that is too large to be recorded; nil when
// none of it is there.
func (c *Compiled) Project(output json.RawMessage) json.RawMessage {
	if len(c.reads) == 0 {
		return nil
	}
	return triggers.Project(output, c.reads)
}
