package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
	"recount/internal/wire"
)

// checks is the contract, in the order in which a new cell is best mended.
func checks() []check {
	return slices.Concat(answerChecks, pathChecks, refusalChecks, []check{
		{
			name: "Refusals are problem documents that quote nobody",
			mend: "Answer every 4xx as application/problem+json with a stable type, a title and the status (RFC 9457), and never quote what was sent.",
			run: func(_ context.Context, p *peer) error {
				if defects := slices.Sorted(maps.Keys(p.problems)); len(defects) > 0 {
					return errors.New(strings.Join(defects, "; "))
				}
				return nil
			},
		},
		{
			name: "Nothing is answered by a redirect",
			mend: "Turn off path cleaning and slash redirects: a 301 turns a DELETE into a GET that answers 200.",
			run: func(ctx context.Context, p *peer) error {
				for _, path := range []string{"/v1/intent/subject:delete/", "//v1/intent/subject:delete", "/v1/intent/./subject:delete"} {
					if _, err := p.send(ctx, message{method: http.MethodPost, path: path}); err != nil {
						return err
					}
				}
				if p.redirect != "" {
					return errors.New(p.redirect)
				}
				return nil
			},
		},
	})
}

var answerChecks = []check{
	{
		name: "The cell answers, and lets this caller in",
		mend: "Give the address, and with --token or --auth google a token that is made out to the cell, of a caller that may read and erase for --tenant.",
		run:  checkLetIn,
	},
	{
		name: "/health answers by the cell's name and lists its stores",
		mend: `Answer GET /health with 200 and {"status","cell","version","stores":[{"store","backend"}]}, without asking a store.`,
		run:  checkHealth,
	},
	{
		name: "/ready answers 200 once every store can answer",
		mend: "Answer GET /ready with 200 when the stores can be counted, else 503.",
		run: func(ctx context.Context, p *peer) error {
			got, err := p.send(ctx, message{method: http.MethodGet, path: "/ready"})
			if err == nil && got.code != http.StatusOK {
				err = fmt.Errorf("HTTP %d", got.code)
			}
			return err
		},
	},
	{
		name: "Erasing a person that nobody knows is a measured zero",
		mend: "Answer subject:delete with 200, status erased, and a receipt per store with before, deleted and remaining 0; never 404, which would tell who is known.",
		run: func(ctx context.Context, p *peer) error {
			_, err := p.erased(p.post(ctx, "delete", p.naming(p.id)))
			return err
		},
	},
	{
		name: "Erasing them again is a success with the same subject_ref",
		mend: "Make erasing idempotent; subject_ref is the hex SHA-256 of salt|tenant_id|identity_id.",
		run: func(ctx context.Context, p *peer) error {
			first, err := p.erased(p.post(ctx, "delete", p.naming(p.id)))
			if err != nil {
				return err
			}
			again, err := p.erased(p.post(ctx, "delete", p.naming(p.id)))
			if err == nil && first != again {
				err = fmt.Errorf("two references for one person")
			}
			return err
		},
	},
	{
		name: "subject_ref is that of the deployment's salt",
		mend: "subject_ref is the lower-case hex SHA-256 of the bytes salt|tenant_id|identity_id, with the salt that every cell has (INTENT_SUBJECT_SALT).",
		run:  checkSalt,
	},
	{
		name: "The answer has every field, and nothing of the identity",
		mend: "Write every field of the erase response and of each receipt, null where nothing was measured, and never echo identity_id.",
		run:  checkFields,
	},
	{
		name: "X-Request-ID comes back, and a malformed one does not",
		mend: "Echo X-Request-ID in the header and as request_id when it is hex or a UUID; draw one of your own otherwise.",
		run:  checkRequestID,
	},
	{
		name: "subject:count counts every store",
		mend: `Answer {"operation":"count","status":"counted","receipts":[{"cell","store","backend","status":"counted","count":0,"detail":""}]}.`,
		run:  checkCount,
	},
	{
		name: "subject:access shows every store, with its Art. 15 card",
		mend: `Answer {"operation":"access","status":"read","receipts":[{…,"status":"read","count":0,"rows":[],"scrubbed":[],"about":{…},"next_page_token":""}]}.`,
		run:  checkAccess,
	},
	{
		name: "subject:batchDelete answers for each person, in the order asked",
		mend: `Answer {"status","results":[…]}, one erase response per id, in order; the code is the worst status's.`,
		run:  checkBatch,
	},
}

