package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"recount/internal/auth/authtest"
	"recount/internal/fleet"
)

const (
	dsar        = "dsar@p.iam.gserviceaccount.com"
	importer    = "importer@p.iam.gserviceaccount.com"
	coordinator = "coordinator@p.iam.gserviceaccount.com"
)

// authenticated starts the fleet with really signed and really checked tokens.
func authenticated(t *testing.T, more ...func(*fleet.Options)) (*world, *authtest.Issuer) {
	t.Helper()
	issuer := authtest.Start(t, coordinator)
	env := map[string]string{
		"AUTH_MODE": "idtoken", "AUTH_CERTS_URL": issuer.CertsURL(), "GCE_METADATA_HOST": issuer.MetadataHost(),
		"INTENT_SUBJECT_SALT":  "a salt of sixteen bytes or more",
		"SUPPRESSION_KEY":      "a suppression secret of the tests",
		"ALLOWED_CALLER_SA":    dsar + "=read+erase@acme," + importer + "=write," + coordinator + "=erase",
		"CASCADE_PEER_TIMEOUT": "28s",
	}
	w := start(t, append(more, everywhere(env), func(o *fleet.Options) { o.Audience = true })...)
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
	expired := authtest.Claims(dsar, w.Coordinator.URL)
	expired["iat"], expired["exp"] = time.Now().Add(-2*time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()
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
		"a token that has expired":          {map[string]string{"Content-Type": "application/json", "Authorization": "Bearer " + issuer.Sign(expired)}, body, http.StatusUnauthorized},
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
	read := w.Ingest.URL + "/v1/intent/subject:access"
	if r := w.do(http.MethodPost, read, encode(t, body), w.as(issuer, importer, w.Ingest)); r.Code != http.StatusForbidden {
		t.Errorf("an importer reads: %d", r.Code)
	}
	if r := w.do(http.MethodPost, w.Ingest.URL+"/v1/intent/events", encode(t, record), w.as(issuer, dsar, w.Ingest)); r.Code != http.StatusForbidden {
		t.Errorf("a reader writes: %d", r.Code)
	}
	if r := w.do(http.MethodPost, read, encode(t, body), w.as(issuer, dsar, w.Ingest)); r.Code != http.StatusOK || *r.Answer.Receipts[0].Count != 1 {
		t.Errorf("a refused erasure erased: %d %s", r.Code, r.Body)
	}
	r := w.do(http.MethodPost, erase, encode(t, body), w.as(issuer, dsar, w.Coordinator))
	if r.Code != http.StatusOK || r.Answer.Status != "erased" || len(r.Answer.Receipts) != 7 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		if receipt.Store == "intent_events" && *receipt.Deleted != 1 {
			t.Errorf("%+v", receipt)
		}
	}
	if r := w.do(http.MethodGet, w.Ingest.URL+"/metrics", nil, jsonBody); r.Code != http.StatusUnauthorized {
		t.Errorf("metrics without a token: %d", r.Code)
	}
}

// TestACascadeSendsBothHeadersAndATokenForEachPeer looks at what a peer gets, from between it and the coordinator.
func TestACascadeSendsBothHeadersAndATokenForEachPeer(t *testing.T) {
	seen := make(chan http.Header, 1)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		w.WriteHeader(http.StatusForbidden)
	}))
	defer between.Close()
	w, issuer := authenticated(t, own("coordinator", map[string]string{"CASCADE_EXTRA_PEERS": "between=" + between.URL, "CASCADE_EXPECTED_STORES": "between=rows"}))
	body := map[string]string{"tenant_id": "acme", "identity_id": "alice"}
	r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase", encode(t, body), w.as(issuer, dsar, w.Coordinator))
	if got := statuses(r.Answer.Receipts); r.Code != http.StatusBadGateway || got["between/*"] != "failed peer_unauthorised" || got["graph/graph"] != "erased" {
		t.Errorf("%d %v", r.Code, got)
	}
	header := <-seen
	token := header.Get("Authorization")
	if token == "" || token != header.Get("X-Serverless-Authorization") {
		t.Errorf("the headers differ: %v", header)
	}
	var claims jwt.MapClaims
	if _, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(token, "Bearer "), &claims); err != nil {
		t.Fatal(err)
	}
	if claims["aud"] != between.URL || claims["email"] != coordinator {
		t.Errorf("%v", claims)
	}
}

func TestWithoutATokenServerAPeerIsAFailedReceiptAndTheRestIsErased(t *testing.T) {
	w, issuer := authenticated(t)
	body := map[string]string{"tenant_id": "acme", "identity_id": "alice"}
	if r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:count", encode(t, body), w.as(issuer, dsar, w.Coordinator)); r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body) // the keys are known from here on
	}
	issuer.Answer(http.StatusNotFound)
	r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase", encode(t, body), w.as(issuer, dsar, w.Coordinator))
	got := statuses(r.Answer.Receipts)
	if r.Code != http.StatusBadGateway || got["scoring/intent_scores"] != "erased" || !strings.HasPrefix(got["ingest/*"], "failed peer_") {
		t.Errorf("%d %v", r.Code, got)
	}
}
