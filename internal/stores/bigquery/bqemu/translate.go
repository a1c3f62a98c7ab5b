package bqemu

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
	bq "google.golang.org/api/bigquery/v2"
	"modernc.org/sqlite"
)

var registerFold = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction("normalize_and_casefold", 1,
		func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
			text, ok := args[0].(string)
			if !ok {
				return nil, nil //nolint:nilnil // NULL folds to NULL
			}
			return norm.NFC.String(cases.Fold().String(norm.NFD.String(text))), nil
		})
})

func openDB() (*sql.DB, error) {
	if err := registerFold(); err != nil {
		return nil, fmt.Errorf("bqemu: %w", err)
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("bqemu: %w", err)
	}
	db.SetMaxOpenConns(1) // one connection is one database in memory
	db.SetConnMaxLifetime(0)
	return db, nil
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// token is a piece of a statement. Of a quoted one, text is what the quotes hold.
type token struct {
	kind byte // 'w'ord, back'q'uoted, 's'tring, 'n'umber, '@' parameter, or the mark itself
	text string
}

func (t token) is(word string) bool { return t.kind == 'w' && strings.EqualFold(t.text, word) }

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// tokens takes a statement to pieces. Comments are dropped.
func tokens(text string) ([]token, error) {
	var out []token
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "--"):
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return out, nil
			}
			i += end
		case c == '`' || c == '\'' || c == '"':
			inner, n, err := quoted(text[i:])
			if err != nil {
				return nil, err
			}
			kind := byte('s')
			if c == '`' {
				kind = 'q'
			}
			out, i = append(out, token{kind, inner}), i+n
		case isWordByte(c) || c == '@':
			n := 1
			for i+n < len(text) && isWordByte(text[i+n]) {
				n++
			}
			kind, word := byte('w'), text[i:i+n]
			if c == '@' {
				kind, word = '@', word[1:]
			} else if c >= '0' && c <= '9' {
				kind = 'n'
			}
			out, i = append(out, token{kind, word}), i+n
		case i+1 < len(text) && text[i+1] == '=' && strings.IndexByte("!<>", c) >= 0:
			out, i = append(out, token{'=', text[i : i+2]}), i+2
		default:
			out, i = append(out, token{c, string(c)}), i+1
		}
	}
	return out, nil
}

// quoted reads a quoted piece at the start of text, and answers what it holds and how long it is.
func quoted(text string) (string, int, error) {
	var inner strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == text[0]:
			return inner.String(), i + 1, nil
		case text[i] == '\\' && i+1 < len(text):
			i++
			inner.WriteByte(text[i])
		default:
			inner.WriteByte(text[i])
		}
	}
	return "", 0, invalid("Syntax error: Unclosed literal")
}

// glance answers a statement's kind and the first table that it names, as far as they can be told without a catalog.
func glance(text string) (kind, tableID string) {
	all, err := tokens(text)
	if err != nil || len(all) == 0 {
		return "", ""
	}
	kind = kindOf(all)
	for i, t := range all[:len(all)-1] {
		if names := t.is("FROM") || t.is("JOIN") || t.is("INTO"); !names || all[i+1].is("UNNEST") || all[i+1].kind == '(' {
			continue
		}
		path, _ := pathAt(all, i+1)
		return kind, path[len(path)-1]
	}
	return kind, ""
}

func kindOf(all []token) string {
	switch {
	case all[0].is("DELETE"):
		return "delete"
	case all[0].is("INSERT"):
		return "insert"
	case all[0].is("CREATE"):
		return "ddl"
	default:
		return "select"
	}
}

// pathAt reads the dotted path at i, and answers its parts and where it ends.
func pathAt(all []token, i int) ([]string, int) {
	var parts []string
	for {
		parts = append(parts, strings.Split(all[i].text, ".")...)
		if i+2 >= len(all) || all[i+1].kind != '.' {
			return parts, i + 1
		}
		i += 2
	}
}

// translation is a statement in SQLite's words.
type translation struct {
	kind   string
	sql    string
	where  string // of a DELETE: what follows WHERE
	alias  string
	tables []*table
}

// translator rewrites one statement.
type translator struct {
	find    func(path []string) (*table, error)
	params  map[string]*bq.QueryParameterType
	aliases map[string]*table
	out     translation
}

// translate rewrites a SELECT, a DELETE or an INSERT.
func (tr *translator) translate(text string) (*translation, error) {
	all, err := tokens(text)
	if err != nil || len(all) == 0 {
		return nil, invalid("Syntax error")
	}
	tr.aliases = map[string]*table{}
	tr.out.kind = kindOf(all)
	if err := tr.learn(all); err != nil {
		return nil, err
	}
	var b strings.Builder
	where := -1
	for i := 0; i < len(all); {
		if where < 0 && all[i].is("WHERE") {
			where = b.Len() + len("WHERE ")
		}
		piece, n, err := tr.piece(all, i)
		if err != nil {
			return nil, err
		}
		b.WriteString(piece)
		b.WriteByte(' ')
		i += n
	}
	tr.out.sql = b.String()
	if tr.out.kind == "delete" {
		if where < 0 {
			return nil, invalid("DELETE must have a WHERE clause")
		}
		tr.out.where = tr.out.sql[where:]
	}
	return &tr.out, nil
}

