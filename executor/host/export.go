package host

import (
	"github.com/sagenbaum/sagenbaum/executor/view"
)

// askExport reads the tiles for a client that writes a bundle of them. It needs no session, and
// changes nothing: whoever asks goes on from where the last answer ended.
func (a *actor) askExport(q view.ExportQuery) any {
	tiles := a.copiesSeen()
	if tiles == nil {
		return view.ErrorAnswer{Error: "cannot export: the ledger is not open yet"}
	}
	answer, err := tiles.Export(q)
	if err != nil {
		return view.ErrorAnswer{Error: "cannot export: " + err.Error()}
	}
	return answer
}
