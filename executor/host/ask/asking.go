package ask

import (
	"fmt"
	"sync"

	"github.com/sagenbaum/sagenbaum/ledger"
	"github.com/sagenbaum/sagenbaum/proto/api"
)

// Bounds of the questions of a tenant that come over NATS.
const (
	questionsMax      = 10_000   // under way, or waiting
	questionsBytesMax = 64 << 20 // of their bodies: a door moves 64 blobs, in chunks of 256 KiB
	questionsAtOnce   = 4        // that look at the state, or whose answers are not sent yet
)

// asking counts the questions under way, so that the state store is not closed under them, and
// divides the places among the users that ask.
type asking struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	gone    chan struct{} // closed by close: waiting questions give up

	all   asker             // sums of by
	by    map[string]*asker // users with questions over NATS; empty: whose name is not known
	turns []*asker          // that wait for a place, in the order in which they get one
}

// asker is a user that asks.
type asker struct {
	name                 string
	count, bytes, atOnce int
	waiting              []*question
}

// question is one that came over NATS. It belongs to the goroutine that answers it.
type question struct {
	asking *asking
	of     *asker
	bytes  int
	place  bool
	begun  bool      // it is answered also when the host stops
	turn   chan bool // buffered 1: whether it has a place, or is dropped
}

// dropped is what work panics with: the host stops, and another one is asked.
type dropped struct{}

func (q *asking) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entered()
}

func (q *asking) entered() bool {
	if !q.closed {
		q.running.Add(1)
	}
	return !q.closed
}

func (q *asking) leave() { q.running.Done() }

// admit takes in a question of a user, until its end; nil: the host stops. The error is an
// *api.Problem: there are too many.
func (q *asking) admit(user string, bytes int) (*question, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of := q.by[user]
	if of == nil {
		of = &asker{name: user}
	}
	if err := of.mayAsk(&q.all, bytes); err != nil {
		return nil, &api.Problem{Text: err.Error(), Field: api.CodeQuestions, Again: true}
	}
	if !q.entered() {
		return nil, nil
	}
	if q.by == nil {
		q.by = map[string]*asker{}
	}
	q.by[user] = of
	q.count(of, 1, bytes)
	return &question{asking: q, of: of, bytes: bytes, turn: make(chan bool, 1)}, nil
}

// fits reports whether a user that has so much may have more of what is left. One whose name is
// known leaves as much as it has: so no one takes all, and whoever comes finds some.
func (a *asker) fits(has, more, left int) bool {
	return more <= left && (a.name == "" || has+more <= left)
}

// mayAsk refuses a question more of a user. The error is a *ledger.Refused.
func (a *asker) mayAsk(all *asker, bytes int) error {
	left, leftBytes := questionsMax-all.count, questionsBytesMax-all.bytes
	const want = "fewer at once, or a user for each program"
	switch {
	case !a.fits(a.count, 1, left):
		return ledger.Refuse(api.CodeQuestions, fmt.Sprintf("%d of this user are waiting, "+
			"and %d places are left", a.count, left), want)
	case !a.fits(a.bytes, bytes, leftBytes):
		return ledger.Refuse(api.CodeQuestions, fmt.Sprintf("%d bytes of this user are waiting, "+
			"%d more would, and there is room for %d", a.bytes, bytes, leftBytes), want)
	}
	return nil
}

func (q *asking) count(of *asker, questions, bytes int) {
	for _, a := range []*asker{of, &q.all} {
		a.count += questions
		a.bytes += bytes
	}
	if of.count == 0 {
		delete(q.by, of.name)
	}
}

// end lets a question go that was answered.
func (q *question) end() {
	q.rest()
	a := q.asking
	a.mu.Lock()
	a.count(q.of, -1, -q.bytes)
	a.mu.Unlock()
	a.leave()
}

// work takes a place, and has it until the end, or until the question rests. Users take turns. It
// panics with dropped where the host stops and the question has not begun.
func (q *question) work() {
	if q == nil || q.place { // of this process
		return
	}
	a := q.asking
	a.mu.Lock()
	if a.closed && !q.begun {
		a.mu.Unlock()
		panic(dropped{})
	}
	if len(q.of.waiting) == 0 {
		a.turns = append(a.turns, q.of)
	}
	q.of.waiting = append(q.of.waiting, q)
	a.grant()
	a.mu.Unlock()
	if q.place = <-q.turn; !q.place {
		panic(dropped{})
	}
	q.begun = true
}

// waits has the question answered also when the host stops: who waits for it asks at once again.
func (q *question) waits() {
	if q != nil {
		q.begun = true
	}
}

// rest gives the place to others while the question waits for the fold.
func (q *question) rest() {
	if q == nil || !q.place {
		return
	}
	a := q.asking
	a.mu.Lock()
	defer a.mu.Unlock()
	q.place = false
	q.of.atOnce--
	a.all.atOnce--
	a.grant()
}

// grant gives the places that are free to those whose turn it is. A user whose name is known leaves
// as many as it has.
func (q *asking) grant() {
	for i := 0; i < len(q.turns); {
		of := q.turns[i]
		if !of.fits(of.atOnce, 1, questionsAtOnce-q.all.atOnce) {
			i++
			continue
		}
		of.atOnce++
		q.all.atOnce++
		of.waiting[0].turn <- true
		of.waiting[0] = nil
		of.waiting = of.waiting[1:]
		q.turns = append(q.turns[:i], q.turns[i+1:]...)
		if len(of.waiting) > 0 {
			q.turns = append(q.turns, of)
		}
		i = 0
	}
}

// close refuses further questions, drops those that have not begun, and waits for those under way.
func (q *asking) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.gone)
		q.drop()
	}
	q.mu.Unlock()
	q.running.Wait()
}

// drop drops the questions that wait for their first place.
func (q *asking) drop() {
	turns := q.turns[:0]
	for _, of := range q.turns {
		begun := of.waiting[:0]
		for _, one := range of.waiting {
			if one.begun {
				begun = append(begun, one)
			} else {
				one.turn <- false
			}
		}
		if of.waiting = begun; len(begun) > 0 {
			turns = append(turns, of)
		}
	}
	q.turns = turns
}
