package triggers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A stretch is quiet for long when it lasts more than quietTimes as long as all that
// are less than half of it together, as no longer one forbids: then it is drawn
// short, and broken.
const (
	quietTimes   = 6
	brokenWeight = 1.5 // beside 1 for each other stretch
	tailPart     = 7   // the tail gets one part beside these
	crowdedPart  = 0.4 // of a line without room for all labels is shared equally
)

// Strip is a course laid out along a line on which nothing happens within a
// stretch, only where two meet.
type Strip struct {
	Course    Course
	Stretches []Stretch // from arming on; the last may be the tail
}

// Stretch is a part of the line.
type Stretch struct {
	FromNs int64 // ns after arming
	ToNs   int64 // FromNs for the tail
	Broken bool  // long, and drawn short: the line is not to scale here
	Tail   bool  // after the end: as it was, from then on
}

// NewStrip lays out a course.
func NewStrip(c Course) Strip {
	s := Strip{Course: c}
	instants := []int64{0, c.EndNs}
	for _, e := range c.Events {
		instants = append(instants, max(e.AtNs, 0))
	}
	for i := range c.Spans {
		instants = append(instants, c.Spans[i].FromNs)
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	for i := 1; i < len(instants); i++ {
		s.Stretches = append(s.Stretches, Stretch{FromNs: instants[i-1], ToNs: instants[i]})
	}
	s.breakLong()
	if c.Spans[len(c.Spans)-1].FromNs == c.EndNs || c.happensAt(c.EndNs) {
		s.Stretches = append(s.Stretches, Stretch{FromNs: c.EndNs, ToNs: c.EndNs, Tail: true})
	}
	return s
}

func (c *Course) happensAt(ns int64) bool {
	return slices.ContainsFunc(c.Events, func(e Event) bool { return e.AtNs == ns })
}

// breakLong marks the stretches that are much longer than all shorter ones, the
// longest and those like it first.
func (s *Strip) breakLong() {
	lengths := make([]float64, len(s.Stretches))
	rest := 0.0
	for i := range lengths {
		lengths[i] = s.Stretches[i].length()
		rest += lengths[i]
	}
	slices.Sort(lengths)
	bound := len(lengths) // the shortest that are not broken
	for bound > 0 {
		longest, next := lengths[bound-1], bound
		for next > 0 && lengths[next-1] >= longest/2 {
			next--
			rest -= lengths[next]
		}
		if next == 0 || longest <= quietTimes*rest {
			break
		}
		bound = next
	}
	for i := range s.Stretches {
		s.Stretches[i].Broken = bound < len(lengths) && s.Stretches[i].length() > lengths[bound-1]
	}
}

func (s *Stretch) length() float64 { return float64(s.ToNs) - float64(s.FromNs) }

// Place returns where each stretch begins on a line of a width, and where the line
// ends: one number more than there are stretches. least is what a stretch must have;
// where there is no room for that, all get little, and the
// rest by their length.
func (s *Strip) Place(width float64, least func(stretch int) float64) []float64 {
	weights := s.weights()
	lengths := make([]float64, len(weights))
	fixed := make([]bool, len(weights))
	floors, wanted := make([]float64, len(weights)), 0.0
	for i := range weights {
		floors[i] = least(i)
		wanted += floors[i]
	}
	if wanted > width {
		for i := range floors {
			floors[i] = width * crowdedPart / float64(len(floors))
		}
	}
	for again := true; again; {
		again = false
		room, sum := width, 0.0
		for i, w := range weights {
			if fixed[i] {
				room -= lengths[i]
			} else {
				sum += w
			}
		}
		for i, w := range weights {
			if fixed[i] {
				continue
			}
			lengths[i] = room * w / sum
			if lengths[i] < floors[i] {
				lengths[i], fixed[i], again = floors[i], true, true
			}
		}
	}
	places := []float64{0}
	for i, length := range lengths {
		places = append(places, places[i]+length)
	}
	return places
}

// weights returns what part of the line a stretch would have if none had a least.
func (s *Strip) weights() []float64 {
	var linear, count, sum float64
	for i := range s.Stretches {
		if st := &s.Stretches[i]; !st.Broken && !st.Tail {
			linear += st.length()
			count++
		}
	}
	weights := make([]float64, len(s.Stretches))
	for i := range s.Stretches {
		switch st := &s.Stretches[i]; {
		case st.Broken:
			weights[i] = brokenWeight
		case !st.Tail:
			weights[i] = count * st.length() / linear
		}
		sum += weights[i]
	}
	for i := range s.Stretches {
		if s.Stretches[i].Tail {
			weights[i] = max(sum, 1) / tailPart
		}
	}
	return weights
}

// stripRow is one lane of a strip as text.
type stripRow struct {
	truth Truth
	fill  byte
}

// stripRows are the lanes, top down.
var stripRows = [...]stripRow{{True, '#'}, {Unknown, '?'}, {False, '.'}}

// stripLabel is the width of the names of the lanes.
const stripLabel = 9

// Text draws the strip in ASCII, one line for each truth, the axis, and the times
// below it, in width columns or a few more. F is the firing, x where the condition
// turned moot, R where it was retired with its plan; on the axis a digit or letter is an event by
// its number, * one of more, ~ a flip of the clock, // a stretch that is not to scale. The axis is
// dotted where no lease looks any more.
func (s *Strip) Text(width int) []string {
	columns := max(width-stripLabel-1, 20)
	places := s.Place(float64(columns), func(i int) float64 {
		return float64(len(FormatOffset(s.Stretches[i].FromNs)) + 1)
	})
	t := &stripText{strip: s, places: make([]int, len(places)),
		axis: []byte(strings.Repeat("-", columns))}
	for i, place := range places {
		t.places[i] = min(int(place), columns)
	}
	for i := range t.lanes {
		t.lanes[i] = []byte(strings.Repeat(" ", columns))
	}
	t.spans()
	t.marks()
	lines := make([]string, 0, len(t.lanes)+2)
	for i, row := range stripRows {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%-*s|%s", stripLabel, row.truth, t.lanes[i]),
			" "))
	}
	end := "|"
	if s.Stretches[len(s.Stretches)-1].Tail {
		end = ">"
	}
	return append(lines, strings.Repeat(" ", stripLabel)+"+"+string(t.axis)+end,
		strings.Repeat(" ", stripLabel+1)+t.times())
}

