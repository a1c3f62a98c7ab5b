package erasure

import (
	"context"
	"errors"
	"sync"
	"time"

	"recount/internal/ledger"
	"recount/internal/stores"
)

// How a call fails.
const (
	diesBefore  = iota // the process ends before the call does anything
	diesAfter          // it ends when the call has done all
	failsBefore        // the call answers an error, and did nothing
	failsAfter         // the call answers an error, and did all
	waysToFail
)

var errFault = errors.New("a fault that was made on purpose")

// killed is what the end of a process panics with.
type killed struct{ where string }

// killer counts calls, and makes one of them fail.
type killer struct {
	mu    sync.Mutex
	count int
	at    int // 0 for never
	way   int
	dead  bool
	where string
}

func (k *killer) arm(at, way int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count, k.at, k.way, k.dead, k.where = 0, at, way, false, ""
}

func (k *killer) disarm() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.dead = 0, false
	return k.count
}

func (k *killer) isDead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// hit counts a call, and reports whether it is the one.
func (k *killer) hit(where string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	if k.at == 0 || k.count != k.at {
		return false
	}
	k.where = where
	return true
}

func (k *killer) die() {
	k.mu.Lock()
	k.dead = true
	where := k.where
	k.mu.Unlock()
	panic(killed{where})
}

// do makes a call that may fail. A dead process makes none.
func (k *killer) do(where string, call func() error) error {
	if k.isDead() {
		k.die()
	}
	if !k.hit(where) {
		return call()
	}
	switch k.way {
	case diesBefore:
		k.die()
	case failsBefore:
		return errFault
	}
	err := call()
	if k.way == diesAfter {
		k.die()
	}
	return errors.Join(err, errFault)
}

// call is do for what answers no error: it dies or goes on. What it answers is to be called when the call has done all.
func (k *killer) call(where string) func() {
	if k.isDead() {
		k.die()
	}
	if !k.hit(where) {
		return func() {}
	}
	if k.way == diesBefore {
		k.die()
	}
	return func() {
		if k.way == diesAfter {
			k.die()
		}
	}
}

// aside is call for what runs in a goroutine of its own: the process is dead then, and the next call notices.
func (k *killer) aside(where string) func() {
	if k.isDead() || !k.hit(where) {
		return func() {}
	}
	mark := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.dead = true
	}
	if k.way == diesBefore {
		mark()
	}
	return func() {
		if k.way == diesAfter {
			mark()
		}
	}
}

type faultyDocuments struct {
	stores.Documents
	k *killer
}

func (f *faultyDocuments) Create(ctx context.Context, d stores.Document) error {
	return f.k.do("create", func() error { return f.Documents.Create(ctx, d) })
}

func (f *faultyDocuments) Get(ctx context.Context, id string) (d stores.Document, err error) {
	err = f.k.do("get", func() (err error) { d, err = f.Documents.Get(ctx, id); return err })
	return d, err
}

func (f *faultyDocuments) Update(ctx context.Context, d stores.Document) (out stores.Document, err error) {
	err = f.k.do("update", func() (err error) { out, err = f.Documents.Update(ctx, d); return err })
	return out, err
}

func (f *faultyDocuments) Awake(ctx context.Context, at time.Time, limit int) (ids []string, err error) {
	err = f.k.do("awake", func() (err error) { ids, err = f.Documents.Awake(ctx, at, limit); return err })
	return ids, err
}

type faultySealer struct {
	Sealer
	k *killer
}

func (f *faultySealer) Open(ctx context.Context, id string, sealed []byte) (plain []byte, err error) {
	err = f.k.do("open", func() (err error) { plain, err = f.Sealer.Open(ctx, id, sealed); return err })
	return plain, err
}

func (f *faultySealer) Destroy(ctx context.Context, id string) error {
	return f.k.do("destroy", func() error { return f.Sealer.Destroy(ctx, id) })
}

type faultyLog struct {
	*ledger.File
	k *killer
}

func (f *faultyLog) Append(ctx context.Context, r ledger.Record) (e ledger.Entry, err error) {
	err = f.k.do("append "+r.Phase, func() (err error) { e, err = f.File.Append(ctx, r); return err })
	return e, err
}

func (f *faultyLog) Find(ctx context.Context, id string, from int64) (e ledger.Entry, err error) {
	err = f.k.do("find", func() (err error) { e, err = f.File.Find(ctx, id, from); return err })
	return e, err
}

func (f *faultyLog) Checkpoint(ctx context.Context) (signed []byte, h ledger.Head, err error) {
	err = f.k.do("checkpoint", func() (err error) { signed, h, err = f.File.Checkpoint(ctx); return err })
	return signed, h, err
}

func (f *faultyLog) Line(ctx context.Context, index int64) (e ledger.Entry, err error) {
	err = f.k.do("line", func() (err error) { e, err = f.File.Line(ctx, index); return err })
	return e, err
}

type faultyPrograms struct {
	ledger.Programs
	k *killer
}

func (f *faultyPrograms) Write(ctx context.Context, id string, body []byte) error {
	return f.k.do("program", func() error { return f.Programs.Write(ctx, id, body) })
}

// failingDestroy destroys no key.
type failingDestroy struct {
	Sealer
	calls *int
}

func (f failingDestroy) Destroy(context.Context, string) error {
	*f.calls++
	return errFault
}
