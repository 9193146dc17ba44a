package trigger

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sagenbaum/sagenbaum/triggers"

	"github.com/sagenbaum/sagenbaum/cmd/sagenbaum/cli"
)

// Measures of a drawn strip, in pixels.
const (
	svgWidth   = 960.0
	svgLeft    = 88.0 // of the lanes
	svgRight   = svgWidth - 32
	svgLane    = 22.0 // height of a lane
	svgGap     = 4.0  // between lanes
	svgRow     = 19.0 // of a line of text
	svgNumber  = 9.0  // radius of an event's number
	svgText    = 6.9  // width of a character of 12.5 px
	svgMono    = 7.6  // of a character of 12.5 px, monospaced
	svgNotes   = 24   // events that are written out below a strip
	svgTimeMax = 3    // rows of times below an axis
	svgCrowded = 20   // stretches, above which few times are written
	svgColumns = 118  // characters of a condition in a line
)

// svgLanes are the lanes, top down. Place, texture and colour each tell the truths
// apart, so that colour alone never has to; the colours are those of Okabe and Ito.
var svgLanes = [...]struct {
	truth triggers.Truth
	fill  string
}{{triggers.True, "#D55E00"}, {triggers.Unknown, "url(#unknown)"}, {triggers.False, "#AEB4BD"}}

const svgHead = `<style>
text{font:12.5px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1F2328}
.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.quiet{fill:#59636E}.strong{font-weight:600}.good{fill:#0B6B4F}.bad{fill:#A4133C}.fires{fill:#A84300;font-weight:600}
.number{font-size:11px;font-weight:600;text-anchor:middle}.middle{text-anchor:middle}.end{text-anchor:end}
</style>
<defs><pattern id="unknown" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="7" height="7" fill="#CFE6F5"/><rect width="2.5" height="7" fill="#0072B2"/></pattern></defs>
`

// DrawCourses draws the strips of all cases, one below the other.
func DrawCourses(views []CourseView) []byte {
	d := &drawing{y: 28}
	for i := range views {
		if i == 0 || views[i].File != views[i-1].File {
			d.heading(&views[i])
		}
		d.course(&views[i])
	}
	d.legend()
	var out bytes.Buffer
	fmt.Fprintf(&out,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img">`+"\n", svgWidth, d.y, svgWidth, d.y)
	fmt.Fprintf(&out, "<title>%s</title>\n",
		escaped("truth over time of "+cli.CountOf(len(views), "case")))
	fmt.Fprintf(&out, "%s<rect width=\"100%%\" height=\"100%%\" fill=\"#FFFFFF\"/>\n%s</svg>\n",
		svgHead, d.out.String())
	return out.Bytes()
}

// escaped makes a text one that XML and people can read.
func escaped(text string) string {
	var out strings.Builder
	if err := xml.EscapeText(&out, []byte(cli.Printable(text))); err != nil {
		panic("sagenbaum: a builder refuses text: " + err.Error())
	}
	return out.String()
}

// drawing is an SVG as it grows downwards.
type drawing struct {
	out bytes.Buffer
	y   float64
}

func (d *drawing) text(x, y float64, class, text string) {
	fmt.Fprintf(&d.out, `<text x="%.1f" y="%.1f" class="%s" xml:space="preserve">%s</text>`+"\n", x,
		y, class, escaped(text))
}

func (d *drawing) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2,
		style)
}

// heading is the file and its condition.
func (d *drawing) heading(v *CourseView) {
	d.text(24, d.y, "strong", v.File)
	d.y += svgRow
	for line := range strings.Lines(v.Condition) {
		for _, part := range wrapped(strings.TrimRight(line, "\r\n"), svgColumns) {
			d.text(24, d.y, "mono", part)
			d.y += svgRow
		}
	}
	d.y += 12
}

