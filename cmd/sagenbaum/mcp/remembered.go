package mcp

import (
	"cmp"
	"slices"

	"github.com/sagenbaum/sagenbaum/connect"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/mcp/started"
)

// rememberedIn are the servers of files whose gateways a folder of states remembers. looked are the
// files that say so. Another server is not started by what is remembered: which program that would
// be, which account, and which data, depends on the environment and the folder of its client, and
// an undo that looks at other data finds nothing to undo. The undo of files goes by their paths.
func rememberedIn(state string, bad func(file, server string, err error)) (list []hosted,
	looked []string) {
	for _, g := range started.List(state) {
		looked = append(looked, g.File(state))
		if !g.Files || g.Tenant == "" {
			continue // whoever misses it is told which worker to start
		}
		h, files, err := rememberedAs(state, g)
		if looked = append(looked, files...); err != nil {
			bad(g.File(state), g.Undo, err)
			continue
		}
		list = append(list, h)
	}
	if over := list[min(len(list), rememberedMax):]; len(over) > 0 {
		for _, h := range over {
			bad(state, h.undo, cli.Fail(cli.ExitUsage, "sagenbaum mcp worker with its command",
				"%d gateways were started later, and at most so many are served", rememberedMax))
		}
		list = list[:rememberedMax]
	}
	slices.SortStableFunc(list, func(a, b hosted) int { return cmp.Compare(a.apart(), b.apart()) })
	return list, looked
}

// rememberedMax bounds the gateways that a folder of states has a host serve.
const rememberedMax = 256

// apart is 1 where the images of a server are not in the folder that remembers it.
func (h hosted) apart() int {
	if h.entry.config.State == h.file {
		return 0
	}
	return 1
}

// rememberedAs is the server of a gateway as this host would start it. It must have the same name,
// which has the command and the folders in it.
func rememberedAs(state string, g started.Gateway) (found hosted, looked []string, err error) {
	worker := []string{"sagenbaum", "mcp", "worker"}
	next := "sagenbaum serve --mcp FILE with the configuration of its client, or " + g.Line()
	switch {
	case len(g.Worker) < len(worker) || !slices.Equal(g.Worker[:len(worker)], worker):
		return found, nil, cli.Fail(cli.ExitFailed, "sagenbaum serve --mcp FILE",
			"it has no command line of a worker")
	case g.State != "" && !isFolder(g.State): // which would be made
		return found, nil, cli.Fail(cli.ExitFailed, next, "its images were in %s, which is not there",
			g.State)
	case g.Relative() != "":
		return found, nil, cli.Fail(cli.ExitFailed, "an absolute path; or "+next,
			"%s is relative to the folder of the client", g.Relative())
	}
	o := &options{state: cmp.Or(g.State, state)}
	entries := configured{Command: worker[0], Args: slices.Concat(worker[1:2], g.Worker[3:])}.
		entries(o, g.File(state), g.Undo)
	var problem error
	for _, e := range entries {
		e.sources = append(e.sources, g.File(state))
		looked = append(looked, e.files()...)
		// Where it has recorded does not matter: the name is of what it has changed.
		h := hosted{entry: e, file: state, remembered: true,
			gateway: &cli.Settings{Server: connect.ServerDefault, Tenant: g.Tenant}}
		if err := h.plan(o); err != nil {
			problem = cmp.Or(problem, err)
		} else if h.undo == g.Undo {
			return h, looked, nil
		}
	}
	return found, looked, cmp.Or(problem, cli.Fail(cli.ExitFailed, next, "it would be another "+
		"server here: its command or its folders are no longer what they were"))
}
