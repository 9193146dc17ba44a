package replay

import "time"

const (
	askDelay    = 50 * time.Millisecond // before a call that may pass is made again
	askDelayMax = time.Second           // between questions to an owner or an executor

	versionMax = 12 // bytes of a handler's version, which is in a capability
)
