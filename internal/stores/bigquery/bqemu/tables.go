package bqemu

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	bq "google.golang.org/api/bigquery/v2"
)

// table is a table's metadata. Its rows are in SQLite, under the same key.
type table struct {
	key      string // project.dataset.table
	meta     *bq.Table
	policies []*bq.RowAccessPolicy
}

// inserted remembers an insertId, as the live service does for about a minute.
type inserted struct {
	row int64
	at  time.Time
}

const insertIDMemory = time.Minute

func (t *table) field(name string) *bq.TableFieldSchema {
	if t.meta.Schema == nil {
		return nil
	}
	i := slices.IndexFunc(t.meta.Schema.Fields, func(f *bq.TableFieldSchema) bool { return strings.EqualFold(f.Name, name) })
	if i < 0 {
		return nil
	}
	return t.meta.Schema.Fields[i]
}

func (s *Server) addDataset(project string, d *bq.Dataset) {
	if d.MaxTimeTravelHours == 0 {
		d.MaxTimeTravelHours = 168
	}
	s.datasets[key(project, d.DatasetReference.DatasetId)] = d
}

func (s *Server) datasetsInsert(r *http.Request) (any, error) {
	d, err := decode[bq.Dataset](r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.Location = orElse(d.Location, "US")
	s.addDataset(r.PathValue("project"), d)
	return d, nil
}

func (s *Server) datasetsGet(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := key(r.PathValue("project"), r.PathValue("dataset"))
	if d, ok := s.datasets[name]; ok {
		return d, nil
	}
	return nil, notFound("Dataset", name)
}

// SetTimeTravel sets the first dataset's time travel window, in hours.
func (s *Server) SetTimeTravel(hours int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.datasets[key(s.opts.Project, s.opts.Dataset)].MaxTimeTravelHours = hours
}

func (s *Server) tablesList(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := key(r.PathValue("project"), r.PathValue("dataset"), "")
	var out bq.TableList
	for k, t := range s.tables {
		if strings.HasPrefix(k, prefix) {
			out.Tables = append(out.Tables, &bq.TableListTables{Id: k, TableReference: t.meta.TableReference, Type: t.meta.Type})
		}
	}
	slices.SortFunc(out.Tables, func(a, b *bq.TableListTables) int { return strings.Compare(a.Id, b.Id) })
	return out, nil
}

func (s *Server) tablesInsert(r *http.Request) (any, error) {
	meta, err := decode[bq.Table](r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return meta, s.addTable(key(r.PathValue("project"), r.PathValue("dataset")), meta)
}

// CreateTable makes a table of the first dataset from its metadata, of which the id and the schema are enough.
func (s *Server) CreateTable(meta *bq.Table) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addTable(key(s.opts.Project, s.opts.Dataset), meta)
}

// addTable is called with the lock held.
func (s *Server) addTable(dataset string, meta *bq.Table) error {
	d := s.datasets[dataset]
	if d == nil {
		return notFound("Dataset", dataset)
	}
	ref := meta.TableReference
	if ref == nil || ref.TableId == "" {
		return invalid("a table needs a tableReference")
	}
	ref.ProjectId, ref.DatasetId, _ = strings.Cut(dataset, ".")
	k := key(dataset, ref.TableId)
	if s.tables[k] != nil {
		return &apiError{code: http.StatusConflict, reason: "duplicate", message: "Already Exists: Table " + k}
	}
	if meta.Type == "" {
		meta.Type = "TABLE"
	}
	meta.Id, meta.Location = k, d.Location
	t := &table{key: k, meta: meta}
	columns := []string{`"_row" INTEGER PRIMARY KEY AUTOINCREMENT`, `"_streamed" INTEGER`, `"_PARTITIONTIME" INTEGER`}
	for _, f := range fieldsOf(meta) {
		columns = append(columns, quote(f.Name)+" "+affinity(f))
	}
	if _, err := s.db.Exec("CREATE TABLE " + quote(k) + " (" + strings.Join(columns, ", ") + ")"); err != nil { //nolint:noctx,gosec // in memory, and every name is quoted
		return invalid("%v", err)
	}
	s.tables[k] = t
	return nil
}

func fieldsOf(meta *bq.Table) []*bq.TableFieldSchema {
	if meta.Schema == nil {
		return nil
	}
	return meta.Schema.Fields
}

func (s *Server) find(r *http.Request) (*table, error) {
	k := key(r.PathValue("project"), r.PathValue("dataset"), r.PathValue("table"))
	if t := s.tables[k]; t != nil {
		return t, nil
	}
	return nil, notFound("Table", k)
}

func (s *Server) tablesGet(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r)
	if err != nil {
		return nil, err
	}
	meta := *t.meta
	var rows, oldest int64
	q := "SELECT COUNT(*), COALESCE(MIN(_streamed), 0) FROM " + quote(t.key) + " WHERE _streamed > ?"
	if err := s.db.QueryRow(q, s.cutoff()).Scan(&rows, &oldest); err != nil { //nolint:noctx // in memory
		return nil, err //nolint:wrapcheck // answered as it is
	}
	if rows > 0 {
		meta.StreamingBuffer = &bq.Streamingbuffer{EstimatedRows: uint64(rows), OldestEntryTime: uint64(oldest / 1000)} //nolint:gosec // never negative
	}
	return &meta, nil
}

