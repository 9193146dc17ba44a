package doctor

import (
	"context"
	"time"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/render"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// examineHosts says who would take over.
func examineHosts(ctx context.Context, c *cli.Client, v api.Status) Finding {
	hosts, err := c.Hosts(ctx)
	if err != nil {
		return problem("hosts", err)
	}
	var others, halted, degraded []string
	holding := 0
	for _, h := range hosts {
		switch h.Mode {
		case api.ModeHolding, api.ModeGuard:
			holding++
		case api.ModeHalted:
			halted = append(halted, cli.StandbyText(h))
		case api.ModeDegraded:
			degraded = append(degraded, cli.StandbyText(h))
		default:
			others = append(others, cli.StandbyText(h))
		}
	}
	f := ok("hosts", "no other host stands by for %s", v.Tenant)
	switch {
	case holding > 1:
		f = warn("hosts",
			"run doctor again: the older one notices within its lease; what it appends meanwhile "+
				"does not count", "%d hosts say that they hold tenant %s", holding, v.Tenant)
	case len(halted) > 0 && holding > 0:
		f = broken("hosts", "its copy of the ledger is not the holder's: "+render.KeepLedger, "%s",
			cli.CountOf(len(halted), "host")+" halted")
		others = append(halted, others...)
	case len(degraded) > 0 && holding > 0:
		f = warn("hosts", "make room on its disk, or make it writable",
			"%s degraded, and would not take over", cli.CountOf(len(degraded), "host"))
	case len(others) > 0:
		f = ok("hosts", "%s would take over", cli.CountOf(len(others), "host"))
	}
	f.Details = append(others, degraded...)
	return f
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
				"keep the tiles and the file checkpoint as they are, and find out which history "+
					"is the right one (docs/guide/checkpoints.md)", "nothing is signed: %s",
				c.Problem))
	case c.Problem != "":
		findings = append(findings,
			warn("checkpoint",
				"copy the folder of keys from the host that has signed, or sagenbaum key rotate "+
					"--lost (docs/guide/checkpoints.md)", "nothing is signed: %s", c.Problem))
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
				"find out which history the witness has seen, before anybody is shown this one "+
					"(docs/guide/checkpoints.md)", "%s: %s", c.Witness, c.Away))
	case c.Away != "":
		findings = append(findings,
			warn("witness", "look at the witness; nothing waits for it",
				"%s has cosigned %d of %d records: %s", c.Witness, c.Cosigned, c.Size, c.Away))
	case c.Witness != "":
		findings = append(findings,
			ok("witness", "%s has cosigned %d records", c.Witness, c.Cosigned))
	}
	for _, h := range cli.Standbys(hosts) {
		if h.NoKey != "" {
			findings = append(findings,
				warn("key", "copy the folder of keys from the holder, or start the host with --keys",
					"%s could not sign checkpoints: %s", h.Host, h.NoKey))
		}
	}
	return findings
}
