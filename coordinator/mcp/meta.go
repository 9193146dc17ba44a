package mcp

import (
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// What a client may say in the metadata of a call, and a result says of it.
const (
	planMeta   = "sagenbaum/plan"   // the plan that the call belongs to
	keyMeta    = "sagenbaum/key"    // an idempotency key
	actionMeta = "sagenbaum/action" // of a result: what the call is in the plan

	planHeader = "Sagenbaum-Plan" // the same over HTTP
	keyHeader  = "Idempotency-Key"
)

// textOf reads what a client says in metadata: one that means to say something, and does not, must
// not have its call made in another plan, or twice.
func textOf(meta sdk.Meta, name string, into *string) error {
	said, given := meta[name]
	if !given {
		return nil
	}
	text, ok := said.(string)
	if !ok || text == "" {
		raw, err := encode(said)
		if err != nil {
			return err
		}
		return ledger.Refuse("_meta["+name+"]", value(string(raw)), "a text that is not empty, or none")
	}
	*into = text
	return nil
}
