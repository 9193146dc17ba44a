package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sagenbaum/sagenbaum/coordinator/mcp/files"
	"github.com/sagenbaum/sagenbaum/ledger"
)

// Names of the built-ins of packs.
const (
	callTake     = "fs.take"      // an image of paths
	callAgain    = "fs.again"     // what is at the paths of an image
	callRestore  = "fs.restore"   // puts an image back
	callMoveBack = "fs.move_back" // undoes a move

	callTakeGit    = "git.take"    // an image of a repository
	callAgainGit   = "git.again"   // likewise, of what an effect has left
	callRestoreGit = "git.restore" // puts an image of a repository back
)

// builtIn carries out a built-in; key names the folder in the trash.
func (s *Server) builtIn(ctx context.Context, call string, with json.RawMessage,
	key string) (json.RawMessage, error) {
	if s.lost != nil {
		return nil, s.lost
	}
	if s.files == nil {
		return nil, ledger.Refuse("call", call+" at a server without files", "a pack with files: true")
	}
	var in struct {
		Paths []string     `json:"paths"`
		Like  *files.Image `json:"like"`
		files.Undo

		Path       string            `json:"path"`
		Repository *files.Repository `json:"repository"`
		Left       *files.Repository `json:"left"`
	}
	if err := json.Unmarshal(with, &in); err != nil {
		return nil, ledger.Refuse("with", err.Error(), "the arguments of "+call)
	}
	in.Key = key
	if in.Repository == nil && (call == callAgainGit || call == callRestoreGit) {
		return nil, ledger.Refuse("with.repository", "missing", "an image")
	}
	var image any
	var err error
	switch call {
	case callTake:
		image, err = s.files.Take(in.Paths)
	case callAgain:
		if in.Like == nil {
			return nil, ledger.Refuse("with.like", "missing", "an image")
		}
		image, err = s.files.Again(*in.Like)
	case callRestore:
		return nil, s.files.Restore(in.Undo)
	case callMoveBack:
		return nil, s.files.MoveBack(in.Undo)
	case callTakeGit:
		image, err = s.files.TakeRepository(in.Path, true)
	case callAgainGit:
		image, err = s.files.TakeRepository(in.Repository.Repository, false)
	case callRestoreGit:
		return nil, s.files.RestoreRepository(ctx, files.RepositoryUndo{Repository: *in.Repository,
			Left: in.Left, Key: key})
	default:
		return nil, ledger.Refuse("call", fmt.Sprintf("%q", call), "a built-in")
	}
	if err != nil {
		return nil, err
	}
	return encode(image)
}
