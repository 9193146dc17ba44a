//go:build unix

package testenv

import (
	"syscall"
	"time"
)

// CPU is the processor time of this process so far. A test that bounds what something costs
// takes the difference of two: unlike the wall clock it does not count what other processes
// on the machine do.
func CPU() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic("testenv: cannot read the time of this process: " + err.Error())
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