func checkLetIn(ctx context.Context, p *peer) error {
	got, err := p.post(ctx, "count", p.naming(p.id))
	if err == nil && (got.code == http.StatusUnauthorized || got.code == http.StatusForbidden) {
		err = got.refusal()
	}
	if err != nil {
		return fmt.Errorf("%w; %w", err, errHopeless)
	}
	return nil
}

func checkHealth(ctx context.Context, p *peer) error {
	said, err := p.askHealth(ctx, p.at)
	if err != nil {
		return err
	}
	for _, store := range p.stores {
		if !slices.ContainsFunc(said.Stores, func(h wire.HealthStore) bool { return h.Store == store }) {
			return fmt.Errorf("the store %s is not listed", store)
		}
	}
	return nil
}

func checkSalt(ctx context.Context, p *peer) error {
	if p.salt == nil {
		return fmt.Errorf("%w: no --salt", errSkipped)
	}
	who, err := subject.New(p.tenant, p.id)
	if err != nil {
		return fmt.Errorf("the person of this run: %w", err)
	}
	got, err := p.erased(p.post(ctx, "delete", p.naming(p.id)))
	if err == nil && got != who.Ref(*p.salt) {
		err = fmt.Errorf("another reference than this salt makes")
	}
	return err
}

var (
	envelopeNames = []string{"request_id", "tenant_id", "subject_ref", "operation", "status", "detail", "receipts", "generated_at"}
	receiptNames  = []string{
		"cell", "store", "backend", "status", "before", "deleted", "remaining", "recoverable_until", "detail", "started_at", "finished_at",
	}
)

func checkFields(ctx context.Context, p *peer) error {
	got, err := p.post(ctx, "delete", p.naming(p.id))
	if err != nil {
		return err
	}
	if kind := mediaType(got.header); kind != "application/json" {
		return fmt.Errorf("the Content-Type is %q", kind)
	}
	if strings.Contains(string(got.body), p.id) {
		return fmt.Errorf("the identity is in the answer")
	}
	var envelope map[string]jsontext.Value
	var receipts []map[string]jsontext.Value
	if decodeLoosely(got.body, &envelope) != nil || decodeLoosely(envelope["receipts"], &receipts) != nil {
		return fmt.Errorf("the answer is not JSON of the contract")
	}
	if missing := missingName(envelope, envelopeNames); missing != "" {
		return fmt.Errorf("the answer lacks %s", missing)
	}
	said, err := wire.DecodePeer(got.body)
	if err != nil {
		return fmt.Errorf("the answer is not JSON of the contract: %w", err)
	}
	for i, receipt := range receipts {
		if missing := missingName(receipt, receiptNames); missing != "" {
			return fmt.Errorf("a receipt lacks %s", missing)
		}
		r := said.Receipts[i]
		if r.StartedAt.Time.IsZero() || r.FinishedAt.Time.Before(r.StartedAt.Time) || r.RecoverableUntil.Malformed {
			return fmt.Errorf("a receipt has a time that is none, or an end before its start (RFC 3339)")
		}
	}
	return nil
}

func missingName(object map[string]jsontext.Value, names []string) string {
	for _, name := range names {
		if _, there := object[name]; !there {
			return name
		}
	}
	return ""
}

