// Package cascadetest is an honest cell on loopback, for the tests and the measurements of the cascade.
package cascadetest

import (
	"net/http"
	"net/http/httptest"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// SaltText is what a coordinator needs as its salt to be answered by the cells of this package.
const SaltText = "a salt for the tests of the cascade"

// Salt is the salt of every cell of this package.
func Salt() subject.Salt {
	salt, err := subject.NewSalt(SaltText)
	if err != nil {
		panic(err)
	}
	return salt
}

// Cell answers subject:delete and subject:batchDelete flawlessly, after a delay.
type Cell struct {
	Name   string
	Stores []string
	Delay  time.Duration
}

// Start serves the cell on a loopback port. The caller MUST close the server.
func (c *Cell) Start() *httptest.Server { return httptest.NewServer(c) }

// Erased is the receipts of a plain erasure of two rows per store.
func (c *Cell) Erased() []subject.Receipt {
	now := time.Now()
	receipts := make([]subject.Receipt, len(c.Stores))
	for i, store := range c.Stores {
		receipts[i] = subject.Attest(subject.Statement{
			Label:  subject.Label{Cell: c.Name, Store: store, Backend: "memory"},
			Times:  subject.Times{Started: now, Finished: now},
			Counts: subject.Counts{Before: subject.Measured(2), Deleted: subject.Measured(2), Remaining: subject.Measured(0)},
			Status: subject.Erased,
		})
	}
	return receipts
}

// Answer is the erase response about one subject.
func (c *Cell) Answer(requestID string, s subject.Subject) wire.EraseResponse {
	return wire.FromReceipts(requestID, subject.TargetOf(s, Salt()), c.Erased(), time.Now())
}

// ServeHTTP is the two routes that the cascade calls.
func (c *Cell) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(c.Delay)
	var answer any
	var err error
	switch requestID := r.Header.Get("X-Request-ID"); r.URL.Path {
	case "/v1/intent/subject:delete":
		var body wire.SubjectRequest
		var s subject.Subject
		if err = wire.DecodeRequest(r.Body, &body); err == nil {
			s, err = subject.New(body.TenantID, body.IdentityID)
		}
		answer = c.Answer(requestID, s)
	case "/v1/intent/subject:batchDelete":
		var body wire.BatchRequest
		err = wire.DecodeRequest(r.Body, &body)
		batch := wire.BatchResponse{Status: subject.Erased.String()}
		for _, identity := range body.IdentityIDs {
			s, bad := subject.New(body.TenantID, identity)
			if bad != nil {
				err = bad
			}
			batch.Results = append(batch.Results, c.Answer(requestID, s))
		}
		answer = batch
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	write(w, answer)
}

func write(w http.ResponseWriter, answer any) {
	body, err := wire.Marshal(answer)
	if err != nil {
		http.Error(w, "unwritable", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) //nolint:gosec // JSON of a test cell; the caller may have hung up
}
