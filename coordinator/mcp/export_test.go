package mcp

import "time"

// Environment is that of a child of a gateway with the variables given.
func (c ServerConfig) Environment(given []string) []string { return c.environment(given) }

// Folder resolves an argument that is a folder.
func Folder(argument string) (string, bool) { return folder(argument) }

// Unmark has a plan be as after a savepoint that could not be stored.
func (g *Gateway) Unmark(plan string) {
	t := g.plans.known(nil, plan)
	release, _ := t.take(g.life)
	defer release()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marks++
	t.mark = ""
}

// Spend spends undos of a plan at a time, and says how long the last of them has to wait.
func (g *Gateway) Spend(plan string, undos int, now time.Time) (wait time.Duration) {
	t := g.plans.known(nil, plan)
	t.mu.Lock()
	defer t.mu.Unlock()
	for range undos {
		wait = t.budget.spend(now)
	}
	return wait
}
