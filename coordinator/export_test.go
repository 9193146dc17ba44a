package coordinator

import (
	"time"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// PresenceMax is how long the process that runs a plan may take to say so.
const PresenceMax = presenceMax

// LookFor sets how long Begin waits for an executor to say whether an id is used.
func (c *Coordinator) LookFor(d time.Duration) { c.lookup = d }

// After are the actions that one comes after, as far as this process knows.
func After(p *Plan, id string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.actions[id].after
}

// StagedAs is what Stage makes of the word of an executor on a staged act.
func StagedAs(p *Plan, id string, answer api.OutcomeAnswer) error {
	p.mu.Lock()
	a := p.actions[id]
	p.mu.Unlock()
	return a.stagedAs(answer)
}
