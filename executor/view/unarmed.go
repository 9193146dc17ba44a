package view

import (
	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/proto/api"
	"github.com/sagenbaum/sagenbaum/triggers"
)

// unarmedMax bounds the conditions that a preview says to be held for nothing.
const unarmedMax = 100

// unarmed names the conditions of the actions of a plan, or of the action with an id, that never
// fire because a field that they read was not lifted. One that is moot for another reason has done
// its work.
func unarmed(r *Reader, p *executor.Plan, of string) (list []api.Unarmed) {
	for a := range p.Actions() {
		if of != "" && a.Fixed.Id != of {
			continue
		}
		for _, l := range a.Leases() {
			if why := unlifted(r, l); why != "" {
				list = append(list, api.Unarmed{Number: int(a.N), Action: a.Fixed.Id, Trigger: l.Row.Name,
					Reason: why})
			}
			if len(list) == unarmedMax {
				return list
			}
		}
	}
	return list
}

// unlifted says which field a condition reads that was not lifted and never will be; "": none.
func unlifted(r *Reader, l *executor.Lease) string {
	if !l.Row.Moot {
		return ""
	}
	for _, why := range r.lease(l, false).MootWhy {
		if path, from, ok := triggers.Unlifted(why); ok {
			return path + " was not lifted from the " + from + ", which has no such field"
		}
	}
	return ""
}
