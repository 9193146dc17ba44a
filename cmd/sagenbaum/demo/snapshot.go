package demo

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is everything of the demo's world that an undo must put back, one
// line per thing: every reference and HEAD of the clone and of the remote, the
// list of worktrees, the configuration and hooks of both repositories, and
// every file outside .git (path, mode, SHA-256 of its bytes). Left out is what
// git itself keeps for a reference for a while and no one can check out by
// name: unreachable objects, reflogs, the index's cached stat data, FETCH_HEAD
// and ORIG_HEAD.
func Snapshot(ctx context.Context, world World) ([]string, error) {
	var lines []string
	for _, dir := range []string{world.Clone(), world.Remote()} {
		g, name := Git{Dir: dir}, filepath.Base(dir)
		for _, args := range [][]string{
			{"for-each-ref", "--format=%(refname) %(objectname) %(symref)"},
			{"symbolic-ref", "HEAD"},
			{"worktree", "list", "--porcelain"},
			{"config", "--local", "--list"},
		} {
			out, err := g.Run(ctx, args...)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(out) {
				lines = append(lines, name+" "+args[0]+" "+strings.TrimSpace(line))
			}
		}
	}
	for _, dir := range []string{world.Clone(), world.Worktrees(),
		filepath.Join(world.Remote(), "hooks")} {
		files, err := listFiles(world.dir, dir)
		if err != nil {
			return nil, err
		}
		lines = append(lines, files...)
	}
	return lines, nil
}

func listFiles(top, dir string) (lines []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Name() == ".git" {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("file %s %s", name, info.Mode())
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %x", sha256.Sum256(text))
		}
		lines = append(lines, line)
		return nil
	})
	return lines, err
}

// Difference lists what is in only one of two snapshots, "-" before, "+" after.
func Difference(before, after []string) []string {
	var lines []string
	for _, line := range before {
		if !slices.Contains(after, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}

// World is the folder the demo plays in.
type World struct {
	dir string
}

// Remote is the bare repository that the agent pushes to.
func (w World) Remote() string { return filepath.Join(w.dir, "remote.git") }

// Clone is the agent's repository.
func (w World) Clone() string { return filepath.Join(w.dir, "clone") }

// Worktrees is the folder of the agent's worktrees.
func (w World) Worktrees() string { return filepath.Join(w.dir, "worktrees") }

// Data is the folder of the server's data.
func (w World) Data() string { return filepath.Join(w.dir, "data") }

// MakeWorld makes the repositories and the empty folder for worktrees.
func MakeWorld(ctx context.Context, dir string) (World, error) {
	dir, err := filepath.EvalSymlinks(dir) // git prints resolved paths
	if err != nil {
		return World{}, err
	}
	world := World{dir}
	if err := os.MkdirAll(world.Worktrees(), 0o755); err != nil {
		return World{}, err
	}
	return world, makeRepositories(ctx, world.Remote(), world.Clone())
}
