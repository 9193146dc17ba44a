// Package memory is `sagenbaum memory`: which facts are kept in working memory.
package memory

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
	pb "github.com/sagenbaum/sagenbaum/proto/sagenbaum/v1"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	factcmd "github.com/sagenbaum/sagenbaum/cmd/sagenbaum/fact"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/rebuild"
)

// Command is `sagenbaum memory` with all below it.
func Command(s *cli.Settings) *cobra.Command {
	return cli.Group(&cobra.Command{
		Use: "memory",
		Short: "See what is in working memory, what is evicted next, and whether it matches the " +
			"ledger",
		Example: `  sagenbaum memory status
  sagenbaum memory queue
  sagenbaum memory rebuild --check`,
	}, cli.Watchable(s, newMemoryStatus(s)), cli.Watchable(s, newMemoryQueue(s)), newMemoryEvict(s),
		newMemoryRestore(s), newMemoryRebuild(s))
}

func newMemoryStatus(s *cli.Settings) *cobra.Command {
	return cli.Show[api.Memory]{
		Command: &cobra.Command{
			Use:     "status",
			Short:   "Show how full working memory is",
			Example: "  sagenbaum memory status\n  sagenbaum memory status -o json",
		},
		Doing: "read working memory",
		Ask: func(ctx context.Context, c *cli.Client, _ []string) (api.Memory, error) {
			answer, err := cli.Ask(ctx, c, api.MemoryStatus, api.Nothing{})
			return answer.Memory, err
		},
		Write: func(out io.Writer, _ cli.Pen, v api.Memory) { fmt.Fprintln(out, memoryLine(v)) },
	}.New(s)
}

func memoryLine(m api.Memory) string {
	of := "no limit"
	if m.Capacity > 0 {
		of = fmt.Sprintf("%.1f %% of %d", 100*float64(m.Bytes)/float64(m.Capacity), m.Capacity)
	}
	return fmt.Sprintf(
		"%d bytes, %s · %d facts in memory · %d evicted · %d tombstones · %d evictions so far · "+
			"as of sequence %d",
		m.Bytes, of, m.Facts, m.Evicted, m.Tombstones, m.Evictions, m.Applied)
}

