package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/sagenbaum/sagenbaum/coordinator/blob"
	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/ledger/seal"
)

// Blobs reads what belongs to the plans of this agent. The error is a *Refused.
func (c *Coordinator) Blobs() (*blob.Client, error) {
	return blob.New(blob.Config{Conn: c.conn, Tenant: c.tenant, Role: blob.Agent, Name: c.agent})
}

// PutBlob is Plan.PutBlob for a plan by its ID: an Answer stores a large before-image by it, under
// the plan of the question.
func (c *Coordinator) PutBlob(ctx context.Context, plan string, from io.Reader,
	kind string) (blob.Ref, error) {
	blobs, err := c.Blobs()
	if err != nil {
		return blob.Ref{}, fmt.Errorf("cannot store a blob: %w", err)
	}
	c.mu.Lock()
	p := c.plans[plan]
	c.mu.Unlock()
	if p != nil { // blobs are kept for plans that the ledger has
		err = p.Flush(ctx)
	}
	var ref blob.Ref
	if err == nil {
		ref, err = blobs.Put(ctx, blob.Value{Plan: plan, From: from, Type: kind})
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("cannot store a blob: %w", err)
	}
	return ref, nil
}

// PutBlob stores a value that is too large for a record, of at most blob.Max bytes, and returns
// what takes its place in the input, the output or the before-image of an action of this plan.
// kind is its media type, which may be empty. Errors as of blob.Client.Put and of Flush.
func (p *Plan) PutBlob(ctx context.Context, from io.Reader, kind string) (blob.Ref, error) {
	return p.c.PutBlob(ctx, p.id, from, kind)
}

// checkBlobs refuses a document of a plan by which its undo could never be sent: one that refers to
// what belongs to another plan, for it would end with that; to more blobs than it may; or that has
// something with the mark of a reference which is none.
func checkBlobs(field, plan string, document json.RawMessage) error {
	found := seal.Blobs(document)
	if found.Wrong != nil {
		return ledger.Refuse(field, found.Wrong.Error(), seal.BlobWanted)
	}
	for _, b := range found.Blobs {
		if b.Plan != plan {
			return ledger.Refuse(field, fmt.Sprintf("it refers to a blob of plan %.80q", b.Plan),
				"a blob that was stored for plan "+plan)
		}
	}
	if n := len(found.Distinct()); n > seal.BlobsNamed {
		return ledger.Refuse(field, fmt.Sprintf("it refers to %d blobs", n),
			fmt.Sprintf("at most %d; store a list of them as one", seal.BlobsNamed))
	}
	return nil
}
