// Command sagenbaum-lab is for those who develop Sagenbaum; it is not shipped.
//
//	sagenbaum-lab bench    measure this machine, the server and the executor
//	sagenbaum-lab sim      run worlds by seed in which the executor meets every fault
//
// docs/performance.md and docs/guide/simulation.md explain the two. The mutants are
// executor/sim/mutants, the torture a test of cmd/sagenbaum.
package main

import (
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

func main() { cli.Main(newRoot()) }

func newRoot() *cobra.Command {
	s := new(cli.Settings)
	root := cli.Group(&cobra.Command{
		Use:   "sagenbaum-lab",
		Short: "Measure and simulate Sagenbaum, for those who develop it",
		Long: `Measure and simulate Sagenbaum, for those who develop it.

Exit codes: 0 good, 1 look (a rule is broken), 2 could not do it, 64 usage.`,
		Example: `  sagenbaum-lab bench --only pairs   # measure this machine
  sagenbaum-lab sim --seed 7 --trace # one simulated world, step by step`,
	}, newBench(), newSim(s))
	cli.Prepare(root, s)
	return root
}