// stripText is a strip as it is drawn.
type stripText struct {
	strip  *Strip
	places []int // of the stretches, and the end
	lanes  [len(stripRows)][]byte
	axis   []byte
}

// column returns where an instant is.
func (t *stripText) column(ns int64) int {
	for i := range t.strip.Stretches {
		if t.strip.Stretches[i].FromNs >= ns {
			return min(t.places[i], len(t.axis)-1)
		}
	}
	return len(t.axis) - 1
}

func (t *stripText) spans() {
	spans := t.strip.Course.Spans
	for i := range spans {
		from, to := t.column(spans[i].FromNs), len(t.axis)
		if i+1 < len(spans) {
			to = max(t.column(spans[i+1].FromNs), from+1)
		}
		for row := range stripRows {
			fill := byte(' ')
			if stripRows[row].truth == spans[i].Truth {
				fill = stripRows[row].fill
			}
			for column := from; column < to; column++ {
				t.lanes[row][column] = fill
			}
		}
	}
}

func (t *stripText) marks() {
	c := &t.strip.Course
	over := len(t.axis) // from where on no lease looks
	lane, letter := 0, byte('F')
	switch {
	case c.Fires:
		over = t.column(c.FiresNs)
	case c.Moot:
		over, letter = t.column(c.MootNs), 'x'
	case c.Retired:
		over, letter = t.column(c.RetiredNs), 'R'
	}
	for column := over; column < len(t.axis); column++ {
		t.axis[column] = '.'
	}
	for i := range t.strip.Stretches {
		if st := &t.strip.Stretches[i]; st.Broken {
			middle := (t.places[i] + t.places[i+1]) / 2
			t.cut(middle)
		}
	}
	for i := range c.Spans {
		if len(c.Spans[i].Events) == 0 && c.Spans[i].FromNs > 0 {
			t.axis[t.column(c.Spans[i].FromNs)] = '~'
		}
		if c.Spans[i].FromNs <= max(c.FiresNs, c.MootNs, c.RetiredNs) {
			lane = slices.IndexFunc(stripRows[:],
				func(row stripRow) bool { return row.truth == c.Spans[i].Truth })
		}
	}
	for i := len(c.Events) - 1; i >= 0; i-- { // the first of an instant is what is seen
		if c.Events[i].AtNs >= 0 {
			t.axis[t.column(c.Events[i].AtNs)] = c.Mark(i)
		}
	}
	if over < len(t.axis) {
		t.lanes[lane][over] = letter
	}
}

