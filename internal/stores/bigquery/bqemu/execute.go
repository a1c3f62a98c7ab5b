package bqemu

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	bq "google.golang.org/api/bigquery/v2"
)

// result is what a statement answered.
type result struct {
	schema   *bq.TableSchema
	rows     []*bq.TableRow
	affected int64
}

// refused is a DML statement over rows in the streaming buffer.
type refused struct{ bq.ErrorProto }

func (r *refused) Error() string { return r.Message }

// Exec runs one statement in the first dataset. Rows that it inserts are not in the streaming buffer.
func (s *Server) Exec(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	off := false
	j := &job{ref: &bq.JobReference{ProjectId: s.opts.Project, Location: s.opts.Location}}
	j.config = &bq.JobConfiguration{Query: &bq.JobConfigurationQuery{
		Query: text, UseQueryCache: &off,
		DefaultDataset: &bq.DatasetReference{ProjectId: s.opts.Project, DatasetId: s.opts.Dataset},
	}}
	_, err := s.execute(j)
	return err
}

// execute runs a job's statement, with the lock held.
func (s *Server) execute(j *job) (*result, error) {
	q := j.config.Query
	if kind, _ := glance(q.Query); kind == "ddl" {
		path, ifNotExists, meta, err := createTable(q.Query)
		if err != nil {
			return nil, err
		}
		full := s.resolve(j, path)
		if ifNotExists && s.tables[full] != nil {
			return &result{}, nil
		}
		return &result{}, s.addTable(full[:strings.LastIndexByte(full, '.')], meta)
	}
	args, types, err := s.bind(q.QueryParameters)
	if err != nil {
		return nil, err
	}
	tr := &translator{params: types, find: func(path []string) (*table, error) { return s.lookup(j, path) }}
	st, err := tr.translate(q.Query)
	if err != nil {
		return nil, err
	}
	for _, t := range st.tables {
		if st.kind == "insert" {
			continue
		}
		if err := needsPartitionFilter(t, q.Query); err != nil {
			return nil, err
		}
	}
	if st.kind == "select" {
		return s.selectRows(st, args, q)
	}
	if st.kind == "delete" {
		if err := s.inBuffer(st, args); err != nil {
			return nil, err
		}
	}
	res, err := s.db.Exec(st.sql, args...) //nolint:noctx // in memory
	if err != nil {
		return nil, invalid("%v", err)
	}
	n, err := res.RowsAffected()
	return &result{affected: n}, err //nolint:wrapcheck // answered as it is
}

func (s *Server) resolve(j *job, path []string) string {
	switch d := j.config.Query.DefaultDataset; {
	case len(path) == 1 && d != nil:
		return key(d.ProjectId, d.DatasetId, path[0])
	case len(path) == 2:
		return key(j.ref.ProjectId, path[0], path[1])
	default:
		return key(path...)
	}
}

// lookup finds a table where the job runs: a dataset elsewhere is not found, however right its name.
func (s *Server) lookup(j *job, path []string) (*table, error) {
	k := s.resolve(j, path)
	t := s.tables[k]
	if t == nil {
		return nil, notFound("Table", k+" was not found in location "+j.ref.Location)
	}
	if !strings.EqualFold(t.meta.Location, j.ref.Location) {
		return nil, notFound("Dataset", k+" was not found in location "+j.ref.Location)
	}
	return t, nil
}

func needsPartitionFilter(t *table, text string) error {
	if !t.meta.RequirePartitionFilter {
		return nil
	}
	column := "_PARTITIONTIME"
	if p := t.meta.TimePartitioning; p != nil && p.Field != "" {
		column = p.Field
	}
	if p := t.meta.RangePartitioning; p != nil {
		column = p.Field
	}
	if strings.Contains(text, column) {
		return nil
	}
	return &apiError{
		code: http.StatusBadRequest, reason: "invalidQuery",
		message: "Cannot query over table '" + t.key + "' without a filter over column(s) '" + column + "' that can be used for partition elimination",
	}
}

// inBuffer refuses a DELETE over rows that are still in the streaming buffer.
func (s *Server) inBuffer(st *translation, args []any) error {
	t := st.tables[0]
	where := "(" + st.where + ")"
	if s.streaming.Whole {
		where = "(TRUE OR " + st.where + ")" // the arguments are still used
	}
	var n int
	q := "SELECT COUNT(*) FROM " + quote(t.key) + " AS " + orElse(st.alias, "t") + " WHERE " + where + " AND _streamed > " + strconv.FormatInt(s.cutoff(), 10)
	if err := s.db.QueryRow(q, args...).Scan(&n); err != nil { //nolint:noctx // in memory
		return invalid("%v", err)
	}
	if n == 0 {
		return nil
	}
	return &refused{bq.ErrorProto{
		Reason:  orElse(s.streaming.Reason, "invalidQuery"),
		Message: "UPDATE or DELETE statement over table " + t.key + " would affect rows in the streaming buffer, which is not supported",
	}}
}

// selectRows runs a SELECT. Its cache is as bad as a cache can be: it never looks whether a table has changed.
func (s *Server) selectRows(st *translation, args []any, q *bq.JobConfigurationQuery) (*result, error) {
	params, err := json.Marshal(q.QueryParameters)
	if err != nil {
		return nil, invalid("%v", err)
	}
	cacheKey := st.sql + string(params)
	if hit := s.cache[cacheKey]; hit != nil && (q.UseQueryCache == nil || *q.UseQueryCache) {
		return hit, nil
	}
	rows, err := s.db.Query(st.sql, args...) //nolint:noctx // in memory
	if err != nil {
		return nil, invalid("%v", err)
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, invalid("%v", err)
	}
	var values [][]any
	for rows.Next() {
		row := make([]any, len(names))
		into := make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, invalid("%v", err)
		}
		values = append(values, row)
	}
	if err := rows.Err(); err != nil {
		return nil, invalid("%v", err)
	}
	res := &result{schema: schemaOf(st, names, values)}
	for _, row := range values {
		res.rows = append(res.rows, encodeRow(res.schema.Fields, row))
	}
	s.cache[cacheKey] = res
	return res, nil
}

