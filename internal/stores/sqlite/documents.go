package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"recount/internal/stores"
)

const documentsTable = "recount_documents_"

// Documents is a collection of documents in an open file, in a table of its own. What an update replaced is gone from the
// files with the next delete or erasure of the file.
type Documents struct {
	db  *DB
	sql documentStatements
}

var _ stores.Documents = (*Documents)(nil)

type documentStatements struct{ create, get, exists, update, remove, list, awake, countDue string }

// Documents opens a collection, which is created when missing. Its name is of the form [a-z0-9_]{1,64}.
func (db *DB) Documents(ctx context.Context, collection string) (*Documents, error) {
	if !stores.IsDocumentCollection(collection) {
		return nil, errors.New("sqlite: the collection's name is not of the form [a-z0-9_]{1,64}")
	}
	if err := db.submit(ctx, &request{setup: documentsDDL(documentsTable + collection)}); err != nil {
		return nil, fmt.Errorf("the documents of %s: %w", collection, err)
	}
	return &Documents{db: db, sql: newDocumentStatements("main." + quote(documentsTable+collection))}, nil
}

// documentsDDL gives each question its index: none reads a row that it does not answer.
func documentsDDL(name string) []string {
	table := quote(name)
	return []string{
		"CREATE TABLE IF NOT EXISTS main." + table + ` (id TEXT NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, open INTEGER NOT NULL,
			due_us INTEGER, wake_us INTEGER, version INTEGER NOT NULL, body BLOB NOT NULL) STRICT`,
		"CREATE INDEX IF NOT EXISTS main." + quote(name+"_tenant") + " ON " + table + " (tenant, id)",
		"CREATE INDEX IF NOT EXISTS main." + quote(name+"_wake") + " ON " + table + " (wake_us, id) WHERE wake_us IS NOT NULL",
		"CREATE INDEX IF NOT EXISTS main." + quote(name+"_due") + " ON " + table + " (due_us) WHERE open = 1 AND due_us IS NOT NULL",
	}
}

func newDocumentStatements(table string) documentStatements {
	const columns = "id, tenant, open, due_us, wake_us, version, body"
	return documentStatements{
		create:   "INSERT INTO " + table + " (" + columns + ") VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6) ON CONFLICT DO NOTHING",
		get:      "SELECT " + columns + " FROM " + table + " WHERE id = ?1",
		exists:   "SELECT 1 FROM " + table + " WHERE id = ?1",
		update:   "UPDATE " + table + " SET tenant = ?2, open = ?3, due_us = ?4, wake_us = ?5, version = version + 1, body = ?6 WHERE id = ?1 AND version = ?7",
		remove:   "DELETE FROM " + table + " WHERE id = ?1",
		list:     "SELECT " + columns + " FROM " + table + " WHERE tenant = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3",
		awake:    "SELECT id FROM " + table + " WHERE wake_us <= ?1 ORDER BY wake_us, id LIMIT ?2",
		countDue: "SELECT count(*) FROM " + table + " WHERE open = 1 AND due_us < ?1",
	}
}

// behindEveryID is greater than any id.
const behindEveryID = "~"

// Create keeps stores.Documents. Errors: stores.ErrDocumentExists, stores.ErrDocumentForm.
func (d *Documents) Create(ctx context.Context, doc stores.Document) error {
	if err := doc.Check(); err != nil {
		return err //nolint:wrapcheck // it says it all
	}
	var created int64
	err := d.db.submit(ctx, &request{work: func(w *writer) (err error) {
		created, err = w.execRows(d.sql.create, documentValues(doc)...)
		return err
	}})
	if err == nil && created == 0 {
		return stores.ErrDocumentExists
	}
	return err
}

