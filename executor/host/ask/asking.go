package ask

import "sync"

// asking counts the questions under way, so that the state store is not closed
// under them.
type asking struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	gone    chan struct{} // closed by close: waiting questions give up
}

func (q *asking) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.running.Add(1)
	}
	return !q.closed
}

func (q *asking) leave() { q.running.Done() }

// close refuses further questions and waits for those under way.
func (q *asking) close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.gone)
	}
	q.mu.Unlock()
	q.running.Wait()
}