// schemaOf takes a column's type from the tables that the statement names, or else from the values.
func schemaOf(st *translation, names []string, values [][]any) *bq.TableSchema {
	out := &bq.TableSchema{}
	for i, name := range names {
		f := &bq.TableFieldSchema{Name: name, Type: "INTEGER", Mode: "NULLABLE"}
		for _, row := range values {
			switch row[i].(type) {
			case string:
				f.Type = "STRING"
			case float64:
				f.Type = "FLOAT"
			}
		}
		for _, t := range st.tables {
			if known := t.field(name); known != nil {
				f = known
			}
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}

func encodeRow(fields []*bq.TableFieldSchema, row []any) *bq.TableRow {
	out := &bq.TableRow{}
	for i, f := range fields {
		v := row[i]
		text, isText := v.(string)
		if v == nil && f.Mode == "REPEATED" { // there is no NULL list
			out.F = append(out.F, &bq.TableCell{V: []any{}})
			continue
		}
		if nested := f.Mode == "REPEATED" || f.Fields != nil; nested && isText {
			var decoded any
			if json.Unmarshal([]byte(text), &decoded) == nil {
				out.F = append(out.F, &bq.TableCell{V: nest(f, decoded, f.Mode == "REPEATED")})
				continue
			}
		}
		out.F = append(out.F, &bq.TableCell{V: encodeValue(f, v)})
	}
	return out
}

// nest puts a JSON value into the wire's {"v":…} and {"f":[…]}.
func nest(f *bq.TableFieldSchema, v any, repeated bool) any {
	switch v := v.(type) {
	case []any:
		if !repeated {
			return nil
		}
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, map[string]any{"v": nest(f, e, false)})
		}
		return out
	case map[string]any:
		var cells []any
		for _, inner := range f.Fields {
			cells = append(cells, map[string]any{"v": nest(inner, v[inner.Name], inner.Mode == "REPEATED")})
		}
		return map[string]any{"f": cells}
	default:
		return encodeValue(f, v)
	}
}

func encodeValue(f *bq.TableFieldSchema, v any) any {
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		if f.Type == "BOOLEAN" || f.Type == "BOOL" {
			return strconv.FormatBool(v != 0)
		}
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

func affinity(f *bq.TableFieldSchema) string {
	if f.Mode == "REPEATED" {
		return "TEXT"
	}
	switch f.Type {
	case "INTEGER", "INT64", "BOOLEAN", "BOOL", "TIMESTAMP":
		return "INTEGER"
	case "FLOAT", "FLOAT64":
		return "REAL"
	default:
		return "TEXT"
	}
}

// bind turns query parameters into SQLite's. An array becomes a temporary table, see listOf.
func (s *Server) bind(params []*bq.QueryParameter) ([]any, map[string]*bq.QueryParameterType, error) {
	var args []any
	types := map[string]*bq.QueryParameterType{}
	for _, p := range params {
		if p.Name == "" || p.ParameterType == nil || p.ParameterValue == nil {
			return nil, nil, invalid("only named parameters are emulated")
		}
		types[p.Name] = p.ParameterType
		v, err := paramValue(p.ParameterType, p.ParameterValue)
		if err != nil {
			return nil, nil, err
		}
		if p.ParameterType.ArrayType == nil {
			args = append(args, sql.Named(p.Name, v))
			continue
		}
		if err := s.list(p, v); err != nil {
			return nil, nil, err
		}
	}
	return args, types, nil
}

// listOf is the temporary table of an array parameter: (key, value), or (key, value, one column per field of a STRUCT).
func listOf(param string) string { return "@" + param }

func (s *Server) list(p *bq.QueryParameter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return invalid("%v", err)
	}
	columns := "key, value"
	for _, f := range p.ParameterType.ArrayType.StructTypes {
		columns += ", json_extract(value, " + literal("$."+f.Name) + ") AS " + quote(f.Name)
	}
	name := quote(listOf(p.Name))
	if _, err := s.db.Exec("DROP TABLE IF EXISTS temp." + name); err != nil { //nolint:noctx // in memory
		return invalid("%v", err)
	}
	if _, err := s.db.Exec("CREATE TEMP TABLE "+name+" AS SELECT "+columns+" FROM json_each(?)", string(text)); err != nil { //nolint:noctx // in memory
		return invalid("%v", err)
	}
	return nil
}

func paramValue(t *bq.QueryParameterType, v *bq.QueryParameterValue) (any, error) {
	switch t.Type {
	case "STRING":
		return v.Value, nil
	case "INT64":
		return strconv.ParseInt(v.Value, 10, 64)
	case "FLOAT64":
		return strconv.ParseFloat(v.Value, 64)
	case "BOOL":
		return strconv.ParseBool(v.Value)
	case "TIMESTAMP":
		return parseTimestamp(v.Value)
	case "ARRAY":
		out := make([]any, 0, len(v.ArrayValues))
		for _, e := range v.ArrayValues {
			x, err := paramValue(t.ArrayType, e)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		return out, nil
	case "STRUCT":
		out := map[string]any{}
		for _, f := range t.StructTypes {
			field := v.StructValues[f.Name]
			x, err := paramValue(f.Type, &field)
			if err != nil {
				return nil, err
			}
			out[f.Name] = x
		}
		return out, nil
	default:
		return nil, invalid("parameters of type %s are not emulated", t.Type)
	}
}
