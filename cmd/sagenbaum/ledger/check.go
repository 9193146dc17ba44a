package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/executor"
	"github.com/sagenbaum/sagenbaum/executor/rows"
	"github.com/sagenbaum/sagenbaum/ledger"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// checkMax bounds what `ledger check` reads, in bytes.
const checkMax = 16 << 20

// Checked is what one record would do.
type Checked struct {
	At     string `json:"at"` // number of the commit, from 1, and of the record in it, from 0
	Kind   string `json:"kind,omitempty"`
	Plan   string `json:"plan,omitempty"`
	Action string `json:"action,omitempty"`
	// Disposition: effective, repeated, refused or void.
	Disposition string `json:"disposition"`
	Field       string `json:"field,omitempty"` // that is wrong, where one is
	Reason      string `json:"reason,omitempty"`
	Want        string `json:"want,omitempty"` // what would be right
}

// CheckAnswer is what `ledger check` prints.
type CheckAnswer struct {
	Records []Checked `json:"records"`
}

func newCheck(s *cli.Settings) *cobra.Command {
	subject := ""
	cmd := &cobra.Command{
		Use:   "check FILE|-",
		Short: "Say what commits in JSON would do, offline (exit code 1 when a record is refused)",
		Long: `Say what commits in JSON would do, offline: the file has one commit after the other,
each as it would be published, {"records": [...]}. They are folded as an executor
folds them, into an empty ledger, one line a record. So a plan has to be opened in
the file, too. Nothing is stored and no server is asked. The subject is that of an
agent, a source, a supervisor, an operator or a worker, as the first record of a
commit needs it, unless --subject names one.`,
		Example: "  sagenbaum ledger check commit.json\n" +
			"  sagenbaum ledger check - --subject saga.default.agent.coder._ < commits.json",
		Args: cli.Exactly("FILE|-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return cli.Fail(cli.ExitFailed, "a file that is there and can be read", "%v", err)
				}
				defer file.Close()
				in = file
			}
			text, err := io.ReadAll(io.LimitReader(in, checkMax+1))
			if err != nil {
				return cli.Failed("read the commits", err)
			}
			if len(text) > checkMax {
				return cli.Fail(cli.ExitFailed, "fewer commits at a time", "more than %d bytes", checkMax)
			}
			answer, err := Check(s.Tenant, subject, text, time.Now())
			if err != nil {
				return err
			}
			refused := false
			for _, r := range answer.Records {
				refused = refused || r.Disposition == "refused" || r.Disposition == "void"
			}
			return cli.Look(s.Print(cmd, answer, func() { writeChecked(cmd, s, answer) }), refused)
		},
	}
	cmd.Flags().StringVar(&subject, "subject", "", "`SUBJECT` of the commits, as in "+
		"saga.default.agent.coder._")
	return cmd
}

func writeChecked(cmd *cobra.Command, s *cli.Settings, answer CheckAnswer) {
	pen := s.Pen(cmd)
	for _, r := range answer.Records {
		r = cli.ForPeople(r)
		name := r.Plan
		if r.Action != "" {
			name += "/" + r.Action
		}
		line := fmt.Sprintf("%-5s %-24s %-16s %s", r.At, cli.Dash(r.Kind), cli.Dash(name),
			pen.State(r.Disposition))
		if r.Reason != "" {
			line += ": " + r.Reason
		}
		if r.Want != "" {
			line += "; want " + r.Want
		}
		fmt.Fprintln(cmd.OutOrStdout(), line)
	}
}

// Check folds commits in JSON, one after the other, into an empty ledger of a tenant, at an
// instant. The error says that there is no commit to fold, or that subject is none.
func Check(tenant, subject string, text []byte, now time.Time) (answer CheckAnswer, err error) {
	if _, ok := ledger.ParseSubject(subject); subject != "" && !ok {
		return answer, cli.Fail(cli.ExitUsage, "--subject saga.default.agent.coder._",
			"%q is no subject of a ledger", cli.Clip(subject, 60))
	}
	state := executor.Open(rows.NewMemoryKV(), tenant, nil)
	d := json.NewDecoder(bytes.NewReader(text))
	for sequence := uint64(1); ; sequence++ {
		var commit json.RawMessage
		err := d.Decode(&commit)
		switch {
		case err == io.EOF && sequence > 1:
			return answer, nil
		case err != nil:
			return answer, cli.Fail(cli.ExitFailed, `commits as {"records": [...]}, one after the other`,
				"commit %d is not JSON: %v", sequence, err)
		}
		m := ledger.Message{Sequence: sequence, StampNs: now.UnixNano() + int64(sequence),
			ContentType: ledger.ContentTypeJSON, Data: commit, Subject: subject}
		entries, err := decodeAs(tenant, m)
		if err != nil {
			return answer, err
		}
		for i, e := range entries {
			answer.Records = append(answer.Records, checked(e, i, state.Apply(e)))
		}
	}
}

// decodeAs decodes a commit; without a subject on the one that its first record needs.
func decodeAs(tenant string, m ledger.Message) ([]ledger.Entry, error) {
	source := ledger.Source{Tenant: tenant, Class: ledger.ClassAgent, Name: "agent",
		Plan: ledger.ManyPlans}
	inferred := m.Subject == ""
	if inferred {
		m.Subject = source.Subject()
	}
	entries, err := ledger.Decode(tenant, m)
	if !inferred || err != nil || len(entries) == 0 || entries[0].Record == nil {
		return entries, err
	}
	switch class := ledger.KindOf(entries[0].Record).Class; class {
	case ledger.ClassFact, ledger.ClassVerdict, ledger.ClassOperator, ledger.ClassWorker:
		m.Subject = ledger.Source{Tenant: tenant, Class: class, Name: "name"}.Subject()
		return ledger.Decode(tenant, m)
	}
	return entries, nil
}

// dispositions are the names of what the fold makes of a record.
var dispositions = map[executor.Verdict]string{executor.Effective: "effective",
	executor.Repeated: "repeated", executor.Refused: "refused", executor.Void: "void"}

func checked(e ledger.Entry, index int, result executor.Result) Checked {
	c := Checked{At: fmt.Sprintf("%d.%d", e.Address.GetSequence(), index),
		Disposition: dispositions[result.Verdict], Reason: result.Reason}
	if e.Record != nil {
		c.Kind, c.Plan, c.Action = ledger.KindOf(e.Record).Name, e.Record.Plan, e.Record.Action
	}
	var refused *ledger.Refused
	if errors.As(e.Err, &refused) {
		c.Field, c.Reason, c.Want = refused.Field, refused.Problem, refused.Want
	}
	return c
}