func checkRequestID(ctx context.Context, p *peer) error {
	body, err := wire.Marshal(p.naming(p.id))
	if err != nil {
		return fmt.Errorf("the request can't be written: %w", err)
	}
	m := message{method: http.MethodPost, path: "/v1/intent/subject:delete", contentType: "application/json", body: body}
	got, err := p.send(ctx, m)
	if err != nil {
		return err
	}
	if back := got.header.Get("X-Request-ID"); back != got.requestID {
		return fmt.Errorf("the header X-Request-ID did not come back")
	}
	m.requestID = "a name; with=marks"
	if got, err = p.send(ctx, m); err != nil {
		return err
	}
	said, err := wire.DecodePeer(got.body)
	switch {
	case err != nil:
		return fmt.Errorf("the answer is not JSON of the contract: %w", err)
	case string(said.RequestID) == m.requestID || got.header.Get("X-Request-ID") == m.requestID:
		return fmt.Errorf("a request id that is neither hex nor a UUID came back as it was")
	case said.RequestID == "":
		return fmt.Errorf("no request_id of the cell's own")
	}
	return nil
}

// countSaid is what a cell answers to a count.
type countSaid struct {
	pageSaid
	Receipts []struct {
		Cell   wire.PeerText  `json:"cell"`
		Store  wire.PeerText  `json:"store"`
		Status wire.PeerText  `json:"status"`
		Count  wire.PeerCount `json:"count"`
	} `json:"receipts"`
}

func checkCount(ctx context.Context, p *peer) error {
	got, err := p.post(ctx, "count", p.naming(p.id))
	if err != nil {
		return err
	}
	var said countSaid
	if got.code != http.StatusOK || decodeLoosely(got.body, &said) != nil {
		return fmt.Errorf("HTTP %d, or no JSON of the contract", got.code)
	}
	if said.Operation != wire.OpCount || said.Status != "counted" || string(said.RequestID) != got.requestID || !isRef(string(said.SubjectRef)) {
		return fmt.Errorf("operation, status, request_id or subject_ref are not those of a count")
	}
	counted := map[string]bool{}
	for _, r := range said.Receipts {
		count, sound := r.Count.Count()
		if string(r.Cell) != p.at.name || r.Status != "counted" || !sound || !count.IsZero() {
			return fmt.Errorf("the receipt of %s is not a count of 0", printable(string(r.Store)))
		}
		counted[string(r.Store)] = true
	}
	return p.missing(counted)
}

func (p *peer) missing(answered map[string]bool) error {
	for _, store := range p.stores {
		if !answered[store] {
			return fmt.Errorf("the store %s has no receipt", store)
		}
	}
	return nil
}

func checkAccess(ctx context.Context, p *peer) error {
	who, err := subject.New(p.tenant, p.id)
	if err != nil {
		return fmt.Errorf("the person of this run: %w", err)
	}
	said, err := p.page(ctx, p.at, who, "", "")
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, r := range said.Receipts {
		if err := r.sound(); err != nil {
			return err
		}
		if count, _ := r.Count.Count(); !count.IsZero() || len(*r.Rows) > 0 || r.NextPageToken != "" {
			return fmt.Errorf("%s shows rows of a person that nobody knows", r.Store)
		}
		if r.About.Kind() != '{' || r.Scrubbed == nil {
			return fmt.Errorf("%s lacks about or scrubbed", r.Store)
		}
		shown[string(r.Store)] = true
	}
	return p.missing(shown)
}

func checkBatch(ctx context.Context, p *peer) error {
	ids := []string{p.id + "-3", p.id + "-1", p.id + "-2"}
	got, err := p.post(ctx, "batchDelete", wire.BatchRequest{TenantID: p.tenant, IdentityIDs: ids})
	if err != nil {
		return err
	}
	if got.code != http.StatusOK {
		return fmt.Errorf("HTTP %d for people that nobody knows", got.code)
	}
	for i, o := range judgeBatch(got, question{requestID: got.requestID, tenant: p.tenant}, len(ids)) {
		if err := p.zero(o); err != nil {
			return err
		}
		alone, err := p.erased(p.post(ctx, "delete", p.naming(ids[i])))
		if err != nil {
			return err
		}
		if alone != o.ref {
			return fmt.Errorf("result %d is not about the person asked in that place", i+1)
		}
	}
	return nil
}
