package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"
)

// Hurry shortens the end of a life.
func (l *Life) Hurry(softly, firmly time.Duration) { l.softly, l.firmly = softly, firmly }

// Routes are the patterns that are mounted, a prefix as one.
func (a *API) Routes() []string {
	var out []string
	_ = chi.Walk(a.router, func(_, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		out = append(out, route)
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out)
}