// Get keeps stores.Documents. Errors: stores.ErrDocumentNotFound.
func (d *Documents) Get(ctx context.Context, id string) (doc stores.Document, err error) {
	err = d.db.read(ctx, func(q querier) error {
		doc, err = scanDocument(q.QueryRowContext(ctx, d.sql.get, id))
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return stores.Document{}, stores.ErrDocumentNotFound
	}
	return doc, err
}

// Update keeps stores.Documents. Errors: stores.ErrDocumentStale, stores.ErrDocumentNotFound, stores.ErrDocumentForm.
func (d *Documents) Update(ctx context.Context, doc stores.Document) (stores.Document, error) {
	if !stores.IsDocumentID(doc.ID) {
		return stores.Document{}, stores.ErrDocumentNotFound
	}
	if err := doc.Check(); err != nil {
		return stores.Document{}, err //nolint:wrapcheck // it says it all
	}
	var refused error // kept out of the transaction, where it would undo what others asked
	err := d.db.submit(ctx, &request{work: func(w *writer) error {
		refused = nil
		n, err := w.execRows(d.sql.update, append(documentValues(doc), doc.Version)...)
		if err != nil || n > 0 {
			return err
		}
		refused = stores.ErrDocumentNotFound
		return w.each(d.sql.exists, []any{doc.ID}, func(*sql.Rows) error {
			refused = stores.ErrDocumentStale
			return nil
		})
	}})
	if err = errors.Join(err, refused); err != nil {
		return stores.Document{}, err
	}
	doc.Due, doc.Wake = stores.DocumentTime(doc.Due), stores.DocumentTime(doc.Wake)
	doc.Version++
	return doc, nil
}

// Delete keeps stores.Documents. An error behind the commit says that bytes may be left: another Delete clears them.
func (d *Documents) Delete(ctx context.Context, id string) error {
	r := &request{purges: true, work: func(w *writer) error { return w.exec(d.sql.remove, id) }}
	if err := d.db.submit(ctx, r); err != nil {
		return err
	}
	return r.purgeErr
}

// List keeps stores.Documents. A page ends early when its bodies are large. Errors: ErrCursor.
func (d *Documents) List(ctx context.Context, tenant, cursor string, limit int) (page []stores.Document, next string, err error) {
	below := cursor
	switch {
	case cursor == "":
		below = behindEveryID
	case !stores.IsDocumentID(cursor):
		return nil, "", ErrCursor
	}
	if limit <= 0 {
		return nil, "", nil
	}
	err = d.db.read(ctx, func(q querier) error {
		size := 0
		rows, err := q.QueryContext(ctx, d.sql.list, tenant, below, limit+1)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		defer rows.Close() //nolint:errcheck // Err below tells
		for rows.Next() {
			if len(page) == limit || size > pageBytes {
				next = page[len(page)-1].ID
				return nil
			}
			doc, err := scanDocument(rows)
			if err != nil {
				return err
			}
			page, size = append(page, doc), size+len(doc.Body)
		}
		return rows.Err() //nolint:wrapcheck // read names it
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// Awake keeps stores.Documents.
func (d *Documents) Awake(ctx context.Context, at time.Time, limit int) (ids []string, err error) {
	err = d.db.read(ctx, func(q querier) error {
		rows, err := q.QueryContext(ctx, d.sql.awake, at.UnixMicro(), max(limit, 0)) // SQLite takes a negative limit for none
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		defer rows.Close() //nolint:errcheck // Err below tells
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err //nolint:wrapcheck // read names it
			}
			ids = append(ids, id)
		}
		return rows.Err() //nolint:wrapcheck // read names it
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// CountDue keeps stores.Documents.
func (d *Documents) CountDue(ctx context.Context, before time.Time) (n int64, err error) {
	err = d.db.read(ctx, func(q querier) error {
		return q.QueryRowContext(ctx, d.sql.countDue, stores.DocumentBound(before).UnixMicro()).Scan(&n) //nolint:wrapcheck // read names it
	})
	return n, err
}

// documentValues are a document's columns, the version aside.
func documentValues(d stores.Document) []any {
	body := d.Body
	if body == nil {
		body = []byte{} // nil is NULL
	}
	open := 0
	if d.Open {
		open = 1
	}
	return []any{d.ID, d.Tenant, open, microsOf(d.Due), microsOf(d.Wake), body}
}

func microsOf(at time.Time) any {
	if at = stores.DocumentTime(at); at.IsZero() {
		return nil
	}
	return at.UnixMicro()
}

func scanDocument(row interface{ Scan(into ...any) error }) (d stores.Document, err error) {
	var due, wake sql.NullInt64
	if err := row.Scan(&d.ID, &d.Tenant, &d.Open, &due, &wake, &d.Version, &d.Body); err != nil {
		return d, err //nolint:wrapcheck // read names it
	}
	d.Due, d.Wake = timeOf(due), timeOf(wake)
	return d, nil
}

func timeOf(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return time.UnixMicro(micros.Int64).UTC()
}
