package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/status"
	"github.com/sagenbaum/sagenbaum/ledger/access"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// examineLeaderless is what is said of hosts, and of the fold, where no server leads the ledger:
// all of it follows from that.
func examineLeaderless(hosts []api.Host, v api.Status, now time.Time) []Finding {
	mode := ExamineMode(v, now)
	if v.Mode == api.ModeStandby || v.Mode == api.ModeStarting {
		mode.Next = "see replicas above: a host holds the tenant when a server leads the ledger"
	}
	const text = "not checked: no server leads the ledger"
	others := skipped("hosts", "", text)
	others.Details = cli.StandbyTexts(hosts)
	return []Finding{mode, others, skipped("fold", "", text)}
}

// examineHosts says who would take over; err is why the hosts were not asked.
func examineHosts(hosts []api.Host, err error, v api.Status) Finding {
	if err != nil {
		return problem("hosts", err)
	}
	return judgeHosts(hosts, v)
}

func judgeHosts(hosts []api.Host, v api.Status) Finding {
	var others, halted, degraded, starting []string
	holding := 0
	for _, h := range hosts {
		switch h.Mode {
		case api.ModeHolding, api.ModeGuard:
			holding++
		case api.ModeHalted:
			halted = append(halted, cli.StandbyText(h))
		case api.ModeDegraded:
			degraded = append(degraded, cli.StandbyText(h))
		case api.ModeStarting:
			starting = append(starting, cli.StandbyText(h))
		default:
			others = append(others, cli.StandbyText(h))
		}
	}
	f := ok("hosts", "no other host stands by for %s", v.Tenant)
	standbys := cli.Standbys(hosts)
	prover := slices.IndexFunc(standbys, func(h api.Host) bool { return h.Forked != "" })
	twins := cli.Twins(hosts)
	switch {
	case len(twins) > 0:
		f = warn("hosts", cli.OwnNames, "several hosts have one name: %s",
			strings.Join(twins, "; ")).mayPass(true)
	case prover >= 0:
		h := standbys[prover]
		f = broken("hosts", forkedNext(v), "%s has proved that %s has folded another history than "+
			"the servers have: %s", h.Host, v.Holder, h.Forked)
	case holding > 1:
		f = warn("hosts",
			"run doctor again: the older one notices within its lease; what it appends meanwhile "+
				"does not count", "%d hosts say that they hold tenant %s", holding, v.Tenant).mayPass(true)
	case len(halted) > 0 && holding > 0:
		f = broken("hosts", haltedHostNext(v.Tenant),
			"%s, and %s holds the tenant: what they have of the ledger is not what it has",
			cli.CountOf(len(halted), "host")+" halted", v.Holder)
		others = append(halted, others...)
	case len(degraded) > 0 && holding > 0:
		f = warn("hosts", "make room on its disk, or make it writable; that host then goes on by itself",
			"%s degraded, and would not take over", cli.CountOf(len(degraded), "host"))
	case len(others) > 0:
		f = ok("hosts", "%s would take over", cli.CountOf(len(others), "host"))
	}
	f.Details = slices.Concat(others, degraded, starting)
	return f
}

// forkedNext is what brings back a holder that goes on from a history that is not the ledger's.
func forkedNext(v api.Status) string {
	return fmt.Sprintf("on %s: stop serve, upon which another host takes over, move executor/state "+
		"and executor/tiles/%s of its data away, keep them, and start serve again; what it has done "+
		"by a wrong history no one undoes by itself: docs/guide/repair.md (G5)", v.Holder, v.Tenant)
}

// haltedHostNext is what brings back a host that is halted beside a holder that is not. No command
// reaches it: the holder answers them all, and a repair or a rebuild would be of what is well.
func haltedHostNext(tenant string) string {
	return fmt.Sprintf("on that host: stop serve, move executor/state and executor/tiles/%s of its "+
		"data away, and start serve again: it takes both from the ledger. If it is halted again, or "+
		"by G1, a server lacks records: docs/guide/cluster.md", tenant)
}

