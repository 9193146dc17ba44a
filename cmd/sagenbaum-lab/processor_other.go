//go:build !unix

package main

import "time"

// processorTime returns the time of day, where processor time is not to be had.
func processorTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
