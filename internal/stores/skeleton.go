package stores

import (
	"context"
	"time"
)

// Skeletons says where rows stand that past erasures left: without content, with the source of what was erased, and when.
type Skeletons struct {
	Table    string // physical
	Tenant   string // column, "" where all rows are of one tenant
	Source   string // columns
	Ref      string
	ErasedAt string
	Reason   string // "" where there is none
}

// Skeleton is one such row. What it does not say is "" or zero.
type Skeleton struct {
	Tenant, Source, Ref, Reason string
	ErasedAt                    time.Time
}

// Archive is a backend that can read skeletons, page by page.
type Archive interface {
	// ReadSkeletons answers at most limit rows that say when they were erased, behind the cursor ("" is the start), in
	// a stable order, and the cursor of what follows ("" at the end). Errors: suppression.ErrCursor; a table or column
	// that is not there is *subject.Fault with store_not_found.
	ReadSkeletons(ctx context.Context, from Skeletons, cursor string, limit int) (rows []Skeleton, next string, err error)
}

// ParseInstant reads a date as people write it into tables: RFC 3339, SQL's date and time (UTC), or a date alone.
func ParseInstant(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", time.DateOnly} {
		if at, err := time.Parse(layout, text); err == nil && at.Year() > 0 && at.Year() < 9999 {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}
