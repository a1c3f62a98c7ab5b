package firestoretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Fault is one way to fail. The zero value fails nothing.
type Fault struct {
	Method string        // the RPC's name, such as "Commit"; "" is every one
	Times  int           // how many calls fail; 0 is all of them
	Code   codes.Code    // what the call answers; OK only delays
	Delay  time.Duration // before anything else

	Lost      bool           // the call is carried out, and then its answer lost
	Cut       bool           // the connection is cut instead of answering
	Broken    int            // a stream fails after so many messages; 0 is before the first
	Writes    func(int) bool // of a BatchWrite, only these writes fail, in an answer that is OK
	MaxWrites int            // only a Commit or BatchWrite of more writes fails, as too big
}

// Proxy passes the calls of a Firestore client on to an emulator, and fails some.
type Proxy struct {
	backend *grpc.ClientConn
	server  *grpc.Server
	conns   *tracker

	mu     sync.Mutex
	faults []Fault
	decide func(method string) (Fault, bool)
}

// NewProxy starts a proxy in front of the emulator, for one test.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	backend, err := grpc.NewClient("passthrough:///"+Host(t), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{backend: backend, conns: &tracker{Listener: listener}}
	p.server = grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(p.handle))
	done := make(chan error, 1)
	go func() { done <- p.server.Serve(p.conns) }()
	t.Cleanup(func() {
		p.server.Stop()
		if err := errors.Join(<-done, backend.Close()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Host is the host:port to connect to.
func (p *Proxy) Host() string { return p.conns.Addr().String() }

// Inject adds a fault. Of several that fit a call the first one is used.
func (p *Proxy) Inject(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Times == 0 {
		f.Times = -1
	}
	p.faults = append(p.faults, f)
}

// Decide asks a function about every call, in place of the injected faults.
func (p *Proxy) Decide(decide func(method string) (Fault, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Heal removes every fault.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults, p.decide = nil, nil
}

func (p *Proxy) pick(method string, request []byte) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.decide != nil {
		return p.decide(method)
	}
	for i := range p.faults {
		f := &p.faults[i]
		fits := (f.Method == "" || f.Method == method) && f.Times != 0 && (f.MaxWrites == 0 || writesOf(method, request) > f.MaxWrites)
		if fits {
			f.Times--
			return *f, true
		}
	}
	return Fault{}, false
}

func writesOf(method string, request []byte) int {
	var batch pb.BatchWriteRequest
	var commit pb.CommitRequest
	switch {
	case method == "BatchWrite" && proto.Unmarshal(request, &batch) == nil:
		return len(batch.GetWrites())
	case method == "Commit" && proto.Unmarshal(request, &commit) == nil:
		return len(commit.GetWrites())
	}
	return 0
}

// handle passes on a call of one request and any number of responses, which every call of the tests is.
func (p *Proxy) handle(_ any, caller grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(caller)
	var request frame
	if err := caller.RecvMsg(&request); err != nil {
		return err
	}
	fault, failing := p.pick(path.Base(full), request)
	if !failing {
		return p.forward(caller, full, request, func(frame) error { return nil })
	}
	select {
	case <-time.After(fault.Delay):
	case <-caller.Context().Done():
		return status.FromContextError(caller.Context().Err()).Err()
	}
	return p.fail(caller, full, request, fault)
}

func (p *Proxy) fail(caller grpc.ServerStream, full string, request frame, fault Fault) error {
	failure := status.Error(fault.Code, "injected")
	seen := 0
	switch {
	case fault.Code == codes.OK:
		return p.forward(caller, full, request, func(frame) error { return nil })
	case fault.Writes != nil:
		return p.halfFail(caller, full, request, fault)
	case fault.MaxWrites > 0:
		return status.Error(codes.InvalidArgument, "Transaction too big. Decrease transaction size.")
	case fault.Broken > 0:
		return p.forward(caller, full, request, func(frame) error {
			if seen++; seen > fault.Broken {
				return failure
			}
			return nil
		})
	case fault.Lost || fault.Cut:
		if fault.Lost {
			if err := p.forward(discard{caller}, full, request, func(frame) error { return nil }); err != nil {
				return err
			}
		}
		if fault.Cut {
			p.conns.cut()
		}
	}
	return failure
}

// forward makes the call and hands each response on, unless refuse answers an error for it.
func (p *Proxy) forward(caller grpc.ServerStream, full string, request frame, refuse func(frame) error) error {
	ctx, cancel := context.WithCancel(caller.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	stream, err := p.backend.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, full)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&request); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		var response frame
		err := stream.RecvMsg(&response)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := refuse(response); err != nil {
			return err
		}
		if err := caller.SendMsg(&response); err != nil {
			return err
		}
	}
}

// halfFail carries out the writes of a BatchWrite that are not to fail, and answers for all of them.
func (p *Proxy) halfFail(caller grpc.ServerStream, full string, request frame, fault Fault) error {
	var asked, sent pb.BatchWriteRequest
	if err := proto.Unmarshal(request, &asked); err != nil {
		return err
	}
	sent.Database = asked.GetDatabase()
	for i, w := range asked.GetWrites() {
		if !fault.Writes(i) {
			sent.Writes = append(sent.Writes, w)
		}
	}
	partial, err := proto.Marshal(&sent)
	if err != nil {
		return err
	}
	captured := &capture{ServerStream: caller}
	if err := p.forward(captured, full, partial, func(frame) error { return nil }); err != nil {
		return err
	}
	var done, answer pb.BatchWriteResponse
	if err := proto.Unmarshal(captured.last, &done); err != nil {
		return err
	}
	next := 0
	for i := range asked.GetWrites() {
		if fault.Writes(i) {
			answer.WriteResults = append(answer.WriteResults, &pb.WriteResult{})
			answer.Status = append(answer.Status, &rpc.Status{Code: int32(fault.Code), Message: "injected"}) //nolint:gosec // codes are small
			continue
		}
		answer.WriteResults = append(answer.WriteResults, done.GetWriteResults()[next])
		answer.Status = append(answer.Status, done.GetStatus()[next])
		next++
	}
	response, err := proto.Marshal(&answer)
	if err != nil {
		return err
	}
	whole := frame(response)
	return caller.SendMsg(&whole)
}

// discard swallows what is sent to the caller.
type discard struct{ grpc.ServerStream }

func (discard) SendMsg(any) error { return nil }

// capture keeps the last message that is sent to the caller.
type capture struct {
	grpc.ServerStream

	last frame
}

func (c *capture) SendMsg(m any) error {
	if f, ok := m.(*frame); ok {
		c.last = *f
	}
	return nil
}

// frame is a message that is passed on unread.
type frame []byte

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("a message of type %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*f)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("a message of type %T", v)
	}
	*f = data.Materialize()
	return nil
}

// tracker knows its connections, so that they can be cut.
type tracker struct {
	net.Listener

	mu    sync.Mutex
	conns []net.Conn
}

// Accept remembers the connection.
func (l *tracker) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
	}
	return conn, err
}

func (l *tracker) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close() // already closed is as good
	}
	l.conns = nil
}
