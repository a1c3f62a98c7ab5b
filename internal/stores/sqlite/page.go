package sqlite

import "encoding/binary"

// The layout of a database: https://www.sqlite.org/fileformat2.html
const (
	fileHeaderSize  = 100
	reservedOffset  = 20 // bytes that every page leaves unused at its end
	pageCountAt     = 28
	autoVacuumAt    = 52         // not 0: the file has pointer maps
	pendingByte     = 0x40000000 // the page that holds this offset is never used
	pointerMapEntry = 5
	// maxPages keeps the first byte of an overflow or freelist page, which is the top byte of a page number, below
	// every b-tree type, so that such a page is never taken for one.
	maxPages = 1 << 25
)

// layout is what one needs to know of a file to find the gap of a page in it.
type layout struct {
	pageSize, usable int
	pointerMaps      bool
}

// layoutOf reads the file header at the start of page 1.
func layoutOf(page1 []byte) (layout, bool) {
	l := layout{pageSize: len(page1)}
	if !isPageSize(l.pageSize) {
		return layout{}, false
	}
	l.usable = l.pageSize - int(page1[reservedOffset])
	l.pointerMaps = binary.BigEndian.Uint32(page1[autoVacuumAt:]) != 0
	return l, l.usable >= 480 // the least that SQLite allows
}

// gap is the unallocated span of a b-tree page, between its cell pointers and its cells. Rebalancing copies cells and
// leaves the old bytes there, which secure_delete does not clear. ok is false for a page that is no b-tree page, or
// not a sound one.
func (l layout) gap(pgno uint32, page []byte) (from, to int, ok bool) {
	if len(page) != l.pageSize || pgno == 0 || pgno >= maxPages || l.isPointerMap(pgno) {
		return 0, 0, false
	}
	start := 0
	if pgno == 1 {
		start = fileHeaderSize
	}
	header := 8
	switch page[start] {
	case 0x02, 0x05: // interior pages end their header with a child
		header = 12
	case 0x0a, 0x0d:
	default:
		return 0, 0, false
	}
	cells := int(binary.BigEndian.Uint16(page[start+3:]))
	content := int(binary.BigEndian.Uint16(page[start+5:]))
	if content == 0 {
		content = maxPageSize
	}
	pointers := start + header
	from = pointers + 2*cells
	if from > content || content > l.usable {
		return 0, 0, false
	}
	for at := pointers; at < from; at += 2 {
		if cell := int(binary.BigEndian.Uint16(page[at:])); cell < content || cell >= l.usable {
			return 0, 0, false
		}
	}
	return from, content, true
}

// isPointerMap reports whether the page maps children to parents, whose first byte may look like a b-tree's.
func (l layout) isPointerMap(pgno uint32) bool {
	if !l.pointerMaps || pgno < 2 {
		return false
	}
	every := uint32(l.usable/pointerMapEntry + 1) //nolint:gosec // at most 13,108
	first := (pgno-2)/every*every + 2
	if first == uint32(pendingByte/l.pageSize+1) { //nolint:gosec // at most 2,097,153
		first++
	}
	return first == pgno
}

// holdsResidue reports whether a gap holds more than the pointers of cells that were deleted from the end of the list.
// SQLite leaves those behind with every delete. They are offsets, and hold no text: where one's high byte could be a
// character, it counts as residue.
func (l layout) holdsResidue(gap []byte) bool {
	for len(gap) >= 2 {
		offset := int(binary.BigEndian.Uint16(gap))
		if offset == 0 || offset >= l.usable || gap[0] >= ' ' {
			break
		}
		gap = gap[2:]
	}
	return !allZero(gap)
}

func allZero(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != 0 {
			return false
		}
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