// wrapped breaks a text into lines of at most n characters, at spaces as far as
// there are some.
func wrapped(text string, n int) []string {
	var lines []string
	rest := []rune(text)
	for len(rest) > n {
		at := n
		for at > n/2 && rest[at] != ' ' {
			at--
		}
		if rest[at] != ' ' {
			at = n
		}
		lines = append(lines, string(rest[:at]))
		rest = []rune(strings.TrimLeft(string(rest[at:]), " "))
		if len(rest) > 0 {
			rest = append([]rune("  "), rest...)
		}
	}
	return append(lines, string(rest))
}

// drawnStrip is one strip and where it is drawn.
type drawnStrip struct {
	*drawing
	view   *CourseView
	strip  triggers.Strip
	places []float64 // of the stretches, and the end
	top    float64   // of the lanes
	bottom float64
}

func (d *drawing) course(v *CourseView) {
	s := &drawnStrip{drawing: d, view: v, strip: triggers.NewStrip(v.course)}
	s.places = s.strip.Place(svgRight-svgLeft, func(i int) float64 {
		return max(float64(len(triggers.FormatOffset(s.strip.Stretches[i].FromNs)))*svgText+10,
			2*svgNumber+4)
	})
	s.header()
	s.top = d.y
	s.bottom = s.top + float64(len(svgLanes))*(svgLane+svgGap)
	s.lanes()
	s.breaks()
	s.ending()
	s.axis()
	s.notes()
	d.y += 36
}

// header says how the case went.
func (s *drawnStrip) header() {
	class, word := "quiet", ""
	switch {
	case !s.view.OK:
		class, word = "bad strong", "FAIL "
	case s.view.expects:
		class, word = "good strong", "ok "
	}
	name := cli.Clip(s.view.Case, 70)
	s.text(24, s.y, class, word)
	s.text(24+float64(len(word))*svgText+4, s.y, "strong", name)
	s.y += 26
	if !s.view.OK {
		s.text(24, s.y-6, "bad", s.view.Unmet)
		s.y += svgRow
	}
}

// x returns where an instant is drawn.
func (s *drawnStrip) x(ns int64) float64 {
	for i := range s.strip.Stretches {
		if s.strip.Stretches[i].FromNs >= ns {
			return svgLeft + s.places[i]
		}
	}
	return svgRight
}

func laneOf(truth triggers.Truth) int {
	for i := range svgLanes {
		if svgLanes[i].truth == truth {
			return i
		}
	}
	panic("sagenbaum: no such truth")
}

func (s *drawnStrip) laneTop(lane int) float64 { return s.top + float64(lane)*(svgLane+svgGap) }

