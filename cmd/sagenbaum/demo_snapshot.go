package main

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

// snapshot is everything of the demo's world that an undo must put back, one
// line per thing: every reference and HEAD of the clone and of the remote, the
// list of worktrees, the configuration and hooks of both repositories, and
// every file outside .git (path, mode, SHA-256 of its bytes). Left out is what
// git itself keeps behind a reference for a while and nobody can check out by
// name: unreachable objects, reflogs, the index's cached stat data, FETCH_HEAD
// and ORIG_HEAD.
func snapshot(ctx context.Context, world demoWorld) ([]string, error) {
	var lines []string
	for _, dir := range []string{world.clone(), world.remote()} {
		g, name := git{dir}, filepath.Base(dir)
		for _, args := range [][]string{
			{"for-each-ref", "--format=%(refname) %(objectname) %(symref)"},
			{"symbolic-ref", "HEAD"},
			{"worktree", "list", "--porcelain"},
			{"config", "--local", "--list"},
		} {
			out, err := g.run(ctx, args...)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(out) {
				lines = append(lines, name+" "+args[0]+" "+strings.TrimSpace(line))
			}
		}
	}
	for _, dir := range []string{world.clone(), world.worktrees(), filepath.Join(world.remote(), "hooks")} {
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

// difference lists what stands in only one of two snapshots, "-" before, "+" after.
func difference(before, after []string) []string {
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

// demoWorld is the folder the demo plays in.
type demoWorld struct {
	dir string
}

func (w demoWorld) remote() string    { return filepath.Join(w.dir, "remote.git") }
func (w demoWorld) clone() string     { return filepath.Join(w.dir, "clone") }
func (w demoWorld) worktrees() string { return filepath.Join(w.dir, "worktrees") }
func (w demoWorld) data() string      { return filepath.Join(w.dir, "data") }

// makeWorld makes the repositories and the empty folder for worktrees.
func makeWorld(ctx context.Context, dir string) (demoWorld, error) {
	dir, err := filepath.EvalSymlinks(dir) // git prints resolved paths
	if err != nil {
		return demoWorld{}, err
	}
	world := demoWorld{dir}
	if err := os.MkdirAll(world.worktrees(), 0o755); err != nil {
		return demoWorld{}, err
	}
	return world, makeRepositories(ctx, world.remote(), world.clone())
}
