package firestore

import (
	"context"
	"errors"
	"iter"
	"strings"

	fs "cloud.google.com/go/firestore"

	"recount/internal/stores"
	"recount/internal/subject"
)

// pageBytes is about where a page stops early.
const pageBytes = 4 << 20

var errLimit = errors.New("a page holds at least one row")

// Read pages through the subject's documents in order of their names, each followed by those below it. A row of an
// owner's collection also has its path below the database under NameColumn.
func (c *Collection) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	if limit < 1 {
		return subject.Page{}, errLimit
	}
	after := ""
	if cursor != "" {
		var err error
		if after, err = c.client.cursors.open(c.table.Store, s, cursor); err != nil {
			return subject.Page{}, err
		}
	}
	var page subject.Page
	size := 0
	for doc, err := range c.rows(ctx, s, after) {
		if err != nil {
			return subject.Page{}, failed(ctx, err, subject.ReasonReadFailed)
		}
		if len(page.Rows) == limit || size >= pageBytes {
			page.Next = c.client.cursors.seal(c.table.Store, s, after)
			return page, nil
		}
		row, n, err := c.show(doc)
		if err != nil {
			return subject.Page{}, err
		}
		page.Rows = append(page.Rows, row)
		size += n
		after = c.client.relative(doc.Ref.Path)
	}
	return page, nil
}

// rows lists the subject's documents and what is below them, after the document of that path ("" is the start).
func (c *Collection) rows(ctx context.Context, s subject.Subject, after string) iter.Seq2[*fs.DocumentSnapshot, error] {
	from := ""
	if after != "" {
		from, _, _ = strings.Cut(strings.TrimPrefix(after, c.table.Name+"/"), "/")
	}
	return func(yield func(*fs.DocumentSnapshot, error) bool) {
		for m, err := range c.matches(ctx, s.Tenant(), []string{s.Identity()}, from, true) {
			if err != nil {
				yield(nil, err)
				return
			}
			resumed := m.ref.ID == from
			if m.doc != nil && !resumed && !yield(m.doc, nil) {
				return
			}
			if c.ours() {
				continue
			}
			start := ""
			if path := c.client.docs.Doc(after); resumed && path.Path != m.ref.Path {
				start = path.Path
			}
			for doc, err := range c.client.below(ctx, m.ref, start) {
				if !yield(doc, err) || err != nil {
					return
				}
			}
		}
	}
}

// show turns a document into a row, and says about how large it is.
func (c *Collection) show(doc *fs.DocumentSnapshot) (row map[string]any, size int, err error) {
	if c.ours() {
		return c.showColumns(doc)
	}
	row, size, err = shownMap(doc.Data())
	if err != nil {
		return nil, 0, err
	}
	path := c.client.relative(doc.Ref.Path)
	row[NameColumn] = path
	return row, size + len(path), nil
}

// showColumns shows the table's columns alone, JSON as a value.
func (c *Collection) showColumns(doc *fs.DocumentSnapshot) (row map[string]any, size int, err error) {
	row = make(map[string]any, len(c.table.Columns))
	fields := doc.Data()
	for _, column := range c.table.Columns {
		value := fields[column.Name]
		if text, ok := value.(string); ok && column.Kind == stores.JSON {
			if value, err = parseJSON(text); err != nil {
				return nil, 0, &subject.Fault{Reason: subject.ReasonReadFailed, Cause: err}
			}
			row[column.Name] = value
			size += len(text)
			continue
		}
		shown, n, err := shownValue(value)
		if err != nil {
			return nil, 0, err
		}
		row[column.Name] = shown
		size += len(column.Name) + n
	}
	return row, size, nil
}
