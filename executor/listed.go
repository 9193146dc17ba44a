package executor

import (
	"encoding/binary"
	"strings"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// Plans are listed by what people ask for: all of them, by state, agent, capability
// and label. Each list is in order of opening, the latest first, so that a page of
// one is a scan from its key and nothing is counted.
const (
	listAll        = 'a'
	listState      = 's' // its phase as a digit
	listAgent      = 'g'
	listCapability = 'c'
	listLabel      = 'l' // the label, or key=value of one of the labels
)

// listedMax bounds the bytes of a value in a key; longer labels are cut.
const listedMax = 256

// listedPlace is the length of what tells the plans of one list apart, before their ids.
const listedPlace = 12

// listPrefix is what the keys of one list begin with.
func listPrefix(dim byte, value string) []byte {
	value = strings.ReplaceAll(value[:min(len(value), listedMax)], "\x00", " ")
	k := make([]byte, 0, 3+len(value)+listedPlace+32)
	return append(append(append(k, keyListed, dim), value...), 0)
}

func listedKey(dim byte, value string, opened *pb.Address, plan string) []byte {
	k := binary.BigEndian.AppendUint64(listPrefix(dim, value), ^opened.GetSequence())
	return append(binary.BigEndian.AppendUint32(k, ^opened.GetIndex()), plan...)
}

// phaseValue is a phase as the list of states has it.
func phaseValue(phase rowspb.Phase) string { return string('0' + rune(phase)) }

// list keeps the entries of a plan in the lists true to its row.
func (s *State) list(p *plan) {
	was, opened := p.listed, p.row.Opened
	if was == p.row.Phase {
		return
	}
	if p.listed = p.row.Phase; was == rowspb.Phase_PHASE_UNSPECIFIED {
		s.kv.Set(listedKey(listAll, "", opened, p.id), nil)
		s.kv.Set(listedKey(listAgent, p.row.Agent, opened, p.id), nil)
		for _, label := range labelsOf(p.row) {
			s.kv.Set(listedKey(listLabel, label, opened, p.id), nil)
		}
	} else {
		s.kv.Delete(listedKey(listState, phaseValue(was), opened, p.id))
	}
	s.kv.Set(listedKey(listState, phaseValue(p.row.Phase), opened, p.id), nil)
}

// labelsOf are the values under which a plan is listed by label.
func labelsOf(row *rowspb.PlanRow) (labels []string) {
	if row.Declared.GetLabel() != "" {
		labels = append(labels, row.Declared.Label)
	}
	for _, l := range row.Declared.GetLabels() {
		labels = append(labels, l.Key+"="+l.Value)
	}
	return labels
}

// listAction lists the plan of a new action by its capability.
func (s *State) listAction(a *action) {
	if capability := a.fixed.Forward.GetCapability(); capability != "" {
		s.kv.Set(listedKey(listCapability, capability, s.plan(a.id.plan).row.Opened, a.id.plan), nil)
	}
}
