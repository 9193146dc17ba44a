package web

import (
	"fmt"
	"slices"

	"github.com/sagenbaum/sagenbaum/proto/api"
)

// graph is the part of the picture of a plan beside one action: its own place, and the
// lanes that pass it, end at it or begin at it.
type graph struct {
	At   int   // lane of the action
	Pass []int // lanes of others
	In   []int // lanes that come from above and end here
	Out  []int // lanes that begin here and go on below
}

// lanesMax bounds the lanes side by side; further branches share the last.
const lanesMax = 8

// draw places actions in lanes. Each step from an action to one that came after it has a
// lane from the one to the other; the first keeps the lane of the action.
func draw(actions []api.Action) (rows []graph, width int) {
	shown := map[int]bool{}
	for _, a := range actions {
		shown[a.Number] = true
	}
	next := map[int][]int{} // by number: the actions that came right after
	for _, a := range actions {
		for _, n := range a.After {
			if shown[n] {
				next[n] = append(next[n], a.Number)
			}
		}
	}
	var lanes []int // the action that each leads to; 0: free
	free := func() int {
		if i := slices.Index(lanes, 0); i >= 0 {
			return i
		}
		lanes = append(lanes, 0)
		return len(lanes) - 1
	}
	for _, a := range actions {
		row := graph{At: -1}
		for i, to := range lanes {
			switch {
			case to == a.Number && row.At < 0:
				row.At = i
				row.In = append(row.In, i)
			case to == a.Number:
				row.In = append(row.In, i)
			case to != 0:
				row.Pass = append(row.Pass, i)
			}
		}
		for _, i := range row.In {
			lanes[i] = 0
		}
		if row.At < 0 {
			row.At = free()
		}
		for i, to := range next[a.Number] {
			lane := row.At
			if i > 0 {
				lanes[row.At] = next[a.Number][0]
				lane = free()
			}
			lanes[lane] = to
			row.Out = append(row.Out, lane)
		}
		rows, width = append(rows, row), max(width, len(lanes), row.At+1)
	}
	return rows, min(width, lanesMax)
}

// laneWidth and nodeY are the measures of the picture in its own units.
const (
	laneWidth = 18
	nodeY     = 20
)

// x is the middle of a lane.
func x(lane int) int { return min(lane, lanesMax-1)*laneWidth + laneWidth/2 + 2 }

// width is that of all lanes of a tree.
func (t *Tree) width() int { return x(t.Lanes-1) + 11 }

// in draws the way from a lane above to the action.
func (g graph) in(lane int) string {
	from, to := x(lane), x(g.At)
	return fmt.Sprintf("M%d 0C%d 14 %d 6 %d 20", from, from, to, to)
}

// out draws the way from the action to a lane below.
func (g graph) out(lane int) string {
	from, to := x(g.At), x(lane)
	return fmt.Sprintf("M%d 20C%d 36 %d 26 %d 42", from, from, to, to)
}