// cutoff is the moment, in microseconds, after which a streamed row is still in the buffer.
func (s *Server) cutoff() int64 {
	now := s.now().UnixMicro()
	if s.streaming.Window <= 0 {
		return now + 1<<40
	}
	return now - s.streaming.Window.Microseconds()
}

func (s *Server) tablesDelete(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.drop(t)
}

func (s *Server) drop(t *table) error {
	delete(s.tables, t.key)
	_, err := s.db.Exec("DROP TABLE " + quote(t.key)) //nolint:noctx // in memory
	return err                                        //nolint:wrapcheck // answered as it is
}

// DropTable drops a table of the first dataset.
func (s *Server) DropTable(id string) error {
	return s.change(id, s.drop)
}

// SetRowPolicies sets the row access policies that a table of the first dataset lists. They hide nothing here: the
// adapter has to refuse the table when it sees them.
func (s *Server) SetRowPolicies(id string, filters ...string) error {
	return s.change(id, func(t *table) error {
		t.policies = nil
		for i, f := range filters {
			ref := &bq.RowAccessPolicyReference{TableId: id, PolicyId: fmt.Sprintf("policy_%d", i)}
			t.policies = append(t.policies, &bq.RowAccessPolicy{RowAccessPolicyReference: ref, FilterPredicate: f})
		}
		return nil
	})
}

// ChangeTable changes the metadata of a table of the first dataset.
func (s *Server) ChangeTable(id string, change func(*bq.Table)) error {
	return s.change(id, func(t *table) error {
		change(t.meta)
		return nil
	})
}

func (s *Server) change(id string, do func(*table) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(s.opts.Project, s.opts.Dataset, id)
	if t := s.tables[k]; t != nil {
		return do(t)
	}
	return notFound("Table", k)
}

func (s *Server) rowPolicies(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r)
	if err != nil {
		return nil, err
	}
	return bq.ListRowAccessPoliciesResponse{RowAccessPolicies: t.policies}, nil
}

// insertAll takes all rows or, when one does not fit the schema, none, as the live service does by default.
func (s *Server) insertAll(r *http.Request) (any, error) {
	req, err := decode[bq.TableDataInsertAllRequest](r)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.find(r)
	if err != nil {
		return nil, err
	}
	partial := s.takeLocked(AtInsertRows, target{table: t.meta.TableReference.TableId})
	var bad []*bq.TableDataInsertAllResponseInsertErrors
	values := make([][]any, len(req.Rows))
	for i, row := range req.Rows {
		if values[i], err = storedRow(t, row.Json); err != nil {
			bad = append(bad, rowError(i, "invalid", err.Error()))
		}
	}
	if len(bad) > 0 {
		for i := range req.Rows {
			if !slices.ContainsFunc(bad, func(e *bq.TableDataInsertAllResponseInsertErrors) bool { return e.Index == int64(i) }) {
				bad = append(bad, rowError(i, "stopped", ""))
			}
		}
		return bq.TableDataInsertAllResponse{InsertErrors: bad}, nil
	}
	for i, row := range req.Rows {
		if partial != nil && slices.Contains(partial.Rows, i) {
			bad = append(bad, rowError(i, partial.Reason, partial.Message))
			continue
		}
		if err := s.stream(t, row.InsertId, values[i]); err != nil {
			return nil, err
		}
	}
	return bq.TableDataInsertAllResponse{InsertErrors: bad}, nil
}

