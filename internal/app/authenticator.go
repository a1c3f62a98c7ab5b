package app

import (
	"context"
	"fmt"
	"time"

	"recount/internal/auth"
	"recount/internal/httpapi"
)

// auditDrain is how long the end of a process waits for the audit outbox.
const auditDrain = time.Second

func (r *running) authenticator(ctx context.Context) (httpapi.Authenticator, error) {
	if r.AuthMode == "off" {
		return auth.NewLoopback(r.ListenAddr)
	}
	callers, err := auth.ParseCallers(r.Callers)
	if err != nil {
		return nil, fmt.Errorf("ALLOWED_CALLER_SA:\n%w", err)
	}
	return auth.NewIDToken(ctx, auth.IDTokenConfig{Audience: r.AuthAudience, Callers: callers, CertsURL: r.AuthCertsURL, ListenAddr: r.ListenAddr})
}
