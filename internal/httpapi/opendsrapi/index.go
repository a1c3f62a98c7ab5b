package opendsrapi

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/stores"
)

// entry is what is kept of a filing, before it is filed. Nothing in it names the person.
type entry struct {
	RequestID    string    `json:"request_id"`
	BodyDigest   string    `json:"body_digest"` // keyed
	Controller   string    `json:"controller"`  // the caller's e-mail
	ControllerID string    `json:"controller_id"`
	Received     time.Time `json:"received"`
}

// indexID names the entry of a controller's id, in whatever case it is written.
func indexID(tenant, subjectRequestID string) string {
	sum := sha256.Sum256([]byte(tenant + "|" + strings.ToLower(subjectRequestID)))
	return hex.EncodeToString(sum[:24])
}

// digest is that of a body as it was received. It is keyed, because who knows the rest of a body could guess at its
// identities.
func (s Surface) digest(tenant string, raw []byte) string {
	mac := hmac.New(sha256.New, s.Key)
	_, _ = mac.Write([]byte("recount opendsr body v1\n" + tenant + "\n")) // no hash fails, and a tenant has no line's end
	_, _ = mac.Write(raw)
	return hex.EncodeToString(mac.Sum(nil))
}

// errNoEntry says that nothing was filed under the id.
var errNoEntry = errors.New("no entry of the index")

func (s Surface) lookUp(ctx context.Context, tenant, subjectRequestID string) (entry, error) {
	var e entry
	d, err := s.Index.Get(ctx, indexID(tenant, subjectRequestID))
	if errors.Is(err, stores.ErrDocumentNotFound) {
		return e, errNoEntry
	}
	if err != nil {
		return e, fmt.Errorf("reading the index: %w", err)
	}
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return e, fmt.Errorf("reading the index: %w", err)
	}
	return e, nil
}

// bind binds a controller's id to a request, once: of all that try it one succeeds, and all get what that one has bound.
// check is asked before. Errors: those of check, *httpapi.Refusal for an id that is bound to something else.
func (s Surface) bind(ctx context.Context, tenant, subjectRequestID string, fresh entry, check func() error) (entry, error) {
	kept, err := s.lookUp(ctx, tenant, subjectRequestID)
	if errors.Is(err, errNoEntry) {
		if err := check(); err != nil {
			return entry{}, err
		}
		kept, err = s.keep(ctx, tenant, subjectRequestID, fresh)
	}
	if err != nil {
		return entry{}, err
	}
	if kept.Controller != fresh.Controller || !hmac.Equal([]byte(kept.BodyDigest), []byte(fresh.BodyDigest)) {
		return entry{}, httpapi.Conflict("this subject_request_id was used before, for another request: that one stands, and a new one needs an id of its own")
	}
	return kept, nil
}

// keep keeps the entry, or answers the one that was kept meanwhile.
func (s Surface) keep(ctx context.Context, tenant, subjectRequestID string, fresh entry) (entry, error) {
	var err error
	if fresh.RequestID, err = erasure.NewID(); err != nil {
		return entry{}, err //nolint:wrapcheck // it says it all
	}
	body, err := json.Marshal(fresh, json.Deterministic(true))
	if err != nil {
		return entry{}, fmt.Errorf("writing the index: %w", err)
	}
	err = s.Index.Create(ctx, stores.Document{ID: indexID(tenant, subjectRequestID), Tenant: tenant, Version: 1, Body: body})
	if errors.Is(err, stores.ErrDocumentExists) {
		return s.lookUp(ctx, tenant, subjectRequestID)
	}
	if err != nil {
		return entry{}, fmt.Errorf("keeping the index: %w", err)
	}
	return fresh, nil
}
