package tiles

import "github.com/sagenbaum/sagenbaum/ledger"

// CutToLast drops the records of a message that is not whole.
func (t *Writer) CutToLast() error {
	size := t.Size()
	if err := t.FromMessage(t.Last() + 1); err != nil {
		return err
	}
	if t.cursor == size {
		return nil
	}
	keep := extent{size: t.cursor, last: t.Last()}
	if t.cursor > 0 {
		n := (t.cursor - 1) / ledger.TileWidth
		entries, err := t.entriesOf(n)
		if err != nil {
			return err
		}
		if keep.end, err = t.begins(n); err != nil {
			return err
		}
		for _, entry := range entries[:t.cursor-n*ledger.TileWidth] {
			keep.end += 4 + int64(len(entry))
		}
	}
	if err := t.cut(keep); err != nil {
		return err
	}
	return t.abandon()
}