// learn finds the tables and their aliases before anything is rewritten.
func (tr *translator) learn(all []token) error {
	for i := 0; i+1 < len(all); i++ {
		if names := all[i].is("FROM") || all[i].is("JOIN") || all[i].is("INTO"); !names || all[i+1].is("UNNEST") || all[i+1].kind == '(' {
			continue
		}
		path, end := pathAt(all, i+1)
		t, err := tr.find(path)
		if err != nil {
			return err
		}
		tr.out.tables = append(tr.out.tables, t)
		if end+1 < len(all) && all[end].is("AS") {
			tr.aliases[all[end+1].text], tr.out.alias = t, all[end+1].text
		}
	}
	return nil
}

// piece rewrites what stands at i, and answers how many tokens that was.
func (tr *translator) piece(all []token, i int) (string, int, error) {
	t := all[i]
	after := func(n int) token {
		if i+n < len(all) {
			return all[i+n]
		}
		return token{}
	}
	switch {
	case (t.is("FROM") || t.is("JOIN") || t.is("INTO")) && !after(1).is("UNNEST") && after(1).kind != '(':
		path, end := pathAt(all, i+1)
		found, err := tr.find(path)
		if err != nil {
			return "", 0, err
		}
		return t.text + " " + quote(found.key), end - i, nil
	case t.is("UNNEST") && after(2).kind == '@':
		return tr.unnest(all, i)
	case t.is("UNNEST") && after(2).is("JSON_QUERY_ARRAY") && after(4).kind == 'w' && after(5).kind == '.' && after(6).kind == 'q':
		return "json_each(" + after(4).text + "." + quote(after(6).text) + ")", 9, nil // UNNEST ( JSON_QUERY_ARRAY ( t . `column` ) )
	case t.is("JSON_VALUE") && after(1).kind == '(' && after(2).kind == 'w':
		return "json_extract(" + after(2).text + ".value", 3, nil
	case t.is("STRING"):
		return "TEXT", 1, nil
	case t.is("TO_JSON_STRING") && after(1).kind == '(' && tr.aliases[after(2).text] != nil:
		return tr.object(after(2).text), 4, nil
	case tr.aliases[t.text] != nil && after(1).kind == '.' && after(2).kind == '*':
		return tr.columns(t.text), 3, nil
	case (t.is("TIMESTAMP") || t.is("DATE") || t.is("DATETIME")) && after(1).kind == 's':
		if !t.is("TIMESTAMP") {
			return literal(after(1).text), 2, nil
		}
		micros, err := parseTimestamp(after(1).text)
		return strconv.FormatInt(micros, 10), 2, err
	case t.kind == 'q':
		return quote(t.text), 1, nil
	case t.kind == 's':
		return literal(t.text), 1, nil
	case t.kind == '@':
		if tr.params[t.text] == nil {
			return "", 0, invalid("Query parameter '%s' not found", t.text)
		}
		return "@" + t.text, 1, nil
	default:
		return t.text, 1, nil
	}
}

// unnest rewrites UNNEST(@p) and what hangs on it: an alias, and WITH OFFSET.
func (tr *translator) unnest(all []token, i int) (string, int, error) {
	name := all[i+2].text
	p := tr.params[name]
	if p == nil || p.ArrayType == nil {
		return "", 0, invalid("UNNEST needs an array parameter, @%s is none", name)
	}
	list := quote(listOf(name))
	if i > 0 && all[i-1].is("IN") {
		return "(SELECT value FROM " + list + ")", 4, nil
	}
	if i+5 >= len(all) || !all[i+4].is("AS") {
		return "", 0, invalid("UNNEST without an alias is not emulated")
	}
	alias := all[i+5].text
	if p.ArrayType.StructTypes != nil {
		return list + " AS " + alias, 6, nil
	}
	if i+9 < len(all) && all[i+6].is("WITH") && all[i+7].is("OFFSET") && all[i+8].is("AS") {
		return "(SELECT value AS " + quote(alias) + ", key AS " + quote(all[i+9].text) + " FROM " + list + ")", 10, nil
	}
	return "(SELECT value AS " + quote(alias) + " FROM " + list + ")", 6, nil
}

func (tr *translator) columns(alias string) string {
	var out []string
	for _, f := range fieldsOf(tr.aliases[alias].meta) {
		out = append(out, alias+"."+quote(f.Name))
	}
	return strings.Join(out, ", ")
}

func (tr *translator) object(alias string) string {
	var out []string
	for _, f := range fieldsOf(tr.aliases[alias].meta) {
		out = append(out, literal(f.Name)+", "+alias+"."+quote(f.Name))
	}
	return "json_object(" + strings.Join(out, ", ") + ")"
}

var timestampForms = []string{
	time.RFC3339Nano, "2006-01-02 15:04:05.999999999 MST", "2006-01-02 15:04:05.999999999-07:00", "2006-01-02 15:04:05.999999999-07",
	"2006-01-02 15:04:05.999999999", "2006-01-02",
}

// parseTimestamp answers microseconds since 1970.
func parseTimestamp(text string) (int64, error) {
	for _, form := range timestampForms {
		if at, err := time.Parse(form, text); err == nil {
			return at.UnixMicro(), nil
		}
	}
	return 0, invalid("Invalid timestamp: '%s'", text)
}
