package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// written says what `plan blob` has written.
type written struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func newPlanBlob(s *cli.Settings) *cobra.Command {
	var out, actor string
	cmd := &cobra.Command{
		Use:   "blob PLAN/DIGEST --out FILE",
		Short: "Write a value of a plan that is too large for a record into a file",
		Long: `Write a value of a plan that is too large for a record into a file: an input, an
output or a before-image that shows as {"sagenbaum/blob/v1": "PLAN/DIGEST", ...}. Every
byte is checked before the file is there under its name; one that exists is not
overwritten. For operators who may see sealed values (user add --reveal), as blobs are
sealed. With --out - it is written to stdout.`,
		Example: "  sagenbaum plan show 01JD3BX7 --reveal -o json | grep sagenbaum/blob\n" +
			"  sagenbaum plan blob 01JD3BX7/9f86d081... --out before.txt",
		Args: cli.Exactly("PLAN/DIGEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan, digest, found := strings.Cut(args[0], "/")
			switch {
			case !found || !ledger.ValidToken(plan) || !seal.ValidDigest(digest):
				return cli.Fail(cli.ExitUsage, "PLAN/DIGEST, as sagenbaum plan show --reveal -o json has it",
					"%.160q is no reference to a blob", args[0])
			case out == "":
				return cli.Fail(cli.ExitUsage, "--out FILE, or --out - for stdout", "it needs a file")
			}
			if err := cli.CheckActor(actor); err != nil {
				return err
			}
			return s.With(func(c *cli.Client) error {
				ctx, done := c.Guarded(cmd.Context())
				defer done()
				v, err := writeBlob(ctx, c, cmd.OutOrStdout(), blob.Ref{Plan: plan, Digest: digest}, out,
					cmp.Or(c.Name(), actor))
				switch {
				case c.Denied.Load() != nil:
					return c.Explain("blob.get", err)
				case err != nil || out == "-":
					return cli.Failed("write the blob", err)
				}
				return s.Print(cmd, v, func() {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %d bytes, SHA-256 %s\n", cli.Printable(v.File), v.Bytes,
						v.SHA256)
				})
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`FILE` that must not be there yet; - is stdout (required)")
	cmd.Flags().StringVar(&actor, "actor", cli.DefaultActor(), "`NAME` of the person who reads it")
	return cmd
}

// writeBlob writes a value to stdout, or to a file that appears when it is whole.
func writeBlob(ctx context.Context, c *cli.Client, stdout io.Writer, ref blob.Ref, file,
	reader string) (v written, err error) {
	blobs, err := blob.New(blob.Config{Conn: c.Conn, Tenant: c.Tenant, Role: blob.Operator,
		Name: reader})
	if err != nil {
		return v, err
	}
	about, err := blobs.About(ctx, ref)
	if err != nil {
		return v, err
	}
	ref.Bytes = about.Bytes
	v = written{file, about.Bytes, about.SHA256}
	if file == "-" {
		return v, blobs.Copy(ctx, stdout, ref)
	}
	if _, err := os.Lstat(file); err == nil {
		return v, cli.Fail(cli.ExitFailed, "--out FILE that is not there yet", "%s exists", file)
	}
	part, err := os.CreateTemp(filepath.Dir(file), ".blob-*")
	if err != nil {
		return v, err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	err = errors.Join(blobs.Copy(ctx, part, ref), part.Sync(), part.Close())
	if err == nil {
		err = os.Link(part.Name(), file) // which refuses a file that is there by now
	}
	return v, err
}
