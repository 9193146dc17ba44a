package jetstream

import "time"

// Hurry has a bucket without a leader looked at after d.
func (h *Holders) Hurry(d time.Duration) {
	h.revive.mu.Lock()
	defer h.revive.mu.Unlock()
	h.revive.after = d
}

// HurryGrowth has the replicas of the bucket looked at each d.
func (h *Holders) HurryGrowth(d time.Duration) {
	h.revive.mu.Lock()
	defer h.revive.mu.Unlock()
	h.revive.every = d
}
