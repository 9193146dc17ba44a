//go:build exercise

package torture

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a host and a NATS server. It can hang, as behind a cable
// that is cut: connections stay, and nothing passes.
type proxy struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	open  *sync.Cond // of mu
	hangs bool
	conns map[net.Conn]bool
	ended bool
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: to, conns: map[net.Conn]bool{}}
	p.open = sync.NewCond(&p.mu)
	go p.accept() // ends with the listener
	t.Cleanup(p.end)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.join(near) // ends with the connection
	}
}

func (p *proxy) join(near net.Conn) {
	defer near.Close()
	p.pass()
	far, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	p.mu.Lock()
	p.conns[near], p.conns[far] = true, true
	ended := p.ended
	p.mu.Unlock()
	if ended {
		return
	}
	back := make(chan struct{})
	go func() { // ends with the connection
		p.copy(near, far)
		close(back)
	}()
	p.copy(far, near)
	<-back
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, near)
	delete(p.conns, far)
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil && err != io.EOF || n == 0 {
			return
		}
		p.pass()
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// pass returns when nothing hangs.
func (p *proxy) pass() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.hangs && !p.ended {
		p.open.Wait()
	}
}

// hang lets nothing pass any more, or all of it again.
func (p *proxy) hang(hangs bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = hangs
	p.open.Broadcast()
}

// cut ends every connection; new ones hang if the proxy does.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close() // it may have ended
	}
}

func (p *proxy) end() {
	p.listener.Close()
	p.mu.Lock()
	p.ended = true
	p.open.Broadcast()
	p.mu.Unlock()
	p.cut()
}
