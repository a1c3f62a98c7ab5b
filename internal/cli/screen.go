package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"recount/internal/subject"
	"recount/internal/wire"
)

// screen is where a person, or a script, reads. Results go to out, everything else to err.
type screen struct {
	out, err     io.Writer
	width        int // of the terminal behind out; 0 when there is none
	colour       bool
	live         bool // what is on out can be drawn over
	errTerminal  bool
	errIsColours bool
}

func newScreen(out, err *os.File) *screen {
	s := &screen{out: out, err: err, errTerminal: isTerminal(err)}
	if isTerminal(out) {
		if width, _, sizeErr := term.GetSize(int(out.Fd())); sizeErr == nil {
			s.width = width
		}
	}
	plain := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	s.live = isTerminal(out) && os.Getenv("TERM") != "dumb"
	s.colour, s.errIsColours = isTerminal(out) && !plain, s.errTerminal && !plain
	return s
}

// size is that of the terminal behind out now: it may have been drawn larger or smaller.
func (s *screen) size() (width, height int) {
	if f, ok := s.out.(*os.File); ok {
		if width, height, err := term.GetSize(int(f.Fd())); err == nil {
			return width, height
		}
	}
	return s.width, 0
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// say prints a line of the result.
func (s *screen) say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

// note prints a line beside the result.
func (s *screen) note(format string, args ...any) { _, _ = fmt.Fprintf(s.err, format+"\n", args...) }

// writeJSON prints one JSON object of the result.
func (s *screen) writeJSON(v any) error {
	data, err := wire.Marshal(v)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if _, err := s.out.Write(append(escapeControls(data), '\n')); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}

// field prints a name and its value, unless that is empty.
func (s *screen) field(name, value string) {
	if value != "" {
		s.say("  %s  %s", s.paint(faint, fmt.Sprintf("%-11s", name)), value)
	}
}

const (
	green  = "32"
	yellow = "33"
	red    = "31"
	faint  = "2"
	bold   = "1"
)

func (s *screen) paint(code, words string) string {
	if !s.colour || words == "" {
		return words
	}
	return "\x1b[" + code + "m" + words + "\x1b[0m"
}

// mark is the sign and colour of a status.
func (s *screen) mark(status subject.Status) string {
	switch status {
	case subject.Erased:
		return s.paint(green, "✓")
	case subject.Pending:
		return s.paint(yellow, "…")
	default:
		return s.paint(red, "✗")
	}
}

func (s *screen) statusWord(status subject.Status) string {
	return s.paint(map[subject.Status]string{subject.Erased: green, subject.Pending: yellow, subject.Failed: red}[status], status.String())
}

func (s *screen) good(ok bool) string {
	if ok {
		return s.paint(green, "✓")
	}
	return s.paint(red, "✗")
}

// column is one column of a table.
type column struct {
	title  string
	number bool
	// spare columns are left out, the last first, where the terminal is too narrow.
	spare bool
}

// table prints rows below a header, without borders. Columns without any content are left out.
func (s *screen) table(columns []column, rows [][]string) {
	hidden := make([]bool, len(columns))
	for i := range columns {
		hidden[i] = true
		for _, row := range rows {
			hidden[i] = hidden[i] && row[i] == ""
		}
	}
	for i := len(columns) - 1; i >= 0 && s.width > 0 && tableWidth(columns, rows, hidden) > s.width; i-- {
		hidden[i] = hidden[i] || columns[i].spare
	}
	w := table.NewWriter()
	w.SetStyle(style())
	header, configs := table.Row{}, []table.ColumnConfig{}
	for i, c := range columns {
		if hidden[i] {
			continue
		}
		header = append(header, s.paint(faint, c.title))
		if c.number {
			configs = append(configs, table.ColumnConfig{Number: len(header), Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	w.AppendHeader(header)
	w.SetColumnConfigs(configs)
	for _, row := range rows {
		shown := table.Row{}
		for i, cell := range row {
			if !hidden[i] {
				shown = append(shown, cell)
			}
		}
		w.AppendRow(shown)
	}
	for line := range strings.Lines(w.Render()) {
		_, _ = fmt.Fprintln(s.out, strings.TrimRight(line, " \n"))
	}
}

func style() table.Style {
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "  ", ""
	style.Format.Header = text.FormatDefault
	return style
}

func tableWidth(columns []column, rows [][]string, hidden []bool) int {
	total := 0
	for i, c := range columns {
		if hidden[i] {
			continue
		}
		widest := text.StringWidthWithoutEscSequences(c.title)
		for _, row := range rows {
			widest = max(widest, text.StringWidthWithoutEscSequences(row[i]))
		}
		total += widest + 2
	}
	return total
}

// printable takes out of a foreign text what a terminal would obey, and bounds it.
func printable(words string) string { return printableUpTo(words, 200) }

func printableUpTo(words string, most int) string {
	words = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(words, " "))
	if runes := []rune(words); len(runes) > most {
		words = string(runes[:most]) + "…"
	}
	return strings.TrimSpace(words)
}

// escapeControls writes what a terminal may obey, and JSON may hold as it is, as escapes: DEL, C1 and the marks that
// turn the direction of writing. In a JSON text they only stand inside strings, so it means the same as before.
func escapeControls(data []byte) []byte {
	if !strings.ContainsFunc(string(data), obeyed) {
		return data
	}
	var out []byte
	for _, r := range string(data) {
		if obeyed(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, string(r)...)
		}
	}
	return out
}

func obeyed(r rune) bool {
	return r >= 0x7f && r < 0xa0 || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// plural is "1 store", "2 stores".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