// cut draws the break of a stretch through axis and lanes.
func (t *stripText) cut(column int) {
	for _, line := range append([][]byte{t.axis}, t.lanes[:]...) {
		for _, at := range []int{column, column + 1} {
			if at < len(line) && line[at] != ' ' {
				line[at] = '/'
			}
		}
	}
}

// times writes the instants below the axis, as far as there is room.
func (t *stripText) times() string {
	var line strings.Builder
	for i := range t.strip.Stretches {
		t.time(&line, t.places[i], t.strip.Stretches[i].FromNs)
	}
	if last := t.strip.Stretches[len(t.strip.Stretches)-1]; !last.Tail {
		t.time(&line, len(t.axis), last.ToNs)
	}
	return line.String()
}

// stripOver is how many columns a time may be beyond the end of the axis.
const stripOver = 6

func (t *stripText) time(line *strings.Builder, column int, ns int64) {
	text := FormatOffset(ns)
	column = min(column, len(t.axis)+stripOver-len(text))
	if column < 0 || line.Len() > 0 && line.Len() >= column {
		return
	}
	line.WriteString(strings.Repeat(" ", column-line.Len()) + text)
}

const eventMarks = "123456789abcdefghijklmnopqrstuvwyz" // x is moot

// Mark returns the character of an event on the axis: a space for one
// before arming, which is not there.
func (c *Course) Mark(event int) byte {
	first := slices.IndexFunc(c.Events, func(e Event) bool { return e.AtNs >= 0 })
	switch n := event - first; {
	case first < 0 || n < 0:
		return ' '
	case n < len(eventMarks):
		return eventMarks[n]
	}
	return '*'
}

// FormatOffset writes an offset from arming shortly: 0s, 50ms, 1m40s, 72h, 30d. A
// window includes its end; what comes a nanosecond after one, or after a whole
// microsecond, is written with a plus: 15m+.
func FormatOffset(ns int64) string {
	if ns > 0 && ns%1000 == 1 {
		return FormatOffset(ns-1) + "+"
	}
	const day = int64(24 * time.Hour)
	if ns < 0 {
		return "-" + FormatOffset(max(-ns, 0))
	}
	days := ""
	if ns >= 5*day {
		days, ns = fmt.Sprintf("%dd", ns/day), ns%day
		if ns == 0 {
			return days
		}
	}
	text := time.Duration(ns).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

// String says what happens, on one line: "paid/o7 = 1", "verdict block by compliance".
func (e *Event) String() string {
	switch e.Kind {
	case EventAssert:
		return e.Key + " = " + string(e.Value)
	case EventRetract:
		return e.Key + " retracted"
	case EventStatus:
		return "plan " + e.Text
	case EventActions:
		return fmt.Sprintf("plan has %d actions", e.Count)
	case EventActive:
		return "agent is active"
	case EventOutcome:
		text := "forward " + e.Text
		if e.Value != nil {
			text += ", output " + string(e.Value)
		}
		return text
	case EventVerdict:
		text := "verdict " + e.Text
		if e.By != "" {
			text += " by " + e.By
		}
		if e.Reason != "" {
			text += ": " + e.Reason
		}
		return text
	default:
		panic(fmt.Sprintf("triggers: no such kind of event: %d", e.Kind))
	}
}