// lanes draws the truth as steps: a block in its lane for each span.
func (s *drawnStrip) lanes() {
	for i := range svgLanes {
		y := s.laneTop(i)
		fmt.Fprintf(&s.out,
			`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#F3F4F6"/>`+"\n", svgLeft, y,
			svgRight-svgLeft, svgLane)
		s.text(svgLeft-12, y+svgLane/2+4.5, "end quiet", svgLanes[i].truth.String())
	}
	spans := s.strip.Course.Spans
	for i := range spans {
		span := &spans[i]
		from, to := s.x(span.FromNs), svgRight
		if i+1 < len(spans) {
			to = s.x(spans[i+1].FromNs)
		}
		lane, pale := laneOf(span.Truth), ""
		if span.After || span.Moot || span.Retired {
			pale = ` opacity="0.4"` // no lease looks any more
		}
		fmt.Fprintf(&s.out, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s/>`+"\n",
			from, s.laneTop(lane), max(to-from, 1), svgLane, svgLanes[lane].fill, pale)
		if i > 0 {
			before := laneOf(spans[i-1].Truth)
			s.line(from, s.laneTop(min(before, lane)), from, s.laneTop(max(before, lane))+svgLane,
				`stroke="#1F2328" stroke-width="1.2"`)
		}
	}
}

// breaks cuts the stretches that are not to scale.
func (s *drawnStrip) breaks() {
	for i := range s.strip.Stretches {
		if !s.strip.Stretches[i].Broken {
			continue
		}
		x, top, bottom := svgLeft+(s.places[i]+s.places[i+1])/2, s.top-3, s.bottom+5
		fmt.Fprintf(&s.out,
			`<path d="M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fZ" fill="#FFFFFF"/>`+"\n", x-1, top,
			x+9, top, x+1, bottom, x-9, bottom)
		for _, shift := range []float64{-1, 9} {
			s.line(x+shift, top, x+shift-8, bottom, `stroke="#59636E" stroke-width="1.2"`)
		}
	}
}

// ending draws the firing, or where the condition turned moot.
func (s *drawnStrip) ending() {
	c := &s.strip.Course
	var at int64
	text, class := "", "quiet middle"
	style := `stroke="#59636E" stroke-width="1.5" stroke-dasharray="4 3"`
	switch {
	case c.Fires:
		at, text, class = c.FiresNs, "fires at "+triggers.FormatOffset(c.FiresNs), "fires middle"
		style = `stroke="#1F2328" stroke-width="2.2"`
	case c.Moot:
		at, text = c.MootNs, "moot since "+triggers.FormatOffset(c.MootNs)
	case c.Retired:
		at, text = c.RetiredNs, "retired at "+triggers.FormatOffset(c.RetiredNs)
	default:
		return
	}
	x, half := s.x(at), float64(len(text))*svgText/2
	s.line(x, s.top-6, x, s.bottom+2, style)
	s.text(min(max(x, svgLeft+half), svgRight-half), s.top-11, class, text)
}

// axis draws the line of time with its instants, their marks and their times.
func (s *drawnStrip) axis() {
	y := s.bottom + 14
	end := svgRight
	tail := s.strip.Stretches[len(s.strip.Stretches)-1].Tail
	if tail {
		end += 10
		fmt.Fprintf(&s.out, `<path d="M%.1f %.1fl-7 -4v8Z" fill="#59636E"/>`+"\n", end+2, y)
	}
	s.line(svgLeft, y, end, y, `stroke="#59636E" stroke-width="1.4"`)
	s.line(svgLeft, y-5, svgLeft, y+5, `stroke="#59636E" stroke-width="1.4"`)
	if !tail {
		s.line(svgRight, y-5, svgRight, y+5, `stroke="#59636E" stroke-width="1.4"`)
	}
	for i := range s.strip.Stretches { // below the axis: the breaks once more
		if s.strip.Stretches[i].Broken {
			x := svgLeft + (s.places[i]+s.places[i+1])/2
			fmt.Fprintf(&s.out, `<path d="M%.1f %.1fh9v10h-9Z" fill="#FFFFFF"/>`+"\n", x-5, y-5)
			s.line(x-7, y+5, x-3, y-5, `stroke="#59636E" stroke-width="1.2"`)
			s.line(x+2, y+5, x+6, y-5, `stroke="#59636E" stroke-width="1.2"`)
		}
	}
	s.flips(y)
	s.numbers(y)
	s.y = y + svgNumber + 16
	s.times()
}

// flips draws a diamond where the clock alone began a span.
func (s *drawnStrip) flips(y float64) {
	for i := range s.strip.Course.Spans {
		span := &s.strip.Course.Spans[i]
		if span.FromNs > 0 && len(span.Events) == 0 {
			fmt.Fprintf(&s.out,
				`<path d="M%.1f %.1fl6 6l-6 6l-6 -6Z" fill="#FFFFFF" stroke="#1F2328" stroke-width="1.3"/>`+
					"\n", s.x(span.FromNs), y-6)
		}
	}
}

// numbers draws the events of each instant: a tick, and their numbers above it as far
// as there is room.
func (s *drawnStrip) numbers(y float64) {
	c := &s.strip.Course
	var numbers bytes.Buffer
	full := -svgWidth // up to where the axis is taken
	for i := 0; i < len(c.Events); {
		first, x := i, s.x(c.Events[i].AtNs)
		for i < len(c.Events) && c.Events[i].AtNs == c.Events[first].AtNs {
			i++
		}
		if c.Events[first].AtNs < 0 {
			continue
		}
		s.line(x, y-6, x, y+6, `stroke="#1F2328" stroke-width="1.3"`)
		text := string(c.Mark(first))
		if i > first+1 {
			text += "-" + string(c.Mark(i-1))
		}
		half := svgNumber + float64(len(text)-1)*3
		if c.Mark(i-1) == '*' || x-half < full {
			continue
		}
		full = x + half
		fmt.Fprintf(&numbers,
			`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="%.1f" fill="#FFFFFF" stroke="#1F2328" stroke-width="1.3"/>`+"\n", x-half, y-svgNumber, 2*half, 2*svgNumber, svgNumber)
		fmt.Fprintf(&numbers, `<text x="%.1f" y="%.1f" class="number">%s</text>`+"\n", x, y+4,
			escaped(text))
	}
	s.out.Write(numbers.Bytes())
}

// times writes the instants below the axis, in as many rows as are needed so that
// none covers another; what finds no room is left out.
func (s *drawnStrip) times() {
	var full [svgTimeMax]float64 // up to where a row is written
	rows, gap, used := svgTimeMax, 8.0, 0
	if len(s.strip.Stretches) > svgCrowded {
		rows, gap = 1, 24
	}
	write := func(x float64, ns int64) {
		text := triggers.FormatOffset(ns)
		half := float64(len(text)) * svgText / 2
		x = min(x, svgWidth-half-6)
		for row := range full[:rows] {
			if x-half >= full[row] {
				full[row] = x + half + gap
				s.text(x, s.y+float64(row)*15, "middle quiet", text)
				used = max(used, row+1)
				return
			}
		}
	}
	for i := range s.strip.Stretches {
		write(svgLeft+s.places[i], s.strip.Stretches[i].FromNs)
	}
	if last := s.strip.Stretches[len(s.strip.Stretches)-1]; !last.Tail {
		write(svgRight, last.ToNs)
	}
	s.y += float64(used) * 15
}

// notes says what the numbers are.
func (s *drawnStrip) notes() {
	c := &s.strip.Course
	for i := range c.Events {
		s.y += svgRow
		if i == svgNotes && len(c.Events) > svgNotes+1 {
			s.text(svgLeft, s.y, "quiet", fmt.Sprintf("and %d more", len(c.Events)-svgNotes))
			break
		}
		e := &c.Events[i]
		s.text(svgLeft, s.y, "strong", strings.TrimSpace(string(c.Mark(i))))
		s.text(svgLeft+22, s.y, "quiet", triggers.FormatOffset(e.AtNs))
		s.text(svgLeft+124, s.y, "mono", cli.Clip(e.String(), 92))
	}
}

// legend explains the lanes and marks, once.
func (d *drawing) legend() {
	x := 24.0
	sample := func(shape, text string) {
		fmt.Fprintf(&d.out, `<g transform="translate(%.1f %.1f)">%s</g>`+"\n", x, d.y, shape)
		d.text(x+26, d.y+4, "quiet", text)
		x += 26 + float64(utf8.RuneCountInString(text))*svgText + 16
	}
	for i := range svgLanes {
		sample(fmt.Sprintf(`<rect y="-7" width="18" height="14" fill="%s"/>`, svgLanes[i].fill),
			svgLanes[i].truth.String())
	}
	sample(`<rect y="-7" width="18" height="14" fill="#D55E00" opacity="0.4"/>`,
		"no lease looks any more")
	sample(`<circle cx="9" r="8" fill="#FFFFFF" stroke="#1F2328" stroke-width="1.3"/><text x="9" y="4" class="number">1</text>`, "what happens")
	sample(`<path d="M9 -6l6 6l-6 6l-6 -6Z" fill="#FFFFFF" stroke="#1F2328" stroke-width="1.3"/>`,
		"the clock")
	sample(`<path d="M4 7l4 -14M11 7l4 -14" stroke="#59636E" stroke-width="1.2"/>`, "drawn short")
	d.y += 24
}
