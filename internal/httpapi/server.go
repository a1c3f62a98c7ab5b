package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"recount/internal/subject"
)

const (
	// erasuresEnd is how long after the signal the erasures that still run are told to answer.
	erasuresEnd = 8 * time.Second
	// serviceEnds is how long after the signal serving ends, whatever still runs. Platforms kill at 10 s, and the audit's
	// outbox needs the time until then.
	serviceEnds = 9 * time.Second

	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	pingAfter     = 30 * time.Second // HTTP/2: a silent connection is asked whether it lives
	maxHeader     = 64 << 10
	maxStreams    = 1000 // HTTP/2, per connection: a cascade's calls share one
)

// Life is the life of a service: it serves until it is told to stop, and then lets what has started come to its end.
type Life struct {
	erasures       context.Context //nolint:containedctx // the process's own, not a request's
	endErasures    context.CancelCauseFunc
	stopping       atomic.Bool
	working        working
	softly, firmly time.Duration
}

// NewLife begins one.
func NewLife() *Life {
	l := &Life{softly: erasuresEnd, firmly: serviceEnds}
	l.erasures, l.endErasures = context.WithCancelCause(context.Background())
	return l
}

// Erasures is the context of work that no caller may stop. It ends, with cause subject.ErrShuttingDown, 8 s after the
// service was told to stop: early enough for each erasure to answer what it could not measure.
func (l *Life) Erasures() context.Context { return l.erasures }

// Stopping reports whether the service was told to stop.
func (l *Life) Stopping() bool { return l.stopping.Load() }

// Site is a handler and where it listens.
type Site struct {
	Listener net.Listener
	Handler  http.Handler
}

// Serve serves HTTP/1.1 and unencrypted HTTP/2 on every site until ctx ends. It then takes no more connections, lets
// running requests finish, those too whose caller has hung up, and answers an error if 9 s were not enough for them. It
// MUST be called once.
func (l *Life) Serve(ctx context.Context, log *zap.Logger, sites ...Site) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	failures := make(chan error, len(sites))
	servers := make([]*http.Server, len(sites))
	for i, site := range sites {
		servers[i] = l.server(log, site.Handler)
		running.Go(func() {
			if err := servers[i].Serve(site.Listener); !errors.Is(err, http.ErrServerClosed) {
				failures <- fmt.Errorf("serving %s: %w", site.Listener.Addr(), err)
				cancel()
			}
		})
	}
	<-ctx.Done()
	l.stopping.Store(true)
	err := l.stop(servers)
	running.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return err
}

func (l *Life) server(log *zap.Logger, h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	errorLog, err := zap.NewStdLogAt(log.Named("http"), zap.DebugLevel)
	if err != nil {
		panic(err) // the level is a valid one
	}
	return &http.Server{
		Handler:                      l.working.counting(h),
		Protocols:                    protocols,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter},
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     errorLog,
	}
}

// stop is the end: idle connections now, erasures at softly, everything at firmly.
func (l *Life) stop(servers []*http.Server) error {
	soft := time.AfterFunc(l.softly, func() { l.endErasures(subject.ErrShuttingDown) })
	defer soft.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), l.firmly)
	defer cancel()
	var closing sync.WaitGroup
	for _, s := range servers {
		closing.Go(func() {
			if s.Shutdown(ctx) != nil {
				_ = s.Close() // what Shutdown did not finish is reported below, by the requests that are cut
			}
		})
	}
	closing.Wait()
	// Shutdown waits for connections. A request whose caller hung up has none any more, and still works.
	err := l.working.wait(ctx)
	l.endErasures(subject.ErrShuttingDown)
	return err
}

// working counts the requests that are being answered.
type working struct {
	mu   sync.Mutex
	n    int
	none chan struct{} // made by wait, closed when n reaches 0
}

func (w *working) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.add(1)
		defer w.add(-1)
		next.ServeHTTP(rw, r)
	})
}

func (w *working) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n += n
	if w.n == 0 && w.none != nil {
		close(w.none)
		w.none = nil
	}
}

func (w *working) wait(ctx context.Context) error {
	w.mu.Lock()
	left, none := w.n, make(chan struct{})
	if left > 0 {
		w.none = none
	}
	w.mu.Unlock()
	if left == 0 {
		return nil
	}
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stopped with unfinished requests: %d", left)
	}
}