// examineCheckpoints says what an auditor could be shown, and who cannot sign.
func examineCheckpoints(v api.Status, hosts []api.Host,
	now time.Time) (findings []Finding) {
	c := v.Checkpoint
	if c == nil {
		return nil
	}
	switch {
	case c.Alarm:
		findings = append(findings,
			broken("checkpoint",
				"keep all files as they are. Was an older copy of the data put back? Then stop "+
					"serve, and put the newest one back; else docs/guide/checkpoints.md (When a "+
					"history is not the one that was signed)", "nothing is signed: %s", c.Problem))
	case c.NoKey:
		findings = append(findings, warn("checkpoint", lostKeyNext(*c), "nothing is signed: %s",
			c.Problem))
	case c.Problem != "":
		findings = append(findings,
			warn("checkpoint", "make room for it, or give that file or folder the right mode: it is "+
				"tried again by itself, and nothing waits for it", "nothing is signed: %s", c.Problem))
	case c.Size == 0:
		findings = append(findings, ok("checkpoint", "none signed yet, of %d records", v.Records))
	default:
		findings = append(findings,
			ok("checkpoint", "%d of %d records, signed %s", c.Size, v.Records,
				cli.Relative(c.StampNs, now)))
	}
	switch {
	case c.WitnessAlarm:
		findings = append(findings,
			broken("witness",
				"show this history to no one. Was an older copy of the data put back? Then stop serve, "+
					"and put the newest one back; else docs/guide/checkpoints.md (When a history is "+
					"not the one that was signed)", "%s: %s", c.Witness, c.Away))
	case c.Away != "":
		findings = append(findings,
			warn("witness", "start the witness, or give it the tenant's verifier key "+c.Key+"; it is "+
				"asked again every minute, and nothing waits for it",
				"%s has cosigned %d of %d records: %s", c.Witness, c.Cosigned, c.Size, c.Away))
	case c.Witness != "":
		findings = append(findings,
			ok("witness", "%s has cosigned %d records", c.Witness, c.Cosigned))
	}
	for _, h := range cli.Standbys(hosts) {
		if h.NoKey != "" {
			findings = append(findings,
				warn("key", fmt.Sprintf("copy the files of executor/keys/%s (or of serve --keys) "+
					"from %s to %s, which then needs no restart", v.Tenant, v.Holder, h.Host),
					"%s could not sign checkpoints: %s", h.Host, h.NoKey))
		}
	}
	return findings
}

// examineSealed names the hosts that could not open what is sealed: an undo that takes it would
// wait, and one that is due late would be the first to show it.
func examineSealed(hosts []api.Host, tenant string) (findings []Finding) {
	for _, h := range hosts {
		if h.NoTenantKey != "" {
			findings = append(findings,
				warn("sealed", "put the master key and the folder of tenants' keys back as they were, "+
					"before the host is started again: undos that take sealed values wait for them, and "+
					"fail without (docs/guide/keys.md); or, where the tenant was erased after this copy of "+
					"the data was made (docs/guide/backup.md): sagenbaum tenant erase "+tenant,
					"%s could not open what is sealed: %s", h.Host,
					h.NoTenantKey))
		}
	}
	return findings
}

// lostKeyNext is what to do on a host that lacks the key that is to sign.
func lostKeyNext(c api.Checkpoint) string {
	key, whose := "VERIFIER-KEY", ", with the one that auditors have"
	if n := len(c.Rotations); n > 0 {
		key, whose = c.Rotations[n-1].NewKey, ""
	}
	return fmt.Sprintf("copy the folder of keys from the host that has signed, or from a backup, "+
		"which needs no restart. Only if no copy is left%s: sagenbaum key rotate --lost %q --reason %q "+
		"(docs/guide/checkpoints.md)", whose, key, "the key is lost")
}

// examineForgotten says which tenants a host has a second copy of, and does nothing for. It asks
// about no tenant, as `tenant ls` does.
func examineForgotten(ctx context.Context, s *cli.Settings) Finding {
	const check = "tenants"
	if self := s.Self; self != nil && self.Role != access.Local && self.Tenant != access.AllTenants {
		return skipped(check, "", "not checked: only users of all tenants are told")
	}
	var tenants api.TenantsAnswer
	s.Everywhere(true)
	err := s.With(func(c *cli.Client) (err error) {
		tenants, err = c.Tenants(ctx)
		return err
	})
	if err != nil {
		return problem(check, err)
	}
	return ExamineForgotten(tenants.Forgotten)
}

// ExamineForgotten judges the tenants that only their tiles name. With the folder of a server all
// of them are lost at once, so that it names some.
func ExamineForgotten(forgotten []string) Finding {
	const check = "tenants"
	n := len(forgotten)
	if n == 0 {
		return ok(check, "all that have tiles here are served")
	}
	next := fmt.Sprintf("sagenbaum tenant add %[1]s, then sagenbaum ledger repair --tenant %[1]s "+
		"--dry-run --reason \"look first\"", forgotten[0])
	if n == 1 {
		return broken(check, next+" (docs/guide/repair.md)", "the tiles of tenant %s are here, "+
			"and the control stream does not name it: its deadlines and undos wait", forgotten[0])
	}
	f := broken(check, next+"; the same for each (docs/guide/repair.md)", "the tiles of %d "+
		"tenants are here, and the control stream does not name them: their deadlines and undos wait", n)
	f.Details = slices.Clone(forgotten[:min(n, status.StuckShown)])
	if more := n - len(f.Details); more > 0 {
		f.Details = append(f.Details, fmt.Sprintf("and %d more: sagenbaum tenant ls", more))
	}
	return f
}