func rowError(i int, reason, message string) *bq.TableDataInsertAllResponseInsertErrors {
	return &bq.TableDataInsertAllResponseInsertErrors{Index: int64(i), Errors: []*bq.ErrorProto{{Reason: reason, Message: message}}}
}

// stream writes one row, unless its insertId was seen within the last minute and the row is still there.
func (s *Server) stream(t *table, insertID string, values []any) error {
	now := s.now()
	memory := t.key + "\x00" + insertID
	if seen, ok := s.insertIDs[memory]; ok && insertID != "" && now.Sub(seen.at) < insertIDMemory {
		var n int
		if err := s.db.QueryRow("SELECT COUNT(*) FROM "+quote(t.key)+" WHERE _row = ?", seen.row).Scan(&n); err != nil || n > 0 { //nolint:noctx // in memory
			return err //nolint:wrapcheck // answered as it is
		}
	}
	marks := strings.Repeat(", ?", len(values))
	res, err := s.db.Exec("INSERT INTO "+quote(t.key)+" VALUES (NULL, ?, NULL"+marks+")", append([]any{now.UnixMicro()}, values...)...) //nolint:noctx,gosec // in memory, and every name is quoted
	if err != nil {
		return err //nolint:wrapcheck // answered as it is
	}
	id, err := res.LastInsertId()
	s.insertIDs[memory] = inserted{row: id, at: now}
	return err //nolint:wrapcheck // answered as it is
}

// storedRow checks a JSON row against the schema and answers the values to store, in the schema's order.
func storedRow(t *table, row map[string]bq.JsonValue) ([]any, error) {
	for name := range row {
		if t.field(name) == nil {
			return nil, fmt.Errorf("no such field: %s", name)
		}
	}
	fields := fieldsOf(t.meta)
	values := make([]any, len(fields))
	for i, f := range fields {
		var v any
		for name, given := range row {
			if strings.EqualFold(name, f.Name) {
				v = given
			}
		}
		if v == nil {
			if f.Mode == "REQUIRED" {
				return nil, fmt.Errorf("missing required field: %s", f.Name)
			}
			continue
		}
		stored, err := storedValue(f, v)
		if err != nil {
			return nil, err
		}
		values[i] = stored
	}
	return values, nil
}

func storedValue(f *bq.TableFieldSchema, v any) (any, error) {
	wrong := fmt.Errorf("this field does not hold a %s: %s", f.Type, f.Name)
	if f.Mode == "REPEATED" || f.Type == "RECORD" || f.Type == "STRUCT" {
		text, err := json.Marshal(v)
		return string(text), err //nolint:wrapcheck // answered as it is
	}
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	switch f.Type {
	case "INTEGER", "INT64":
		n, err := json.Number(orElse(text, number.String())).Int64()
		if err != nil {
			return nil, wrong
		}
		return n, nil
	case "FLOAT", "FLOAT64":
		n, err := json.Number(orElse(text, number.String())).Float64()
		if err != nil {
			return nil, wrong
		}
		return n, nil
	case "BOOLEAN", "BOOL":
		b, ok := v.(bool)
		if !ok {
			return nil, wrong
		}
		return b, nil
	case "TIMESTAMP":
		micros, err := parseTimestamp(text)
		if err != nil {
			return nil, wrong
		}
		return micros, nil
	default:
		if !isText || isNumber {
			return nil, wrong
		}
		return text, nil
	}
}
