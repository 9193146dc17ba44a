package main

import (
	"os"
	"testing"

	"github.com/sagenbaum/sagenbaum/ledger/testenv"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cmdtest"
)

func TestMain(m *testing.M) {
	cmdtest.Act(main)
	testenv.Parallel(6) // they wait for processes, and leases
	os.Exit(m.Run())
}
