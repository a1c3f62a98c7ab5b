// Package erasure carries out erasure requests: who asked and on what ground, what would be hit, which two people approved
// it, what was done stage by stage, what was measured, and what proves it. It stands on the cascade, the suppression ledger
// and the ledger of erasures, and has no way around any of them.
package erasure

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"recount/internal/audit"
	"recount/internal/ledger"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/wire"
)

// The states of a request.
const (
	Filed      = "filed"
	Verified   = "verified"
	Previewed  = "previewed"
	Approved   = "approved"
	Running    = "running"
	Pending    = "pending"
	Closed     = "closed"
	Unverified = "closed_unverified_strings" // everything was done but searching for the identifier strings
	Rejected   = "rejected"
	Cancelled  = "cancelled"
	Failed     = "stage_failed"
)

// Cell says where rows are, and holds writes back. Enumerate MUST answer for every target, in order; what it can't say is a
// failed place.
type Cell interface {
	Name() string
	Enumerate(ctx context.Context, requestID string, targets []subject.Target, list bool) []wire.Enumerated
	// Follow answers where each target leads, one step far: a person to the sources of their rows, sources to what derives from
	// them. Errors: *subject.Fault.
	Follow(ctx context.Context, requestID string, targets []subject.Target) ([][]subject.Source, error)
	Freeze(ctx context.Context, requestID, freezeID string, people []subject.Subject, until time.Time) error
	Thaw(ctx context.Context, requestID, freezeID, tenant string) error
}

// Eraser is the cascade. Its erasures answer receipts for each target, in order, whatever fails.
type Eraser interface {
	EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure
}

// Sealer keeps what names the person under a key that is the request's own.
type Sealer interface {
	// Seal makes the key when there is none yet.
	Seal(ctx context.Context, id string, plain []byte) ([]byte, error)
	Open(ctx context.Context, id string, sealed []byte) ([]byte, error)
	// Destroy destroys the key: nothing that it sealed can be opened any more. It is idempotent.
	Destroy(ctx context.Context, id string) error
}

// Poster makes callbacks to registered hosts.
type Poster interface {
	CheckURL(raw string) error
	Post(ctx context.Context, url string, header http.Header, body []byte) (status int, err error)
}

// Signer signs certificates and checkpoints.
type Signer interface {
	Sign(text string) ([]byte, error)
	Verifiers() []string
}

// CallbackSigner makes the headers that a callback of ours carries.
type CallbackSigner interface {
	Sign(id string, at time.Time, body []byte) http.Header
}

// Observer counts, for metrics. It MUST be safe for concurrent use.
type Observer interface {
	// RequestEnded counts a request that came to an end, in that state.
	RequestEnded(state string)
	// RequestsDue says how many open requests are overdue, and how many will be within a week.
	RequestsDue(overdue, soon int64)
	// RequestFailed tells of an error that kept a request from going on. The error's text MUST NOT be logged.
	RequestFailed(step string, err error)
}

// Config is what a Service is made of. Every field is required unless it says otherwise.
type Config struct {
	Holder   string // of leases: this process's own
	Salt     subject.Salt
	Digest   func(tenant string, text []byte) string // keyed, hex
	Requests stores.Documents
	Sealer   Sealer
	Ledger   ledger.Log
	Programs ledger.Programs
	Signer   Signer
	Cells    []Cell // the local one first
	Eraser   Eraser
	Audit    interface{ Record(rows ...audit.Row) }
	Observer Observer
	Poster   Poster
	Callback CallbackSigner
	OpenDSR  CallbackSigner
	Limits   Limits
	Now      func() time.Time
}

// Limits are the numbers of the configuration.
type Limits struct {
	BackupHorizonDays *int          // how long a backup is kept; nil where nobody has said
	LogRetentionDays  int           // how long logs are kept
	DriftPercent      float64       // how far counts may move between preview and approval
	BlastCap          int64         // rows that a request may hit without an override
	ApprovalTTL       time.Duration // of an approval and of a preview
	Deadline          time.Duration // how long pending stores are driven again
	Lease             time.Duration // longer than any one stage takes
	Look              time.Duration // how often Run looks for what is due
	RetryFirst        time.Duration // the first pause of a backoff that doubles
}

// Service is erasure requests. It is safe for concurrent use, and by several processes over one store.
type Service struct {
	Config
	kick chan struct{}
	busy busy

	counting  sync.Mutex
	countedAt time.Time
}

// New makes a Service.
func New(c Config) *Service {
	return &Service{Config: c, kick: make(chan struct{}, 1), busy: busy{ids: map[string]bool{}}}
}

// RefusedError says why something is not done. Its text is shown to callers, and names nobody.
type RefusedError struct {
	Code    string // for the audit: a fixed word
	Problem string
	Invalid bool // the request itself can't be processed, whatever the state
}

// Error is the problem.
func (e *RefusedError) Error() string { return e.Problem }

func refuse(code, problem string) error { return &RefusedError{Code: code, Problem: problem} }

func invalid(problem string) error {
	return &RefusedError{Code: "invalid", Problem: problem, Invalid: true}
}

// ErrNotFound says that there is no request of that id.
var ErrNotFound = errors.New("there is no such erasure request")
