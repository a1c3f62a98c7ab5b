package app

import (
	"context"
	"time"

	"recount/internal/auth"
	"recount/internal/httpapi"
)

// auditDrain is how long the end of a process waits for the audit outbox.
const auditDrain = 700 * time.Millisecond

func (r *running) authenticator(ctx context.Context) (httpapi.Authenticator, error) {
	if r.AuthMode == "off" {
		return auth.NewLoopback(r.ListenAddr)
	}
	return auth.NewIDToken(ctx, auth.IDTokenConfig{Audience: r.AuthAudience, Callers: r.callers, CertsURL: r.AuthCertsURL, ListenAddr: r.ListenAddr})
}
