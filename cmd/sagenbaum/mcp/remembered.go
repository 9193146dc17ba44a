package mcp

import (
	"cmp"
	"slices"

	"github.com/sagenbaum/sagenbaum/connect"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// rememberedIn are the servers whose gateways a folder of states remembers, one for each tenant
// that they have recorded in. looked are the files that say so.
func rememberedIn(state string, bad func(file, server string, err error)) (list []hosted,
	looked []string) {
	for _, g := range started.List(state) {
		looked = append(looked, g.File(state))
		if len(g.Tenants) == 0 {
			continue // an earlier version, which did not say where it records, has written it
		}
		found, files, err := rememberedAs(state, g)
		looked = append(looked, files...)
		if err != nil {
			bad(g.File(state), g.Undo, err)
			continue
		}
		for _, tenant := range g.Tenants {
			h := found
			h.gateway = recordsHere(tenant)
			list = append(list, h)
		}
	}
	return list, looked
}

// rememberedAs is the server of a gateway as this host would start it. It must be the same by name,
// which has the folders, the command and the variables in it that the gateway had.
func rememberedAs(state string, g started.Gateway) (found hosted, looked []string, err error) {
	worker := []string{"sagenbaum", "mcp", "worker"}
	if len(g.Worker) < len(worker) || !slices.Equal(g.Worker[:len(worker)], worker) {
		return found, nil, cli.Fail(cli.ExitFailed, "sagenbaum serve --mcp FILE",
			"it has no command line of a worker")
	}
	next := "sagenbaum serve --mcp FILE with the configuration of its client, or " + g.Line()
	if g.Environment == nil {
		return found, nil, cli.Fail(cli.ExitFailed, "environment: [] in its pack, or the variables "+
			"that matter; or "+next, "its pack does not say which variables of its environment matter")
	}
	if arg := g.Relative(); arg != "" {
		return found, nil, cli.Fail(cli.ExitFailed, "an absolute path; or "+next,
			"%s is relative to the folder of the client", arg)
	}
	o := &options{state: state}
	entries := configured{Command: worker[0], Args: slices.Concat(worker[1:2], g.Worker[3:]),
		Env: g.Environment}.entries(o, g.File(state), g.Undo)
	var problem error
	for _, e := range entries {
		e.sources = append(e.sources, g.File(state))
		looked = append(looked, e.sources...)
		if e.gateway != nil {
			looked = append(looked, e.gateway.packs...)
		}
		h := hosted{entry: e, file: state, remembered: true, gateway: recordsHere(g.Tenants[0])}
		if err := h.plan(o); err != nil {
			problem = cmp.Or(problem, err)
		} else if h.undo == g.Undo {
			return h, looked, nil
		}
	}
	return found, looked, cmp.Or(problem, cli.Fail(cli.ExitFailed, next, "it would be another "+
		"server here: its command, its folders or its environment are no longer what they were"))
}

// recordsHere are the settings of a gateway that records in a tenant of this host. Where it has
// recorded does not matter: the name of what undoes its effects is of what it has changed.
func recordsHere(tenant string) *cli.Settings {
	return &cli.Settings{Server: connect.ServerDefault, Tenant: tenant}
}
