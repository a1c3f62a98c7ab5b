package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"recount/internal/stores"
	"recount/internal/wire"
)

// request is what is kept of a request: what its readers see, and what they don't.
type request struct {
	wire.Request
	RequestDigest string     `json:"request_digest"` // keyed
	Sealed        []byte     `json:"sealed"`         // sealedPart, until its key is destroyed
	Callback      string     `json:"callback,omitzero"`
	FreezeID      string     `json:"freeze_id"`
	Lease         lease      `json:"lease"`
	LedgerFrom    int64      `json:"ledger_from"` // no entry of this request stands before it
	Enumerated    []string   `json:"enumerated"`  // cells whose coordinates are in this attempt's program
	Program       string     `json:"program"`     // the entry whose program this attempt deletes by
	Tries         int        `json:"tries"`       // since the last progress
	Covered       []string   `json:"covered"`     // cells from which an attempt has deleted, or may have
	Lost          bool       `json:"lost"`        // an attempt's receipts are lost: how many rows went is not known
	Entries       []entry    `json:"entries"`
	Statement     string     `json:"statement,omitzero"`
	Certificate   string     `json:"certificate,omitzero"`
	Outbox        []delivery `json:"outbox"`
	Later         *time.Time `json:"later,omitzero"` // callbacks and the key's end failed here, and are not tried before
	DSR           *DSR       `json:"dsr,omitzero"`

	version int64
}

// lease says who runs the request. Whoever takes it has an epoch of their own, and nobody else's changes are taken then.
type lease struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
}

// entry is where an entry of this request stands in the ledger.
type entry struct {
	ID    string    `json:"id"`
	Index int64     `json:"index"`
	Phase string    `json:"phase"`
	At    time.Time `json:"at"`
}

// The stages, in order.
const (
	stageShred     = "shred"
	stageFreeze    = "freeze"
	stageEnumerate = "enumerate"
	stageExecute   = "execute"
	stageArchives  = "archives"
	stageAppDBs    = "app_databases"
	stageVerify    = "verify"
	stageClose     = "close"
)

var stageNames = []string{stageShred, stageFreeze, stageEnumerate, stageExecute, stageArchives, stageAppDBs, stageVerify, stageClose}

// The statuses of a stage.
const (
	stageWaiting       = "waiting"
	stageRunning       = "running"
	stagePending       = "pending"
	stageDone          = "done"
	stageNotApplicable = "not_applicable"
	stageFailed        = "failed"
)

func (r *request) stage(name string) *wire.Stage {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return &r.Stages[i]
		}
	}
	panic("no stage " + name) // the names are ours
}

// next is the first stage that is not over, "" when all are.
func (r *request) next() string {
	for _, st := range r.Stages {
		if st.Status != stageDone && st.Status != stageNotApplicable {
			return st.Name
		}
	}
	return ""
}

// runs reports whether the engine may begin a stage.
func (r *request) runs() bool { return r.State == Approved || r.State == Running || r.State == Pending }

// over reports whether the request has come to its end.
func (r *request) over() bool {
	switch r.State {
	case Closed, Unverified, Rejected, Cancelled:
		return true
	default:
		return false
	}
}

// executed reports whether anything may have been deleted.
func (r *request) executed() bool {
	return r.stage(stageEnumerate).Status != stageWaiting || r.Attempts > 0
}

func (r *request) note(at time.Time, by, action, detail string) {
	r.History = append(r.History, wire.Event{At: at, By: by, Action: action, Detail: detail})
	if len(r.History) > maxHistory { // how it began and how it went on lately; the audit has all
		r.History = slices.Delete(r.History, maxHistory/4, maxHistory/4+1)
	}
}

// wake is when somebody has to look at the request again; zero for never.
func (r *request) wake() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, d := range r.Outbox {
		sooner(d.Next)
	}
	if r.over() && r.KeyDestroyedAt == nil && r.KeyDestroyAt != nil {
		sooner(*r.KeyDestroyAt)
	}
	if !at.IsZero() && r.Later != nil && r.Later.After(at) {
		at = *r.Later
	}
	if r.runs() && r.NextTryAt != nil {
		sooner(*r.NextTryAt)
	}
	return at
}

func (r *request) document() (stores.Document, error) {
	body, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return stores.Document{}, fmt.Errorf("writing a request: %w", err)
	}
	return stores.Document{
		ID: r.ID, Tenant: r.TenantID, Open: !r.over(), Due: r.DueAt, Wake: r.wake(), Version: r.version, Body: body,
	}, nil
}

func parse(d stores.Document) (*request, error) {
	r := &request{version: d.Version}
	if err := json.Unmarshal(d.Body, r, json.WithUnmarshalers(wire.CountReader())); err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	return r, nil
}

// maxHistory bounds the events that a request lists.
const maxHistory = 400

// maxChanges is how often a change is tried again when somebody else changed the request meanwhile.
const maxChanges = 20

// change makes a change to the request as it is now. An error of the change is answered as it is, and nothing is kept. The
// request is nil where it could not be read.
func (s *Service) change(ctx context.Context, id string, f func(*request) error) (last *request, err error) {
	for range maxChanges {
		r, err := s.load(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := f(r); err != nil {
			return r, err
		}
		d, err := r.document()
		if err != nil {
			return r, err
		}
		d, err = s.Requests.Update(ctx, d)
		if errors.Is(err, stores.ErrDocumentStale) {
			last = r
			continue
		}
		if err != nil {
			return r, fmt.Errorf("keeping a request: %w", err)
		}
		r.version = d.Version
		return r, nil
	}
	return last, refuse("busy", "the request is being changed by somebody else: try again")
}

func (s *Service) load(ctx context.Context, id string) (*request, error) {
	if !isID(id) {
		return nil, ErrNotFound
	}
	d, err := s.Requests.Get(ctx, id)
	if errors.Is(err, stores.ErrDocumentNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("reading a request: %w", err)
	}
	return parse(d)
}

func isID(id string) bool {
	return len(id) == 36 && strings.Trim(id, "0123456789abcdef-") == ""
}

// opened is whom the request means.
func (s *Service) opened(ctx context.Context, r *request) (sealedPart, error) {
	var part sealedPart
	if len(r.Sealed) == 0 {
		return part, refuse("descriptor_destroyed", "the descriptor of this request was destroyed")
	}
	plain, err := s.Sealer.Open(ctx, r.ID, r.Sealed)
	if err != nil {
		return part, fmt.Errorf("opening a descriptor: %w", err)
	}
	if err := json.Unmarshal(plain, &part); err != nil {
		return part, errors.New("opening a descriptor: it is none")
	}
	return part, nil
}
