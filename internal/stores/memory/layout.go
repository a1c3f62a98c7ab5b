// Package memory keeps two stores in the process's own memory: the graph that its cell serves from, and a cache of
// the latest scores. Neither survives the process; what must survive is journalled by another store.
package memory

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Backend is what the receipts of these stores say.
const Backend = "memory"

// maxPageBytes is the packed size of rows after which a page ends early.
const maxPageBytes = 4 << 20

var (
	errRow         = errors.New("a row does not fit its table")
	errCursor      = errors.New("the cursor was not made by this store")
	errTwoEnds     = errors.New("a graph's table has two identity columns")
	errOneIdentity = errors.New("a cache's table has one identity column")
	errLatestBy    = errors.New("a cache's table has an instant column, not nullable, that says which row is the latest")
	errNoRoom      = errors.New("a cache holds at least one subject")
)

// layout knows where a table's rows have their keys, and packs rows. A packed row is one string: it pins no buffer that
// the row's values were cut from, and the garbage collector has one object to look at.
type layout struct {
	table                      stores.Table
	rowID, tenant, source, ref int
	derivedFrom                int // -1 where the table has no such column
	identities                 []int
}

func newLayout(table stores.Table) (layout, error) {
	l := layout{table: table, derivedFrom: table.Index(table.DerivedFrom)}
	if table.Match != "" && table.Match != stores.MatchExact {
		return l, fmt.Errorf("store %s: a store in memory matches exactly, not %q", table.Store, table.Match)
	}
	find := func(name string) (int, error) {
		i := slices.IndexFunc(table.Columns, func(c stores.Column) bool { return c.Name == name })
		if i < 0 || table.Columns[i].Kind != stores.Text || table.Columns[i].Nullable {
			return 0, fmt.Errorf("store %s: column %q must be text and not nullable", table.Store, name)
		}
		return i, nil
	}
	var errs [4]error
	l.rowID, errs[0] = find(stores.RowIDColumn)
	l.tenant, errs[1] = find(table.Tenant)
	l.source, errs[2] = find(table.Source)
	l.ref, errs[3] = find(table.SourceRef)
	faults := errs[:]
	for _, name := range table.Identities {
		i, err := find(name)
		l.identities, faults = append(l.identities, i), append(faults, err)
	}
	return l, errors.Join(faults...)
}

// allBut is the row id, the source reference, and then every column that is not left out, in order.
func (l *layout) allBut(left ...int) []int {
	columns := []int{l.rowID, l.ref}
	for i := range l.table.Columns {
		if i != l.rowID && i != l.ref && !slices.Contains(left, i) {
			columns = append(columns, i)
		}
	}
	return columns
}

// check reports errRow unless every value has its column's kind and can be shown as JSON, the row has an id to page by,
// and every identity is one that an erasure can name.
func (l *layout) check(row stores.Row) error {
	if len(row) != len(l.table.Columns) {
		return errRow
	}
	for i, c := range l.table.Columns {
		ok := false
		switch v := row[i].(type) {
		case nil:
			ok = c.Nullable
		case string:
			ok = c.Kind == stores.Text || c.Kind == stores.JSON && json.Valid([]byte(v))
		case float64:
			ok = c.Kind == stores.Real && !math.IsNaN(v) && !math.IsInf(v, 0)
		case time.Time:
			ok = c.Kind == stores.Instant
		}
		if !ok {
			return errRow
		}
	}
	for _, i := range l.identities {
		if _, err := subject.New(l.text(row, l.tenant), l.text(row, i)); err != nil {
			return errRow
		}
	}
	if l.text(row, l.rowID) == "" {
		return errRow
	}
	return nil
}

func (l *layout) text(row stores.Row, column int) string {
	text, _ := row[column].(string) // newLayout and check made sure that it is one
	return text
}

// parents are what a row that was checked says it was derived from. What is no list of sources is none.
func (l *layout) parents(row stores.Row) []subject.Source {
	if l.derivedFrom < 0 || row[l.derivedFrom] == nil {
		return nil
	}
	parents, err := stores.ParseParents(l.text(row, l.tenant), l.text(row, l.derivedFrom))
	if err != nil {
		return nil
	}
	return parents
}

const (
	packedNil   = 0
	packedValue = 1
)

// pack writes the given columns of a row that was checked. Text is preceded by its length, so that packedText can
// cut it out again without a copy.
func (l *layout) pack(row stores.Row, columns []int, buf []byte) []byte {
	for _, i := range columns {
		switch v := row[i].(type) {
		case string:
			buf = binary.AppendUvarint(append(buf, packedValue), uint64(len(v)))
			buf = append(buf, v...)
		case float64:
			buf = binary.BigEndian.AppendUint64(append(buf, packedValue), math.Float64bits(v))
		case time.Time:
			buf = binary.AppendVarint(append(buf, packedValue), v.UnixMicro())
		default:
			buf = append(buf, packedNil)
		}
	}
	return buf
}

// packedText is the text at the start of a packed row, and what follows it.
func packedText(data string) (text, rest string) {
	size, width := uvarint(data[1:])
	data = data[1+width:]
	return data[:size], data[size:]
}

func uvarint(data string) (value uint64, width int) {
	var head [binary.MaxVarintLen64]byte
	return binary.Uvarint(head[:copy(head[:], data)])
}

// unpack reads the columns back into a row.
func (l *layout) unpack(data string, columns []int, row stores.Row) {
	for _, i := range columns {
		if data[0] == packedNil {
			row[i], data = nil, data[1:]
			continue
		}
		switch l.table.Columns[i].Kind {
		case stores.Real:
			row[i] = math.Float64frombits(binary.BigEndian.Uint64([]byte(data[1:9])))
			data = data[9:]
		case stores.Instant:
			var head [binary.MaxVarintLen64]byte
			micros, width := binary.Varint(head[:copy(head[:], data[1:])])
			row[i], data = time.UnixMicro(micros).UTC(), data[1+width:]
		default:
			row[i], data = packedText(data)
		}
	}
}

// show is a row as an access answers it.
func (l *layout) show(row stores.Row) (map[string]any, error) {
	out := make(map[string]any, len(row))
	for i, c := range l.table.Columns {
		switch v := row[i].(type) {
		case time.Time:
			out[c.Name] = v.Format(time.RFC3339Nano)
		case string:
			out[c.Name] = v
			if c.Kind == stores.JSON {
				var value any
				decoder := json.NewDecoder(bytes.NewReader([]byte(v)))
				decoder.UseNumber()
				if err := decoder.Decode(&value); err != nil {
					return nil, &subject.Fault{Reason: subject.ReasonReadFailed, Cause: err}
				}
				out[c.Name] = value
			}
		default:
			out[c.Name] = v
		}
	}
	return out, nil
}
