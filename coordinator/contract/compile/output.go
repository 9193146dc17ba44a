package compile

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// An output may be larger than a record. What the undo, the probe and the check read of it
// is kept all the same.

// outcomeReads lists the paths of the output that a registration reads, each as far as it
// is constant, and says whether it reads what the provider calls the effect.
func (x *compiler) outcomeReads(t *pb.CompensationRegistered) (paths [][]string, reference bool) {
	for _, b := range x.readersOf(t) {
		reference = reference || b.ReadsField("meta", "external_ref")
		for _, read := range b.Paths() {
			if read.Path[0] == "output" {
				paths = append(paths, read.Path[1:])
			}
		}
	}
	return paths, reference
}

// checkElements bounds what the expressions of a call read of other actions, and of facts.
func (x *compiler) checkElements(t *pb.CompensationRegistered) {
	for _, variable := range [...]string{"actions", "facts"} {
		read := 0
		for _, b := range x.readersOf(t) {
			read += len(b.Keys(variable))
		}
		if read > ledger.ElementsMax {
			x.refuse("", fmt.Sprintf("its expressions read %d %s", read, variable),
				fmt.Sprintf("at most %d", ledger.ElementsMax))
		}
	}
}

// readersOf are the expressions of a call, but for its conditions; nil has none.
func (x *compiler) readersOf(t *pb.CompensationRegistered) (readers []*triggers.Binding) {
	var texts []string
	for _, b := range slices.Concat(t.GetBindings(), t.GetProbe().GetCall().GetBindings(),
		t.GetVerify().GetCall().GetBindings()) {
		texts = append(texts, b.Expression)
	}
	texts = append(texts, t.GetDone(), t.GetStop(), t.GetUnchanged(), t.GetProbe().GetAnswer(),
		t.GetProbe().GetExternalRef(), t.GetVerify().GetOk())
	for _, text := range texts {
		if b, err := x.programs.Reader(text); text != "" && err == nil { // else refused before
			readers = append(readers, b)
		}
	}
	return readers
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
