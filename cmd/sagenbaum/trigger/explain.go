package trigger

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

func newTriggerExplain(s *cli.Settings) *cobra.Command {
	var q api.ExplainQuery
	cmd := &cobra.Command{
		Use:   "explain PLAN",
		Short: "Say what the held conditions of a plan answer now, and what they wait for",
		Long: `Say what the held conditions of a plan and its actions answer now: the truth, what an
unknown waits for, when time alone could change it, the facts that it is indexed by
and the values it read. Failure, cancellation, deadline, verdicts and extra effects
are conditions like any other.`,
		Example: "  sagenbaum trigger explain 01JD39QK\n  sagenbaum trigger explain 01JD39QK " +
			"--action charge --lease unconfirmed",
		Args: cli.Exactly("PLAN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Plan = args[0]
			answer, err := cli.Question(cmd, s, "explain the triggers", api.TriggerExplain, q)
			if err != nil {
				return err
			}
			return s.Print(cmd, answer.Explain,
				func() {
					render.WriteExplain(cmd.OutOrStdout(), s.Pen(cmd),
						cli.ForPeople(answer.Explain), time.Now())
				})
		},
	}
	cmd.Flags().StringVar(&q.Action, "action", "",
		"only the conditions of `ACTION`, by number or id")
	cmd.Flags().StringVar(&q.Lease, "lease", "", "only the condition of this `NAME`")
	return cmd
}
