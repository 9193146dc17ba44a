package jetstream_test

import (
	"bytes"
	"net"
	"sync"
)

// proxyMode is what a proxy does with the connections of a client.
type proxyMode int

const (
	proxyOpen         proxyMode = iota
	proxyLosesRequest           // cuts in front of the next message, then is open
	proxyLosesReply             // cuts in front of the next acknowledgement, then is open
	proxySevered                // cuts all, and takes no new ones
	proxyDrops                  // leaves out the next message to the client with proxyDropped in it, then is open
)

// proxyDropped is in the message that proxyDrops leaves out.
const proxyDropped = "never delivered"

// proxy stands between a client and a server and cuts the socket where it is told.
type proxy struct {
	listener net.Listener
	upstream func() string

	mu    sync.Mutex
	mode  proxyMode
	conns map[net.Conn]bool
}

// startProxy starts the goroutine that accepts; close ends it and all others.
func startProxy(upstream func() string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, upstream: upstream, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	p.listener.Close()
	p.set(proxySevered)
}

func (p *proxy) set(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	if mode == proxySevered {
		for conn := range p.conns {
			conn.Close()
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.upstream())
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		severed := p.mode == proxySevered
		if !severed {
			p.conns[client], p.conns[server] = true, true
		}
		p.mu.Unlock()
		if severed {
			client.Close()
			server.Close()
			continue
		}
		go p.pipe(client, server, proxyLosesRequest, "Nats-Msg-Id")
		go p.pipe(server, client, proxyLosesReply, `"seq":`)
	}
}

// pipe copies one direction, and cuts both in front of what holds mark when the
// mode is losing it. What a test sends is small: it comes in one piece.
func (p *proxy) pipe(from, to net.Conn, losing proxyMode, mark string) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		lose := p.mode == losing && bytes.Contains(buf[:n], []byte(mark))
		drop := losing == proxyLosesReply && p.mode == proxyDrops && bytes.Contains(buf[:n], []byte(proxyDropped))
		if lose || drop {
			p.mode = proxyOpen
		}
		p.mu.Unlock()
		if lose {
			return
		}
		if drop {
			continue
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}
