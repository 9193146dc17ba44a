package verify

import (
	"fmt"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// anchor is a checkpoint that was kept from before: the ledger must have grown from it.
type anchor struct {
	head ledger.Checkpoint
	kept *Kept
	keep bool // it is in the file that the next one is kept in
}

// anchor takes the checkpoints that were kept from before.
func (c *check) anchor() error {
	if text := c.options.Before; text != "" {
		claimed, ok := Claimed(text)
		if !ok {
			return ledger.Refuse("before", "it is no signed checkpoint",
				"the file checkpoint of a host, or of an earlier export")
		}
		// Whoever kept it trusts it: its signature is looked at, and by which key it is told.
		head, _, _, err := c.keys.open(text, claimed.Size)
		if err != nil {
			return err
		}
		if head.Origin != ledger.Origin(c.report.Tenant) {
			return ledger.Refuse("before", fmt.Sprintf("a checkpoint of %.80q", head.Origin),
				ledger.Origin(c.report.Tenant))
		}
		c.report.Kept = &Kept{Size: head.Size}
		c.anchors = append(c.anchors, anchor{head: head, kept: c.report.Kept})
	}
	claimed, ok := Claimed(c.options.Keep)
	if ok && claimed.Origin == ledger.Origin(c.report.Tenant) && c.options.Keep != c.options.Before {
		head, _, _, err := c.keys.open(c.options.Keep, claimed.Size)
		if err != nil {
			return fmt.Errorf("the checkpoint that is kept already: %w", err)
		}
		c.report.Keep = &Kept{Size: head.Size}
		c.anchors = append(c.anchors, anchor{head: head, kept: c.report.Keep, keep: true})
	}
	c.reached()
	return nil
}

// reached holds the checkpoints that were kept against the tree when that has their size.
func (c *check) reached() {
	rest := c.anchors[:0]
	for _, a := range c.anchors {
		switch {
		case a.head.Size != c.tree.Size():
			rest = append(rest, a)
		case c.tree.Root() == a.head.Root:
			a.kept.Holds = true
		default:
			c.report.find(Finding{Rule: "I2", Sequence: 1, Through: max(c.report.Last, 1),
				Problem: fmt.Sprintf("a fork: the first %d records are not those of the checkpoint "+
					"that was kept from before; there are two histories of that size", a.head.Size)})
		}
	}
	c.anchors = rest
}

// endAnchors says what is not shown of the checkpoints that were kept. An older bundle may be
// checked again: one that ends before the checkpoint that is in its place is only not kept.
func (c *check) endAnchors() {
	r := c.report
	for _, a := range c.anchors {
		size := a.head.Size
		switch {
		case size > r.Size && a.keep:
			r.Keep = nil
		case size > r.Size && c.ended:
			r.find(Finding{Rule: "I2", Sequence: r.Last + 1,
				Problem: fmt.Sprintf("truncated: it has %d records, and the checkpoint that was kept "+
					"from before has %d", r.Size, size)})
		case size > r.Size:
			r.doubt("the checkpoint from before", 0,
				"it covers %d records, and the file is cut off after %d", size, r.Size)
		default:
			r.doubt("the checkpoint from before", 0,
				"its %d records end among those that are withheld; export with --before", size)
		}
	}
}
