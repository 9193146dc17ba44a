// Package writers says whose records a plan takes. It knows the row of a plan, and of its actions.
//
// An agent may run in several processes, and one that was thought dead may go on. A plan takes new
// actions, savepoints and its end from one process at a time: the one that opened it, or the last
// one that resumed it. That a forward has happened, or may have, is taken from the process that
// registered it too; that it has not, only from the plan's (ADR 0024). An operator may hand a plan
// to another agent (ADR 0045): from there on its processes write it, and of the agents before it
// takes what became of the forwards that they have registered.
package writers

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/executor/rowspb"
	"github.com/sagenbaum/sagenbaum/ledger"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"
)

// First is the agent that opened a plan. It is what conditions and arguments read as plan.agent,
// whoever has the plan by now.
func First(p *rowspb.PlanRow) string {
	if len(p.Adoptions) > 0 {
		return p.Adoptions[0].From
	}
	return p.Agent
}

// Had reports whether an agent has a plan, or had it.
func Had(p *rowspb.PlanRow, agent string) bool {
	return p.Agent == agent || slices.ContainsFunc(p.Adoptions, func(a *rowspb.Adoption) bool {
		return a.From == agent
	})
}

// Name is a process as its plan calls it: by its own name, unless it is one of another agent than
// the first. No name of a process has a slash.
func Name(p *rowspb.PlanRow, agent, writer string) string {
	if agent == First(p) {
		return writer
	}
	return agent + "/" + writer
}

