package e2e

import (
	"net/http"
	"strings"
	"testing"

	"recount/internal/auth/authtest"
	"recount/internal/fleet"
)

const (
	dsar        = "dsar@p.iam.gserviceaccount.com"
	importer    = "importer@p.iam.gserviceaccount.com"
	coordinator = "coordinator@p.iam.gserviceaccount.com"
)

// authenticated starts the fleet with really signed and really checked tokens.
func authenticated(t *testing.T) (*world, *authtest.Issuer) {
	t.Helper()
	issuer := authtest.Start(t, coordinator)
	env := map[string]string{
		"AUTH_MODE": "idtoken", "AUTH_CERTS_URL": issuer.CertsURL(), "GCE_METADATA_HOST": issuer.MetadataHost(),
		"INTENT_SUBJECT_SALT":  "a salt of sixteen bytes or more",
		"ALLOWED_CALLER_SA":    dsar + "=read+erase@acme," + importer + "=write," + coordinator + "=erase",
		"CASCADE_PEER_TIMEOUT": "28s",
	}
	w := start(t, everywhere(env), func(o *fleet.Options) { o.Audience = true })
	return w, issuer
}

func (w *world) as(issuer *authtest.Issuer, account string, to *fleet.Service) map[string]string {
	return map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + issuer.Token(account, to.URL)}
}

func TestACascadeWithRealTokensErasesEverywhereAndForgedOnesGetNowhere(t *testing.T) {
	w, issuer := authenticated(t)
	record := map[string]any{
		"tenant_id": "acme", "identity_id": "alice", "source": "s", "source_ref": "1", "consent_basis": "c", "event_type": "v",
		"occurred_at": "2026-11-01T10:00:00Z",
	}
	if r := w.do(http.MethodPost, w.Ingest.URL+"/v1/intent/events", encode(t, record), w.as(issuer, importer, w.Ingest)); r.Code != http.StatusOK {
		t.Fatalf("the importer: %d %s", r.Code, r.Body)
	}
	body := map[string]string{"tenant_id": "acme", "identity_id": "alice"}
	erase := w.Coordinator.URL + "/v1/intent/subject:erase"
	stripped := w.as(issuer, dsar, w.Coordinator)
	at := strings.LastIndex(stripped["Authorization"], ".")
	stripped["Authorization"] = stripped["Authorization"][:at+1] + "SIGNATURE_REMOVED_BY_GOOGLE"
	serverless := w.as(issuer, dsar, w.Coordinator)
	serverless["X-Serverless-Authorization"] = serverless["Authorization"]
	delete(serverless, "Authorization")
	for name, refused := range map[string]struct {
		header map[string]string
		body   map[string]string
		want   int
	}{
		"no token":                          {jsonBody, body, http.StatusUnauthorized},
		"a token for another cell":          {w.as(issuer, dsar, w.Ingest), body, http.StatusUnauthorized},
		"a token whose signature was cut":   {stripped, body, http.StatusUnauthorized},
		"a token in the platform's header":  {serverless, body, http.StatusUnauthorized},
		"an account that nobody listed":     {w.as(issuer, "eve@p.iam.gserviceaccount.com", w.Coordinator), body, http.StatusForbidden},
		"an importer":                       {w.as(issuer, importer, w.Coordinator), body, http.StatusForbidden},
		"a tenant that isn't the caller's":  {w.as(issuer, dsar, w.Coordinator), map[string]string{"tenant_id": "globex", "identity_id": "alice"}, http.StatusForbidden},
		"no role, and a body that's broken": {w.as(issuer, importer, w.Coordinator), map[string]string{"x": ""}, http.StatusForbidden},
	} {
		if r := w.do(http.MethodPost, erase, encode(t, refused.body), refused.header); r.Code != refused.want {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
	}
	r := w.do(http.MethodPost, erase, encode(t, body), w.as(issuer, dsar, w.Coordinator))
	if r.Code != http.StatusOK || r.Answer.Status != "erased" {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	if r := w.do(http.MethodGet, w.Ingest.URL+"/metrics", nil, jsonBody); r.Code != http.StatusUnauthorized {
		t.Errorf("metrics without a token: %d", r.Code)
	}
}
