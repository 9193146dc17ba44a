package coordinator

import "time"

// LookFor sets how long Begin waits for an executor to say whether an id is used.
func (c *Coordinator) LookFor(d time.Duration) { c.lookup = d }