// Bare is the name of a process as its agent calls it.
func Bare(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Of is the process that registered an action.
func Of(p *rowspb.PlanRow, a *rowspb.ActionStatic) string { return cmp.Or(a.Writer, p.Opener) }

// From is the sequence at which the present writer of a plan became that, or at which an agent got
// the plan of which no process has resumed it.
func From(p *rowspb.PlanRow) uint64 { return cmp.Or(p.ResumedAt, p.Opened.GetSequence()) }

// HasWord reports whether a process may say what became of the forward of an action.
func HasWord(p *rowspb.PlanRow, a *rowspb.ActionStatic, name string) bool {
	return isWriter(p, name) || name == Of(p, a)
}

// isWriter reports whether a process is the one that a plan takes its records from: none is until
// one of the agent that got it has resumed it.
func isWriter(p *rowspb.PlanRow, name string) bool { return name == p.Writer && !Awaited(p) }

// GoesOn reports whether a process is the present writer of a plan, and became that after the
// record at a sequence.
func GoesOn(p *rowspb.PlanRow, name string, after uint64) bool {
	return isWriter(p, name) && From(p) > after
}

// last is the adoption by which a plan got to the agent that has it; nil: that has opened it.
func last(p *rowspb.PlanRow) *rowspb.Adoption {
	if len(p.Adoptions) == 0 {
		return nil
	}
	return p.Adoptions[len(p.Adoptions)-1]
}

// Awaited reports whether a plan got to another agent, of which no process has resumed it.
func Awaited(p *rowspb.PlanRow) bool {
	a := last(p)
	return a != nil && p.ResumedAt == a.At.GetSequence()
}

// Refuses says why a plan does not take a record of an agent that has it, or had it, or "". The
// action is the one that the record names; nil: it is not registered.
func Refuses(id string, p *rowspb.PlanRow, a *rowspb.ActionStatic, r *pb.Record, agent string,
	fold uint32) string {
	name := Name(p, agent, r.Writer)
	if agent == p.Agent && isWriter(p, name) {
		return ""
	}
	tells := r.GetForwardCompleted() != nil || r.GetForwardInDoubt() != nil
	// The process that has resumed the plan may have called the forward once more: that one call of
	// it has failed, or was never made, says nothing of the other.
	if r.GetForwardFailed() != nil {
		tells = fold < ledger.AskedSince
	}
	switch got := last(p); {
	case tells && a != nil && Of(p, a) == name:
		return ""
	case agent != p.Agent:
		return fmt.Sprintf("writer: plan %s is agent %s's since %s, to which %s has handed it; of agent "+
			"%s it takes what became of the forwards that are registered", id, p.Agent,
			instant(got.Ns), got.By, agent)
	case Awaited(p):
		return fmt.Sprintf("writer: %s has handed plan %s to agent %s at %s; a process of it resumes "+
			"the plan first", got.By, id, agent, instant(got.Ns))
	case p.ResumedNs != 0:
		return fmt.Sprintf("writer: plan %s takes the records of the process that resumed it at %s, and "+
			"no other's", id, instant(p.ResumedNs))
	}
	return fmt.Sprintf("writer: plan %s takes the records of the process that opened it; another one "+
		"resumes it first", id)
}

// RefusesResume says why a process that names whom it follows comes too late to resume a plan, or
// "": a copy of its record, or one that was long on its way, would take the plan back from the one
// that has it since.
func RefusesResume(id string, p *rowspb.PlanRow, k *pb.PlanResumed, fold uint32) string {
	if k.Follows == 0 || k.Follows == From(p) || fold < ledger.FollowsSince {
		return ""
	}
	return fmt.Sprintf("plan_resumed.follows: %d, and the writer of plan %s is another one since %d",
		k.Follows, id, From(p))
}

// AdoptionsMax is how often a plan may get to another agent.
const AdoptionsMax = 32

// Says reports whether the last adoption of a plan has said the same: a copy of a record.
func Says(p *rowspb.PlanRow, k *pb.PlanAdopted) bool {
	a := last(p)
	return a != nil && k.Follows != 0 && a.Follows == k.Follows && p.Agent == k.Agent
}

// RefusesAdoption says why an open plan is not handed to another agent, or "".
func RefusesAdoption(id string, p *rowspb.PlanRow, k *pb.PlanAdopted) string {
	switch function := p.Declared.GetFunction(); {
	case k.Agent == p.Agent:
		return ledger.Refuse("plan_adopted.agent", "plan "+id+" is agent "+k.Agent+"'s",
			"another agent; a process of that one resumes the plan by itself").Error()
	case function != "":
		return ledger.Refuse("plan_adopted.agent", "plan "+id+" was begun by function "+function+
			" of agent "+p.Agent+", whose code goes on with it and may undo it",
			"that function, run by that agent").Error()
	case k.Follows != 0 && k.Follows != From(p):
		return ledger.Refuse("plan_adopted.follows", fmt.Sprintf("%d, and the writer of plan %s is "+
			"another one since %d", k.Follows, id, From(p)),
			"a look at it, and another record if it is still to be handed over").Error()
	case len(p.Adoptions) == AdoptionsMax:
		return ledger.Refuse("plan_adopted.agent", fmt.Sprintf("plan %s got to another agent %d times",
			id, AdoptionsMax), "its end").Error()
	}
	return ""
}

// Adopt hands a plan to another agent, at an instant of logical time: no process writes it until
// one of that agent has resumed it.
func Adopt(p *rowspb.PlanRow, k *pb.PlanAdopted, at *pb.Address, ns int64, by string) {
	p.Adoptions = append(p.Adoptions, &rowspb.Adoption{From: p.Agent, At: at, Ns: ns,
		Follows: k.Follows, By: by, Reason: k.Reason})
	p.Agent = k.Agent
	p.Writer, p.ResumedNs, p.ResumedAt = Name(p, k.Agent, ""), ns, at.GetSequence()
}

// RefusesChild says why a plan takes no child plan of another agent than the one that has it, which
// shows the token that the plan was opened with, or "". The token is that of the agent which opened
// the plan, and those that it gave it to, and ends when the plan gets to another agent.
func RefusesChild(parent, child *rowspb.PlanRow, fold uint32) string {
	token := child.Declared.ParentToken
	digest := sha256.Sum256(token)
	switch {
	case child.Agent == parent.Agent:
		return ""
	case last(parent) != nil && fold >= ledger.AttachEndsSince:
		return fmt.Sprintf("is agent %s's since it was handed over, and its token has ended with that: "+
			"agent %s opens child plans in it, agent %s a plan without a parent", parent.Agent,
			parent.Agent, child.Agent)
	case len(token) == 0 || !bytes.Equal(parent.Declared.AttachDigest, digest[:]):
		return "takes no child plan of agent " + child.Agent + " without its token"
	}
	return ""
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