func newMemoryQueue(s *cli.Settings) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "queue",
		Short: "List what would be evicted next, and the latest evictions",
		Long: `List what would be evicted next, in its order, and the latest evictions. A fact
that is larger than the capacity goes first, and no other for it. When memory
is over its capacity without such a fact, it is brought down to nine tenths of it: the facts that
were asserted longest ago go first, those that a held lease reads last. SINCE is a
fact's place in that order, to the minute. An eviction is a record; the value stays in
the ledger, and no condition changes its answer.`,
		Example: "  sagenbaum memory queue\n  sagenbaum memory queue --limit 10 -o json",
		Args:    cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 || limit > cli.PageSize {
				return cli.Fail(cli.ExitUsage, "--limit 100", "--limit is 1 to %d, not %d",
					cli.PageSize, limit)
			}
			answer, err := cli.Question(cmd, s, "read the eviction queue", api.MemoryQueue,
				api.QueueQuery{Limit: limit})
			if err != nil {
				return err
			}
			return s.Print(cmd, answer, func() { writeQueue(cmd, answer) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` of each")
	return cmd
}

func writeQueue(cmd *cobra.Command, answer api.QueueAnswer) {
	out, now := cmd.OutOrStdout(), time.Now()
	fmt.Fprintln(out, memoryLine(answer.Memory))
	if len(answer.Next) > 0 {
		t := cli.Table{Head: []string{"NEXT", "KEY", "BYTES", "SINCE", "WHY"}}
		for i, v := range answer.Next {
			why := "then"
			switch {
			case v.Oversize:
				why = "larger than the capacity"
			case v.Watched:
				why = "a held lease reads it: after all others"
			case i == 0 || answer.Next[i-1].Oversize:
				why = "asserted longest ago"
			}
			t.Add(fmt.Sprint(i+1), factcmd.KeyText(v.Key, factcmd.KeyShown), fmt.Sprint(v.Bytes),
				cli.Relative(v.SinceNs, now), why)
		}
		t.Write(out)
	}
	if len(answer.Latest) > 0 {
		fmt.Fprintln(out, "latest evictions")
		factcmd.WriteEvents(out, answer.Latest, true)
	}
}

// asking is a request about facts.
type asking struct{ reason, actor string }

func (v *asking) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&v.reason, "reason", "", "why, for the record")
	cmd.Flags().StringVar(&v.actor, "actor", cli.DefaultActor(), "`NAME` of the operator who asks")
}

func newMemoryEvict(s *cli.Settings) *cobra.Command {
	var v asking
	cmd := &cobra.Command{
		Use:   "evict KEY...",
		Short: "Take the values of facts out of memory; they stay in the ledger",
		Long: `Take the values of facts out of memory; they stay in the ledger, and no condition
changes its answer. A lease that reads such a fact brings it back while there is
room. The request is a record; exit code 75 means that the log refused it, for
example because a fact is evicted already.`,
		Example: "  sagenbaum memory evict report/2025 report/2024 --reason \"read once a year\"",
		Args:    keysOf,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askAbout(cmd, s, args, v, api.FactEvicted,
				&pb.Record{Kind: &pb.Record_EvictRequested{
					EvictRequested: &pb.EvictRequested{Keys: args, Reason: v.reason,
						Actor: v.actor}}})
		},
	}
	v.flags(cmd)
	return cmd
}

func newMemoryRestore(s *cli.Settings) *cobra.Command {
	var v asking
	cmd := &cobra.Command{
		Use:   "restore KEY...",
		Short: "Bring the values of evicted facts back from the ledger",
		Long: `Bring the values of evicted facts back from the ledger: the compensation of their
eviction. Where there is no room for them, others are evicted for it; one that is
larger than the capacity is not asked for. The request is a record; exit code 75 means
that the log refused it.`,
		Example: "  sagenbaum memory restore report/2025",
		Args:    keysOf,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askAbout(cmd, s, args, v, api.FactInMemory,
				&pb.Record{Kind: &pb.Record_RestoreRequested{
					RestoreRequested: &pb.RestoreRequested{Keys: args, Reason: v.reason,
						Actor: v.actor}}})
		},
	}
	v.flags(cmd)
	return cmd
}

// keysOf wants the keys of facts, as many as one request takes.
func keysOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || len(args) > ledger.RequestKeysMax {
		return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help", "%s takes 1 to %d keys, got %d",
			cmd.CommandPath(), ledger.RequestKeysMax, len(args))
	}
	return nil
}

// askAbout appends a request and waits until it is carried out.
func askAbout(cmd *cobra.Command, s *cli.Settings, keys []string, v asking, state string,
	record *pb.Record) error {
	if err := cli.CheckActor(v.actor); err != nil {
		return err
	}
	source := ledger.Source{Class: ledger.ClassOperator, Name: v.actor}
	if err := ledger.Check(record, source); err != nil {
		return cli.Fail(cli.ExitUsage, cmd.CommandPath()+" --help", "%v", err)
	}
	return s.With(func(c *cli.Client) error {
		source.Tenant = c.Tenant
		ctx := cmd.Context()
		if state == api.FactInMemory {
			if err := fit(ctx, c, keys); err != nil {
				return cli.Failed("ask for it", err)
			}
		}
		result, err := factcmd.Write(ctx, c, source, keys[0], record)
		if err != nil {
			return cli.Failed("ask for it", err)
		}
		facts := []api.Fact{}
		for _, key := range keys {
			fact, err := carriedOut(ctx, c, key)
			if err != nil {
				return cli.Failed("see what became of it", err)
			}
			facts = append(facts, fact)
		}
		if s.JSON() {
			return cli.PrintJSON(cmd.OutOrStdout(),
				map[string]any{"record": result.Record, "facts": facts})
		}
		for _, fact := range facts {
			fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s · record %d%s\n",
				factcmd.KeyText(fact.Key, factcmd.KeyWhole), s.Pen(cmd).State(fact.State),
				sinceText(fact), result.Record, overtaken(fact, state))
		}
		return nil
	})
}

// sinceText says which record made a fact what it is.
func sinceText(fact api.Fact) string {
	at := fact.Asserted
	switch {
	case fact.State == api.FactEvicted:
		at = fact.Evicted
	case fact.State == api.FactRetracted:
		at = fact.Tombstone
	case fact.Reingested != "":
		at = fact.Reingested
	}
	return "at " + cli.Dash(at)
}

// overtaken says that a fact is not what was asked for: another record has changed it
// since, such as an assertion, or an eviction for want of room.
func overtaken(fact api.Fact, asked string) string {
	if fact.State == asked {
		return ""
	}
	return ", after which another record changed it: sagenbaum fact history " +
		factcmd.KeyArg(fact.Key)
}

// fit refuses to ask for facts that never fit into working memory: they would be
// evicted again at once. Whether they are evicted at all is for the fold to say.
func fit(ctx context.Context, c *cli.Client, keys []string) error {
	answer, err := cli.Ask(ctx, c, api.MemoryStatus, api.Nothing{})
	if err != nil {
		return err
	}
	if answer.Memory.Capacity <= 0 {
		return nil
	}
	for _, key := range keys {
		fact, err := cli.Ask(ctx, c, api.FactGet, api.FactQuery{Key: key, Sequence: 1})
		if err != nil {
			return err
		}
		if fact.Fact.State == api.FactEvicted &&
			fact.Fact.Bytes > uint64(answer.Memory.Capacity) {
			return cli.Fail(cli.ExitConflict,
				"serve --memory-bytes; sagenbaum fact get "+factcmd.KeyArg(key)+
					" reads it from the ledger",
				"fact %q: %d bytes do not fit in %d", key, fact.Fact.Bytes, answer.Memory.Capacity)
		}
	}
	return nil
}

// carriedOut asks for a fact until no request about it is open, or time is up.
func carriedOut(ctx context.Context, c *cli.Client, key string) (api.Fact, error) {
	deadline := time.Now().Add(c.Timeout)
	for {
		fact, err := factcmd.Fact(ctx, c, key)
		if err != nil || fact.Asked == "" {
			return fact, err
		}
		if !time.Now().Before(deadline) {
			return fact, cli.Fail(cli.ExitFailed, "sagenbaum status",
				"the request of %s about fact %q is recorded and not carried out yet", fact.Asked,
				key)
		}
		select {
		case <-ctx.Done():
			return fact, ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

// askAgain is how long a command waits before it looks again.
const askAgain = 20 * time.Millisecond

func newMemoryRebuild(s *cli.Settings) *cobra.Command {
	var check bool
	limit := cli.RebuildWait
	cmd := &cobra.Command{
		Use:   "rebuild --check",
		Short: "Fold the ledger again beside the running executor, and compare",
		Long: `Fold the ledger again beside the running executor, up to where its state is, and
compare working memory and the whole state, byte for byte. It changes nothing. Exit
code 1 when the two differ: then the state is not what the ledger says, and
"sagenbaum rebuild" drops it and folds again: the state is a cache. It takes as long
as a fold of the whole ledger; --wait-timeout bounds it.`,
		Example: "  sagenbaum memory rebuild --check\n  sagenbaum memory rebuild --check -o json " +
			"| jq .equal",
		Args: cli.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return cli.Fail(cli.ExitUsage, "sagenbaum memory rebuild --check",
					"this one only checks; to rebuild the state: sagenbaum rebuild")
			}
			if err := cli.CheckWait(limit, "1h"); err != nil {
				return err
			}
			return rebuild.CheckRebuild(cmd, s, limit)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "compare, and change nothing; required")
	cmd.Flags().DurationVar(&limit, "wait-timeout", cli.RebuildWait, "how long to wait at most")
	return cmd
}
