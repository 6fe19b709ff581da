package main

import (
	"io"
	"net"
	"sync"
)

// A proxy is one address for a server that may become another one.
type proxy struct {
	listener net.Listener

	mu       sync.Mutex
	upstream string
	conns    map[net.Conn]bool
}

func newProxy(upstream string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, upstream: upstream, conns: map[net.Conn]bool{}}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			go p.serve(client)
		}
	}()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// serve joins a connection to one of its own to the server, until either ends.
func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	current := p.upstream == upstream
	p.conns[client], p.conns[server] = current, current
	p.mu.Unlock()
	if current {
		ended := make(chan struct{}, 2)
		join := func(to, from net.Conn) {
			_, _ = io.Copy(to, from) // how a connection ends is told to nobody
			ended <- struct{}{}
		}
		go join(client, server)
		go join(server, client)
		<-ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// use ends all connections, and joins new ones to another server.
func (p *proxy) use(upstream string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = upstream
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.use("")
}
