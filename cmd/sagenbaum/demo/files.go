package demo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// filesCommand is the hidden command that is a filesystem server for MCP where the one of npm
// cannot be had.
const filesCommand = "demo-files"

// FilesCommand is that command: the tools that the demo needs of the server of npm, under its name
// and with its schemas, so that they have the same contracts.
func FilesCommand() *cobra.Command {
	return &cobra.Command{
		Use: filesCommand + " DIR", Hidden: true, Short: "The demo's filesystem server",
		Example: "  sagenbaum demo mcp",
		Args:    cli.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := os.OpenRoot(args[0])
			if err != nil {
				return cli.Failed("open the folder", err)
			}
			defer root.Close()
			return cli.Failed("serve files", serveFiles(root).Run(cmd.Context(), &sdk.StdioTransport{}))
		},
	}
}

// served is the folder of a filesystem server, which it does not leave.
type served struct{ *os.Root }

// told is what each of its tools answers.
type told struct {
	Content string `json:"content"`
}

func serveFiles(root *os.Root) *sdk.Server {
	f := served{root}
	// The name is that of the server of npm: the contracts of a server go by it.
	s := sdk.NewServer(&sdk.Implementation{Name: "secure-filesystem-server", Version: "demo"},
		&sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{}})
	const path = `"path": {"type": "string"}`
	addTool(s, "list_allowed_directories", ``, ``, true, f.allowed)
	addTool(s, "read_text_file", path+`, "tail": {"type": "number", "description": "If provided, `+
		`returns only the last N lines of the file"}, "head": {"type": "number", "description": `+
		`"If provided, returns only the first N lines of the file"}`, `"path"`, true, f.read)
	addTool(s, "write_file", path+`, "content": {"type": "string"}`, `"path", "content"`, false,
		f.write)
	addTool(s, "edit_file", path+`, "edits": {"type": "array", "items": {"type": "object", `+
		`"properties": {"oldText": {"type": "string", "description": "Text to search for - must match `+
		`exactly"}, "newText": {"type": "string", "description": "Text to replace with"}}, "required": `+
		`["oldText", "newText"]}}, "dryRun": {"type": "boolean", "default": false, "description": `+
		`"Preview changes using git-style diff format"}`, `"path", "edits"`, false, f.edit)
	addTool(s, "create_directory", path, `"path"`, false, f.create)
	addTool(s, "move_file", `"source": {"type": "string"}, "destination": {"type": "string"}`,
		`"source", "destination"`, false, f.move)
	return s
}

// addTool adds a tool whose arguments have these properties in their schema.
func addTool[In any](s *sdk.Server, name, properties, required string, reads bool,
	tool func(In) (string, error)) {
	schema := `{"type": "object", "properties": {` + properties + `}`
	if required != "" {
		schema += `, "required": [` + required + `]`
	}
	sdk.AddTool(s, &sdk.Tool{Name: name, InputSchema: json.RawMessage(schema + "}"),
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: reads}},
		func(_ context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, told, error) {
			text, err := tool(in)
			if err != nil {
				return nil, told{}, err
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, told{text}, nil
		})
}

// onPath are the arguments of tools that are about one path.
type onPath struct {
	Path string `json:"path"`
}

func (f served) allowed(struct{}) (string, error) {
	dir, err := filepath.Abs(f.Name())
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return "Allowed directories:\n" + dir, err
}

// in is a path as the root has it. Those outside are refused here, links out of it by the root.
func (f served) in(path string) (string, error) {
	dir, err := filepath.Abs(f.Name())
	if err != nil {
		return "", err
	}
	name := path
	if filepath.IsAbs(path) {
		name, err = filepath.Rel(dir, path)
	}
	if err != nil || !filepath.IsLocal(name) {
		return "", fmt.Errorf("access denied: %s is not in %s", path, dir)
	}
	return name, nil
}

func (f served) read(in struct {
	onPath
	Head *int `json:"head"`
	Tail *int `json:"tail"`
}) (string, error) {
	name, err := f.in(in.Path)
	if err != nil {
		return "", err
	}
	if in.Head != nil || in.Tail != nil {
		return "", errors.New("the demo's server reads whole files: neither head nor tail")
	}
	content, err := f.ReadFile(name)
	return string(content), err
}

func (f served) write(in struct {
	onPath
	Content string `json:"content"`
}) (string, error) {
	name, err := f.in(in.Path)
	if err != nil {
		return "", err
	}
	file, err := f.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, os.ErrExist) {
		return "Successfully wrote to " + in.Path, f.replace(name, in.Content)
	}
	if err != nil {
		return "", err
	}
	_, err = file.WriteString(in.Content)
	return "Successfully wrote to " + in.Path, errors.Join(err, file.Close())
}

// replace puts another file in the place of one that is there, as the server of npm does: under a
// name of its own first, which the pack knows for litter.
func (f served) replace(name, content string) error {
	info, err := f.Stat(name)
	if err != nil {
		return err
	}
	random := make([]byte, 16)
	rand.Read(random)
	draft := fmt.Sprintf("%s.%x.tmp", name, random)
	if err = f.WriteFile(draft, []byte(content), 0o666); err == nil {
		err = f.Rename(draft, name)
	}
	if err != nil {
		_ = f.Remove(draft) // the error says what is wrong
		return err
	}
	return f.Chmod(name, info.Mode().Perm())
}

func (f served) edit(in struct {
	onPath
	Edits []struct {
		Old string `json:"oldText"`
		New string `json:"newText"`
	} `json:"edits"`
	DryRun bool `json:"dryRun"`
}) (string, error) {
	name, err := f.in(in.Path)
	if err != nil {
		return "", err
	}
	was, err := f.ReadFile(name)
	if err != nil {
		return "", err
	}
	content := string(was)
	for _, e := range in.Edits {
		if !strings.Contains(content, e.Old) {
			return "", fmt.Errorf("could not find exact match for edit:\n%s", e.Old)
		}
		content = strings.Replace(content, e.Old, e.New, 1)
	}
	if in.DryRun {
		return content, nil
	}
	return content, f.replace(name, content)
}

func (f served) create(in onPath) (string, error) {
	name, err := f.in(in.Path)
	if err != nil {
		return "", err
	}
	return "Successfully created directory " + in.Path, f.MkdirAll(name, 0o777)
}

func (f served) move(in struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}) (string, error) {
	from, err := f.in(in.Source)
	if err != nil {
		return "", err
	}
	to, err := f.in(in.Destination)
	if err != nil {
		return "", err
	}
	if _, err := f.Lstat(to); !errors.Is(err, os.ErrNotExist) {
		return "", errors.Join(err, fmt.Errorf("destination already exists: %s", in.Destination))
	}
	return "Successfully moved " + in.Source + " to " + in.Destination, f.Rename(from, to)
}
