//go:build !unix

package testenv

import "time"

var started = time.Now()

// CPU is the time that has passed since this process began.
func CPU() time.Duration { return time.Since(started) }
